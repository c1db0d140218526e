"""Brings a database to the newest schema, one process at a time, and tells which schema a database has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, make_url, text

from campana.store import servers, sqlite, views

_FOLDER = Path(__file__).parent / "migrations"
# Any number will do, as long as every process takes the same one.
_LOCK = 0x43414D50


def newest() -> str:
    """Return the revision that this code speaks."""
    head = ScriptDirectory(str(_FOLDER)).get_current_head()
    if head is None:
        message = "expected migrations beside the store, found none"
        raise RuntimeError(message)
    return head


def is_enough(found: str | None) -> bool:
    """Say whether this code can work on a schema: on its own, and on one that a newer version has made (a rolling deploy)."""
    known = {script.revision for script in ScriptDirectory(str(_FOLDER)).walk_revisions()}
    return found is not None and (found == newest() or found not in known)


async def upgrade(url: str) -> tuple[str | None, str]:
    """Run what is missing under a lock; return the revision before and after."""
    if make_url(url).get_backend_name() == "sqlite":
        engine = sqlite.connect(url, readers=0)
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                before: str | None = sqlite.run_in_transaction(connection, _run)
        finally:
            engine.dispose()
        return before, newest()
    server = servers.connect(url, size=2, role=servers.Role.MIGRATION)
    try:
        async with server.connect() as guard, server.connect() as worker:
            if server.dialect.name == "postgresql":
                await worker.execute(text(f"select pg_advisory_xact_lock({_LOCK})"))
            else:
                await guard.run_sync(_lock_row)
            before = await worker.run_sync(_run)
            await worker.commit()
            await guard.commit()
    finally:
        await server.dispose()
    return before, newest()


async def current(url: str) -> str | None:
    """Return the revision of a database, or None where there is none."""
    found: str | None = await _reading(url, _current)
    return found


async def _reading(url: str, look: Callable[[Connection], Any]) -> Any:
    if make_url(url).get_backend_name() == "sqlite":
        engine = sqlite.connect(url, readers=0)
        try:
            with engine.connect() as connection:
                return look(connection)
        finally:
            engine.dispose()
    server = servers.connect(url, size=1)
    try:
        async with server.connect() as connection:
            return await connection.run_sync(look)
    finally:
        await server.dispose()


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": "campana_schema"}).get_current_revision()


def _lock_row(connection: Connection) -> None:
    # MySQL commits with every DDL, so the lock is a row that another connection holds in an open transaction.
    if not inspect(connection).has_table("campana_migration_lock"):
        connection.execute(text("create table if not exists campana_migration_lock (id integer primary key) engine=InnoDB"))
    if connection.execute(text("select id from campana_migration_lock")).first() is None:
        connection.execute(text("insert into campana_migration_lock (id) values (1) on duplicate key update id = 1"))
    connection.commit()
    connection.execute(text("select id from campana_migration_lock where id = 1 for update"))


def _run(connection: Connection) -> str | None:
    before = _current(connection)
    if is_enough(before) and (before != newest() or views.are_there(connection)):
        return before
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["connection"] = connection
    views.drop(connection)
    command.upgrade(config, "head")
    views.create(connection)
    return before
