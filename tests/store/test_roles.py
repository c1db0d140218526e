"""How long a server lets a statement, a wait for a lock and an idle transaction last, by what the connection is for."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, text

from campana import wiring
from campana.settings import Settings
from campana.store import servers
from campana.store.servers import PATIENCE, Role, ServerRunner
from tests.store.desk import Desk

SECRET = "for the tests alone, and long enough"
POSTGRESQL = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
MARIADB = ("max_statement_time", "innodb_lock_wait_timeout", "idle_transaction_timeout")
MYSQL = ("max_execution_time", "innodb_lock_wait_timeout")


def _limits(connection: Connection) -> list[float]:
    def ask(query: str) -> object:
        return connection.execute(text(query)).scalar_one()

    if connection.dialect.name == "postgresql":
        said = ((name, ask(f"select extract(epoch from current_setting('{name}')::interval)")) for name in POSTGRESQL)  # noqa: S608 - ours
        return [float(str(value)) for _, value in said]
    if "MariaDB" in str(ask("select version()")):
        return [float(str(ask(f"select @@{name}"))) for name in MARIADB]
    return [float(str(ask(f"select @@{name}"))) / (1000 if name == MYSQL[0] else 1) for name in MYSQL]


@pytest.mark.parametrize("role", Role)
async def test_every_role_has_its_own_patience_in_each_transaction(server_desk: Desk, role: Role) -> None:
    runner = ServerRunner(server_desk.url, size=1, role=role)
    patience = PATIENCE[role]
    try:
        for found in (await runner.read(_limits), await runner.read(_limits)):
            assert found == [patience.statement, patience.lock, patience.idle][: len(found)]
    finally:
        await runner.close()


def test_the_heartbeat_waits_least_and_a_migration_longest() -> None:
    tick, migration = PATIENCE[Role.TICK], PATIENCE[Role.MIGRATION]
    for role in (Role.API, Role.ENGINE):
        assert tick.statement < PATIENCE[role].statement < migration.statement
        assert tick.lock < PATIENCE[role].lock < migration.lock
        assert PATIENCE[role].lock < PATIENCE[role].statement


@pytest.mark.parametrize(
    ("url", "direct", "expected"),
    [
        ("postgresql://h/d", None, "postgresql://h/d"),
        ("postgresql://h/d?pooled=true", None, None),
        ("postgresql://h/d?pooled=true", "postgresql://direct/d", "postgresql://direct/d"),
        ("postgresql://h/d?pooled=true", "postgresql://direct/d?pooled=true", None),
        ("mysql://h/d", None, None),
        (None, None, None),
    ],
)
def test_notices_are_heard_past_a_pooler_or_not_at_all(url: str | None, direct: str | None, expected: str | None) -> None:
    said: dict[str, Any] = {"database_url": url, "database_direct_url": direct, "secret_key": SECRET}
    assert wiring._listens_at(Settings.load({}, **said)) == expected


def test_a_url_says_that_it_leads_to_a_pooler() -> None:
    assert servers.is_pooled("postgresql://h/d?pooled=true")
    assert not servers.is_pooled("postgresql://h/d")
    assert not servers.is_pooled("sqlite:///x.db")
