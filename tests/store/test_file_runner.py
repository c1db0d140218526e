"""SQLite's one writer: who shares a transaction, who goes first, and what a failure does to its neighbours."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import IntegrityError, OperationalError

from campana.errors import UnavailableError
from campana.store.database import Urgency
from campana.store.sqlite import FileRunner
from tests.store import desk as desks
from tests.store.desk import Desk, hand


class _Gate:
    """A unit that keeps the writer busy until it is opened."""

    def __init__(self, runner: FileRunner) -> None:
        self._runner = runner
        self._begun = asyncio.Event()
        self._open = threading.Event()
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()

        def unit(_: Connection) -> None:
            loop.call_soon_threadsafe(self._begun.set)
            assert self._open.wait(30)

        self._task = asyncio.create_task(self._runner.write(unit, Urgency.SETTLE))
        await self._begun.wait()

    async def __aexit__(self, *_: object) -> None:
        # Whoever was started inside has had its turn to stand in the queue.
        for _turn in range(10):
            await asyncio.wait([asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(None, int))])
        self._open.set()
        assert self._task is not None
        await self._task


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncIterator[FileRunner]:
    runner = FileRunner(f"sqlite:///{tmp_path / 'campana.db'}")
    await runner.write(_prepare, Urgency.INTAKE)
    yield runner
    await runner.close()


def _prepare(connection: Connection) -> None:
    connection.exec_driver_sql("create table kept (name text)")
    connection.exec_driver_sql("create table parents (id integer primary key)")
    connection.exec_driver_sql("create table children (id integer references parents deferrable initially deferred)")


def _keep(connection: Connection, name: str) -> str:
    connection.exec_driver_sql("insert into kept values (?)", (name,))
    return name


def _kept(connection: Connection) -> list[str]:
    return list(connection.exec_driver_sql("select name from kept order by rowid").scalars())


def _write(runner: FileRunner, name: str, urgency: Urgency = Urgency.INTAKE) -> "asyncio.Task[str]":
    return asyncio.create_task(runner.write(lambda connection: _keep(connection, name), urgency))


def _fails(connection: Connection) -> None:
    _keep(connection, "of the failed one")
    raise ValueError("planted")


def _breaks_the_commit(connection: Connection) -> None:
    _keep(connection, "of the broken one")
    connection.exec_driver_sql("insert into children values (1)")


def _ends_the_transaction(connection: Connection) -> None:
    # As SQLite itself may when the disk is full or fails.
    _keep(connection, "of the ended one")
    connection.exec_driver_sql("rollback")
    raise ValueError("planted")


def _begins(runner: FileRunner) -> list[str]:
    seen: list[str] = []

    @event.listens_for(runner._engine, "before_cursor_execute")
    def see(_1: Any, _2: Any, statement: str, *_3: Any) -> None:
        if statement in {"begin immediate", "commit"}:
            seen.append(statement)

    return seen


async def test_what_waits_for_the_writer_shares_one_transaction(runner: FileRunner) -> None:
    async with _Gate(runner):
        seen = _begins(runner)
        tasks = [_write(runner, str(number)) for number in range(20)]
    assert await asyncio.gather(*tasks) == [str(number) for number in range(20)]
    assert seen == ["commit", "begin immediate", "commit"]
    assert await runner.read(_kept) == [str(number) for number in range(20)]


async def test_what_is_acknowledged_was_synced_to_disk(runner: FileRunner) -> None:
    full = 2
    assert (
        await runner.write(lambda connection: connection.exec_driver_sql("pragma synchronous").scalar(), Urgency.INTAKE) == full
    )


async def test_the_urgent_go_first(runner: FileRunner) -> None:
    wanted = [("create", Urgency.INTAKE), ("claim", Urgency.CLAIM), ("settle", Urgency.SETTLE), ("create 2", Urgency.INTAKE)]
    async with _Gate(runner):
        tasks = [_write(runner, name, urgency) for name, urgency in wanted]
    await asyncio.gather(*tasks)
    assert await runner.read(_kept) == ["settle", "claim", "create", "create 2"]


@pytest.mark.parametrize(
    ("unit", "error"),
    [(_fails, ValueError), (_breaks_the_commit, IntegrityError), (_ends_the_transaction, ValueError)],
    ids=lambda value: value.__name__,
)
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_a_unit_that_fails_harms_no_neighbour(runner: FileRunner, unit: Any, error: type[Exception], position: int) -> None:
    async with _Gate(runner):
        tasks: list[asyncio.Task[Any]] = [_write(runner, "first"), _write(runner, "second")]
        tasks.insert(position, asyncio.create_task(runner.write(unit, Urgency.INTAKE)))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    failed = answers.pop(position)
    assert isinstance(failed, error), failed
    assert answers == ["first", "second"]
    assert await runner.read(_kept) == ["first", "second"]


@pytest.mark.parametrize("unit", [_fails, _breaks_the_commit, _ends_the_transaction], ids=lambda unit: unit.__name__)
async def test_after_a_unit_that_failed_alone_the_writer_goes_on(runner: FileRunner, unit: Any) -> None:
    with pytest.raises((ValueError, IntegrityError)):
        await runner.write(unit, Urgency.INTAKE)
    assert await _write(runner, "next") == "next"
    assert await runner.read(_kept) == ["next"]


async def test_closing_lets_what_waits_be_written_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'campana.db'}"
    runner = FileRunner(url)
    await runner.write(_prepare, Urgency.INTAKE)
    async with _Gate(runner):
        tasks = [_write(runner, str(number), urgency) for number, urgency in enumerate(Urgency)]
        closing = asyncio.create_task(runner.close())
    await asyncio.gather(*tasks)
    await closing
    again = FileRunner(url)
    assert len(await again.read(_kept)) == 3
    await again.close()


async def test_a_cancelled_caller_does_not_tear_its_write(runner: FileRunner) -> None:
    async with desks.opened("", of=_Unclosed(runner)) as desk:
        async with _Gate(runner):
            tasks = [asyncio.create_task(desk.write(_keep, str(number))) for number in range(3)]
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert await runner.read(_kept) == ["0", "1", "2"]


async def test_a_reader_can_not_write_and_the_next_write_can(runner: FileRunner) -> None:
    with pytest.raises(OperationalError, match="readonly"):
        await runner.read(lambda connection: _keep(connection, "by a reader"))
    await _write(runner, "by the writer")
    assert await runner.read(_kept) == ["by the writer"]


async def test_a_reader_sees_nothing_of_an_open_transaction(runner: FileRunner) -> None:
    seen: list[list[str]] = []

    def unit(connection: Connection) -> None:
        _keep(connection, "it")
        seen.append(asyncio.run_coroutine_threadsafe(runner.read(_kept), loop).result(10))

    loop = asyncio.get_running_loop()
    await runner.write(unit, Urgency.INTAKE)
    assert (seen, await runner.read(_kept)) == ([[]], ["it"])


async def test_a_file_that_another_process_writes_to_is_waited_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'campana.db'}"
    retried = asyncio.Event()
    async with desks.opened(url) as desk:
        await desk.write(_prepare)
        await desk.write(desks.execute, text("pragma busy_timeout = 20"))
        other = await hand(url)
        await other.do(_keep, "theirs")
        desk.telemetry.listen(lambda name, _: retried.set() if name == "store.retry" else None)
        mine = asyncio.create_task(desk.write(_keep, "mine"))
        await retried.wait()
        await other.commit()
        await mine
        await other.close()
        assert await desk.read(_kept) == ["theirs", "mine"]


async def test_no_connection_stays_out_after_cancelled_callers(tmp_path: Path) -> None:
    runner = FileRunner(f"sqlite:///{tmp_path / 'campana.db'}")
    async with desks.opened("", of=_Unclosed(runner)) as desk:
        await desk.write(_prepare)
        await _cancel_many(desk)
        await desk.database.close()
    await runner.close()
    assert runner._engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a QueuePool has it


async def _cancel_many(desk: Desk) -> None:
    for number in range(200):
        calls = (desk.write(_keep, str(number)), desk.read(_kept))
        tasks = [asyncio.create_task(call) for call in calls]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=0 if number % 3 else None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert done or number % 3
    while desk.database._under_way:
        await asyncio.wait(desk.database._under_way)
    assert set(await desk.read(_kept)) == {str(number) for number in range(200)}


class _Unclosed:
    """The runner, kept open by its own fixture."""

    def __init__(self, runner: FileRunner) -> None:
        self.dialect = runner.dialect
        self.write, self.read = runner.write, runner.read

    async def close(self) -> None:
        """It is closed elsewhere."""


@pytest.mark.parametrize("how", ["removed", "replaced", "moved back too late"])
async def test_nothing_is_acknowledged_once_the_file_is_not_the_one_that_was_opened(
    runner: FileRunner, tmp_path: Path, how: str
) -> None:
    file, backup = tmp_path / "campana.db", tmp_path / "backup.db"
    await runner.write(lambda c: c.exec_driver_sql("insert into kept values ('before')"), Urgency.INTAKE)
    shutil.copy(file, backup)
    if how == "replaced":
        backup.replace(file)
    else:
        file.unlink()
    for _ in range(2):
        with pytest.raises(UnavailableError, match="was replaced or removed under a running Campana"):
            await runner.write(lambda c: c.exec_driver_sql("insert into kept values ('after')"), Urgency.SETTLE)
        with pytest.raises(UnavailableError, match="stop it, put the file right"):
            await runner.read(lambda c: c.exec_driver_sql("select * from kept").all())
        if how == "moved back too late" and backup.exists():
            backup.replace(file)
