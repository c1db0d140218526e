"""A migrated, empty database for one test: by `Database`, as production has it, or by hand, one open transaction each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, Executable, Row, Table, delete, insert, make_url, select
from sqlalchemy.ext.asyncio import AsyncConnection

from campana import world
from campana.store import servers, sqlite
from campana.store.database import Database, Runner
from campana.store.schema import deliveries, metadata
from campana.store.servers import Role, ServerRunner
from campana.store.sqlite import FileRunner
from campana.telemetry import Telemetry
from tests.store import builders

P = ParamSpec("P")
T = TypeVar("T")


def quiet() -> Telemetry:
    """Counts, and writes nothing."""
    return Telemetry(_Silence())


class _Silence:
    def is_enabled_for(self, level: int) -> bool:
        return False


def runner(url: str, *, size: int = 4) -> Runner:
    return FileRunner(url) if is_file(url) else ServerRunner(url, size=size)


def is_file(url: str) -> bool:
    return make_url(url).get_backend_name() == "sqlite"


class _Hurry(world.SystemClock):
    async def sleep(self, seconds: float) -> None:
        """Whoever waits has waited."""


def be_patient(monkeypatch: pytest.MonkeyPatch, **seconds: Any) -> None:
    """Connections that are opened from now on wait so long, and not as in production."""
    monkeypatch.setitem(servers.PATIENCE, Role.ENGINE, replace(servers.PATIENCE[Role.ENGINE], **seconds))


def hurried() -> world.World:
    """The world as it is, but for waiting."""
    return world.World(_Hurry(), world.SystemChance())


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a test of the store works with."""

    url: str
    database: Database
    telemetry: Telemetry

    async def write(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.write(function, *args, **kwargs)

    async def read(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.read(function, *args, **kwargs)

    async def add(self, **others: Any) -> UUID:
        """One more row of `deliveries`."""
        (found,) = await self.add_all(others)
        return found

    async def add_all(self, *rows: dict[str, Any]) -> list[UUID]:
        made = [builders.columns(**row) for row in rows]
        every = [{**dict.fromkeys(deliveries.c.keys()), **row} for row in made]
        await self.write(execute, insert(deliveries), every)
        return [row["id"] for row in made]

    async def row(self, delivery_id: UUID) -> Row[Any]:
        return await self.read(row, delivery_id)

    async def rows(self, table: Table) -> list[Row[Any]]:
        return await self.read(lambda connection: list(connection.execute(select(table).order_by(*table.primary_key))))


def execute(connection: Connection, statement: Executable, rows: Sequence[Mapping[str, Any]] | None = None) -> None:
    connection.execute(statement, rows)


def row(connection: Connection, delivery_id: UUID) -> Row[Any]:
    return connection.execute(select(deliveries).where(deliveries.c.id == delivery_id)).one()


def clear(connection: Connection) -> None:
    for table in metadata.sorted_tables:
        connection.execute(delete(table))


@asynccontextmanager
async def opened(url: str, *, size: int = 4, of: Runner | None = None) -> AsyncIterator[Desk]:
    told = quiet()
    database = Database(of or runner(url, size=size), world.real(), told)
    try:
        yield Desk(url=url, database=database, telemetry=told)
    finally:
        await database.close()


class Hand:
    """One connection in one open transaction, so that a race can be scripted."""

    def __init__(self, connection: Connection | AsyncConnection, close: Callable[[], Awaitable[None]]) -> None:
        self._connection = connection
        self._close = close

    async def do(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if isinstance(self._connection, AsyncConnection):
            return await self._connection.run_sync(function, *args, **kwargs)
        return await asyncio.to_thread(function, self._connection, *args, **kwargs)

    async def commit(self) -> None:
        await self._end("commit")

    async def rollback(self) -> None:
        await self._end("rollback")

    async def _end(self, how: str) -> None:
        if isinstance(self._connection, AsyncConnection):
            await getattr(self._connection, how)()
        else:
            await asyncio.to_thread(self._connection.exec_driver_sql, how)

    async def close(self) -> None:
        await self._close()


async def hand(url: str) -> Hand:
    """A transaction begins with the first statement on a server; on a file it holds the one right to write from its start."""
    if is_file(url):
        return await asyncio.to_thread(_file_hand, url)
    engine = servers.connect(url, size=1)
    connection = await engine.connect()

    async def close() -> None:
        await connection.close()
        await engine.dispose()

    return Hand(connection, close)


def _file_hand(url: str) -> Hand:
    engine = sqlite.connect(url, readers=0)
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    connection.exec_driver_sql("begin immediate")
    return Hand(connection, lambda: asyncio.to_thread(_let_go, engine, connection))


def _let_go(engine: Engine, connection: Connection) -> None:
    if connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]  # it is sqlite3's
        connection.exec_driver_sql("rollback")
    connection.close()
    engine.dispose()


@asynccontextmanager
async def hands(url: str, number: int) -> AsyncIterator[list[Hand]]:
    """So many open transactions on a server. A file has one writer: there the second waits for the first to end."""
    opened_hands: list[Hand] = []
    try:
        for _ in range(number):
            opened_hands.append(await hand(url))  # noqa: PERF401 - each that was opened is closed, whatever the next one does
        yield opened_hands
    finally:
        for one in opened_hands:
            await one.close()


async def until_blocked(url: str) -> None:
    """Somebody waits for a lock, as the server itself says; a file's second writer waits from its first statement on."""
    if is_file(url):
        return
    watcher = await hand(url)
    try:
        for _ in range(20_000):
            if await watcher.do(_blocked, is_postgresql="postgresql" in url):
                return
            await watcher.rollback()
    finally:
        await watcher.close()
    raise AssertionError("expected somebody to wait for a lock, nobody does")


def _blocked(connection: Connection, *, is_postgresql: bool) -> bool:
    question = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        if is_postgresql
        else "show global status where variable_name = 'Innodb_row_lock_current_waits' and value > 0"
    )
    return bool(connection.exec_driver_sql(question).scalar())
