"""A database that is there and can't be used: read-only, full, too slow. Each is an absence, and it ends without a restart."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, make_url

from campana import store, world
from campana.errors import UnavailableError
from campana.store import migrate
from campana.store.database import Database
from campana.store.schema import deliveries
from tests import databases
from tests.store import builders
from tests.store import desk as desks
from tests.store.builders import NOW, TENANT
from tests.store.desk import Desk


async def create(desk: Desk) -> Any:
    (made,) = await desk.write(store.deliveries.create, [builders.delivery()], now=NOW)
    return made


@pytest.fixture
async def hasty(migrated: str, desk: Desk) -> AsyncIterator[Desk]:
    """A desk that waits for nothing between its tries."""
    with plain_user(migrated) as url:
        told = desks.quiet()
        database = Database(desks.runner(url), desks.hurried(), told)
        yield Desk(url=migrated, database=database, telemetry=told)
        await database.close()


@contextmanager
def plain_user(url: str) -> Iterator[str]:
    """On MariaDB and MySQL `read_only` binds only those who may do less than the tests' own user."""
    if "mysql" not in url:
        yield url
        return
    name = databases.database_of(url)
    user = f"plain_{name}"[:30]
    databases.ask(url, f"create user {user}@'%%' identified by 'plain'")
    databases.ask(url, f"grant select, insert, update, delete on {name}.* to {user}@'%%'")
    try:
        yield make_url(url).set(username=user, password="plain").render_as_string(hide_password=False)
    finally:
        databases.ask(url, f"drop user {user}@'%%'")


@contextmanager
def read_only(url: str) -> Iterator[None]:
    name = databases.database_of(url)
    if "mysql" in url:
        on, off = ["set global read_only = on"], ["set global read_only = off"]
    else:
        alter = f"alter database {name} set default_transaction_read_only"
        cut = f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and pid <> pg_backend_pid()"  # noqa: S608 - ours
        on, off = [f"{alter} = on", cut], ["set default_transaction_read_only = off", f"{alter} = off", cut]
    databases.ask(url, *on)
    try:
        yield
    finally:
        databases.ask(url, *off)


async def test_a_server_that_became_read_only_is_away_for_writes_alone(session_desk: Desk, hasty: Desk) -> None:
    known = await create(hasty)
    with read_only(session_desk.url):
        with pytest.raises(UnavailableError):
            await create(hasty)
        assert await hasty.read(store.deliveries.get, TENANT, known.id)
    await create(hasty)
    assert len(await hasty.rows(deliveries)) == 2


def slow(connection: Connection) -> None:
    # MySQL takes a `sleep` that it cut short for one that is over, and looks at the time before the next row.
    some = "(select 1 union all select 2 union all select 3 union all select 4)"
    often = f"select sleep(1) from {some} a, {some} b, {some} c"  # noqa: S608 - ours
    connection.exec_driver_sql("select pg_sleep(60)" if connection.dialect.name == "postgresql" else often)


async def test_a_statement_that_takes_too_long_is_an_absence(server_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desks.be_patient(monkeypatch, statement=0.05, answer=1)
    async with desks.opened(server_desk.url) as impatient:
        database = Database(desks.runner(server_desk.url), desks.hurried(), impatient.telemetry)
        with pytest.raises(UnavailableError):
            await database.read(slow)
        await database.close()


# --- a file


@asynccontextmanager
async def file(folder: Path) -> AsyncIterator[Desk]:
    url = f"sqlite:///{folder / 'campana.db'}"
    await migrate.upgrade(url)
    told = desks.quiet()
    database = Database(desks.runner(url), world.real(), told)
    try:
        yield Desk(url=url, database=database, telemetry=told)
    finally:
        await database.close()


@asynccontextmanager
async def full_disk(desk: Desk, *, left: int = 0) -> AsyncIterator[None]:
    """The file can't grow beyond what it has, and so many pages: SQLite says what it says of a full disk."""
    now = await desk.write(lambda connection: connection.exec_driver_sql("pragma page_count").scalar_one())
    await desk.write(limit, now + left)
    try:
        yield
    finally:
        await desk.write(limit, 1_000_000)


def limit(connection: Connection, pages: int) -> None:
    connection.exec_driver_sql(f"pragma max_page_count = {pages}")


async def fill(desk: Desk, made: list[Any]) -> None:
    while True:
        made.append(await create(desk))


async def test_a_full_disk_loses_nothing_and_tears_nothing(tmp_path: Path) -> None:
    async with file(tmp_path) as desk:
        made = [await create(desk)]
        async with full_disk(desk, left=20):
            with pytest.raises(UnavailableError):
                await fill(desk, made)
        made.append(await create(desk))
        assert {row.id for row in await desk.rows(deliveries)} == {one.id for one in made}
    with sqlite3.connect(tmp_path / "campana.db") as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


async def test_others_wait_for_no_absence(tmp_path: Path) -> None:
    """A unit that can't be written keeps none behind it from being written, or told that it is not."""
    async with file(tmp_path) as desk:
        async with full_disk(desk):
            results = await asyncio.gather(*(create(desk) for _ in range(200)), return_exceptions=True)
        made = [result for result in results if not isinstance(result, BaseException)]
        assert {type(result) for result in results} - {type(one) for one in made} == {UnavailableError}
        made.append(await create(desk))
        assert {row.id for row in await desk.rows(deliveries)} == {one.id for one in made}
