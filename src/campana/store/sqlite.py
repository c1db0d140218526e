"""SQLite: one writing connection behind a queue, in a thread of its own, and a few short readers.

Writers that wait on SQLite's own lock starve each other; in one queue the urgent ones go first and all that waits shares
one transaction, each unit in a savepoint, so that one that fails takes nobody with it.
"""

import asyncio
import itertools
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import QueuePool

from campana.errors import UnavailableError
from campana.store import dialects, filesystems
from campana.store.database import CommitLostError, Unit, Urgency

GROUP = 500
READERS = 4
PRAGMAS = (
    "journal_mode = wal",
    "synchronous = full",
    "busy_timeout = 5000",
    "foreign_keys = on",
    "cache_size = -32000",
)


def connect(url: str, *, readers: int = READERS) -> Engine:
    """Return an engine whose transactions are begun by us alone, with a connection for each reader and the writer."""
    filesystems.require_local(Path(str(make_url(url).database)))
    engine = create_engine(url, poolclass=QueuePool, pool_size=readers + 1, max_overflow=0, pool_timeout=30)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        del record
        connection.isolation_level = None
        for pragma in PRAGMAS:
            connection.execute(f"pragma {pragma}")

    return engine


@dataclass(eq=False, slots=True)
class _Waiting:
    urgency: int
    number: int
    unit: Unit
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop

    def __lt__(self, other: "_Waiting") -> bool:
        return (self.urgency, self.number) < (other.urgency, other.number)


def run_in_transaction(connection: Connection, unit: Unit) -> Any:
    """Run one unit in a transaction of its own."""
    connection.exec_driver_sql("begin immediate")
    try:
        result = unit(connection)
        connection.exec_driver_sql("commit")
    except BaseException:
        _roll_back(connection)
        raise
    return result


def _roll_back(connection: Connection) -> None:
    # A failed COMMIT leaves the transaction open; a full disk may have ended it already.
    if connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]  # it is sqlite3's
        connection.exec_driver_sql("rollback")


class FileRunner:
    """A SQLite file."""

    dialect = dialects.named("sqlite")

    def __init__(self, url: str) -> None:
        """Start the writer's thread."""
        self._engine = connect(url)
        self._path = str(make_url(url).database)
        self._opened: tuple[int, int] | None = None
        self._queue: queue.PriorityQueue[_Waiting | _Stop] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="campana-reader")
        self._writer = threading.Thread(target=self._write_all, name="campana-writer", daemon=True)
        self._writer.start()

    async def write(self, unit: Unit, urgency: Urgency) -> Any:
        """Queue the unit; return when the transaction that it shared is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(_Waiting(urgency, next(self._numbers), unit, future, loop))
        return await future

    async def read(self, unit: Unit) -> Any:
        """Run the unit in a reader's thread, in a read transaction that ends with it."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, unit)

    async def close(self) -> None:
        """Let the queue run empty, then end the threads."""
        self._queue.put(_Stop())
        await asyncio.get_running_loop().run_in_executor(None, self._writer.join)
        self._readers.shutdown()
        self._engine.dispose()

    def _read(self, unit: Unit) -> Any:
        # Before too: a reader that is opened now would make an empty file in the place of one that was removed.
        self._require_file()
        with self._autocommit() as connection:
            connection.exec_driver_sql("pragma query_only = 1")
            connection.exec_driver_sql("begin")
            try:
                found = unit(connection)
            finally:
                connection.exec_driver_sql("rollback")
                connection.exec_driver_sql("pragma query_only = 0")
        self._require_file()
        return found

    def _require_file(self) -> None:
        if self._opened is not None and _identity(self._path) != self._opened:
            raise _gone(self._path)

    def _autocommit(self) -> Connection:
        # SQLAlchemy must not begin or commit by itself: both are written out, in one place.
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _write_all(self) -> None:
        with self._autocommit() as connection:
            self._opened = _identity(self._path)
            while group := self._next_group():
                answers = self._commit(connection, group)
                if _identity(self._path) != self._opened:
                    # What was committed is in a file that nobody will find again: it must not be acknowledged.
                    answers = [_Raised(_gone(self._path))] * len(group)
                for loop in {waiting.loop for waiting in group}:
                    mine = [(w.future, a) for w, a in zip(group, answers, strict=True) if w.loop is loop]
                    _hand_back(loop, mine)

    def _next_group(self) -> list[_Waiting]:
        first = self._queue.get()
        if isinstance(first, _Stop):
            return []
        group = [first]
        while len(group) < GROUP:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if isinstance(following, _Stop):
                self._queue.put(following)
                break
            group.append(following)
        return group

    def _commit(self, connection: Connection, group: Sequence[_Waiting]) -> list[Any]:
        if len(group) > 1:
            try:
                return _together(connection, group)
            except Exception as error:  # noqa: BLE001 - handed to all who wait for this transaction, or met again alone
                if self.dialect.is_transient(error):
                    return [_Raised(error)] * len(group)
        # One of them breaks the transaction of all: each gets its own.
        return [_alone(connection, waiting.unit) for waiting in group]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _gone(path: str) -> UnavailableError:
    return UnavailableError(
        f"{path} was replaced or removed under a running Campana: stop it, put the file right, start it again"
    )


class _Stop(_Waiting):
    """After everything else in the queue."""

    def __init__(self) -> None:
        self.urgency, self.number = 1_000, 0


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


def _alone(connection: Connection, unit: Unit) -> Any:
    try:
        return run_in_transaction(connection, unit)
    except Exception as error:  # noqa: BLE001 - handed to whoever waits for it
        return _Raised(error)


def _together(connection: Connection, group: Sequence[_Waiting]) -> list[Any]:
    def every(connection: Connection) -> list[Any]:
        return [_in_savepoint(connection, waiting.unit) for waiting in group]

    answers: list[Any] = run_in_transaction(connection, every)
    return answers


def _in_savepoint(connection: Connection, unit: Unit) -> Any:
    connection.exec_driver_sql("savepoint unit")
    try:
        result = unit(connection)
    except Exception as error:  # noqa: BLE001 - handed to whoever waits for it
        connection.exec_driver_sql("rollback to unit")
        result = _Raised(error)
    connection.exec_driver_sql("release unit")
    return result


def _hand_back(loop: asyncio.AbstractEventLoop, answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    def settle() -> None:
        for future, answer in answers:
            if future.done():
                continue
            if isinstance(answer, _Raised):
                future.set_exception(answer.error)
            else:
                future.set_result(answer)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


__all__ = ["CommitLostError", "FileRunner", "connect", "run_in_transaction"]
