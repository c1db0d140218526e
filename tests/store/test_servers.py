"""What servers do to transactions: deadlocks, lock timeouts, serialization errors, killed connections. And cancelled callers."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, func, make_url, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from campana import store
from campana.errors import UnavailableError
from campana.store.schema import deliveries
from campana.store.servers import ServerRunner
from tests.store import builders
from tests.store import desk as desks
from tests.store.builders import NOW, wish
from tests.store.desk import Desk, hands


class _Once:
    """Happens in the first run of a transaction alone."""

    def __init__(self) -> None:
        self.runs = 0

    @property
    def is_first(self) -> bool:
        self.runs += 1
        return self.runs == 1


def _count(connection: Connection, delivery_id: UUID) -> None:
    mine = deliveries.c.id == delivery_id
    connection.execute(update(deliveries).where(mine).values(attempt_count=deliveries.c.attempt_count + 1))


def _in_turn(connection: Connection, ids: list[UUID], once: _Once, barrier: asyncio.Barrier) -> None:
    """Both have the first row before either asks for the other's."""
    is_first = once.is_first
    for number, delivery_id in enumerate(ids):
        _count(connection, delivery_id)
        if is_first and number == 0:
            await_only(barrier.wait())


async def test_a_deadlock_is_run_again_and_both_come_through(server_desk: Desk) -> None:
    ids = await server_desk.add_all({}, {})
    barrier = asyncio.Barrier(2)
    await asyncio.gather(
        server_desk.write(_in_turn, ids, _Once(), barrier), server_desk.write(_in_turn, ids[::-1], _Once(), barrier)
    )
    assert [(await server_desk.row(one)).attempt_count for one in ids] == [2, 2]
    assert server_desk.telemetry.counts["store.retry"] == 1


async def test_a_lock_that_takes_too_long_is_waited_for_again(server_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desks.be_patient(monkeypatch, lock=1)
    it = await server_desk.add()
    retried = asyncio.Event()
    async with hands(server_desk.url, 1) as (holder,), desks.opened(server_desk.url) as desk:
        await holder.do(_count, it)
        desk.telemetry.listen(lambda name, _: retried.set() if name == "store.retry" else None)
        waiting = asyncio.create_task(desk.write(_count, it))
        await retried.wait()
        await holder.commit()
        await waiting
    assert (await server_desk.row(it)).attempt_count == 2


PASSING = {
    "postgresql": ["40001", "40P01", "55P03", "57P03", "53300", "25006"],
    "mysql": ["1213", "1205", "1020", "1290", "1021", "1053"],
}
LASTING = {"postgresql": ["23505", "22001", "42601"], "mysql": ["1062", "1406", "1064"]}


def _raise(connection: Connection, code: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"do $$ begin raise exception 'planted' using errcode = '{code}'; end $$"))
    else:
        connection.execute(text(f"signal sqlstate '45000' set mysql_errno = {code}, message_text = 'planted'"))


@pytest.mark.parametrize("number", range(6))
async def test_what_passes_is_run_again_from_the_beginning(server_desk: Desk, number: int) -> None:
    it, once = await server_desk.add(), _Once()
    code = PASSING[server_desk.database.dialect.name][number]

    def unit(connection: Connection) -> None:
        _count(connection, it)
        if once.is_first:
            _raise(connection, code)

    await server_desk.write(unit)
    assert (once.runs, (await server_desk.row(it)).attempt_count) == (2, 1)


@pytest.mark.parametrize("number", range(3))
async def test_what_lasts_is_raised_at_once(server_desk: Desk, number: int) -> None:
    it, once = await server_desk.add(), _Once()
    code = LASTING[server_desk.database.dialect.name][number]

    def unit(connection: Connection) -> None:
        assert once.is_first
        _count(connection, it)
        _raise(connection, code)

    with pytest.raises(DBAPIError, match="planted"):
        await server_desk.write(unit)
    assert (await server_desk.row(it)).attempt_count == 0


def _pid(connection: Connection) -> int:
    function = "pg_backend_pid" if connection.dialect.name == "postgresql" else "connection_id"
    found: int = connection.execute(text(f"select {function}()")).scalar_one()
    return found


def _kill(connection: Connection, pid: int) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("select pg_terminate_backend(:pid, 5000)"), {"pid": pid})
    else:
        connection.execute(text(f"kill connection {pid}"))


async def test_a_connection_killed_before_the_commit_is_run_again_as_a_whole(server_desk: Desk) -> None:
    it, once = await server_desk.add(), _Once()
    async with hands(server_desk.url, 1) as (killer,):

        def unit(connection: Connection) -> None:
            _count(connection, it)
            if once.is_first:
                await_only(killer.do(_kill, _pid(connection)))

        await server_desk.write(unit)
    assert (once.runs, (await server_desk.row(it)).attempt_count) == (2, 1)


async def test_connections_killed_while_idle_are_made_anew(session_desk: Desk) -> None:
    it = await session_desk.add()
    pids = set(await asyncio.gather(*(session_desk.read(_pid) for _ in range(4))))
    async with hands(session_desk.url, 1) as (killer,):
        for pid in pids:
            await killer.do(_kill, pid)
    await session_desk.write(_count, it)
    assert (await session_desk.row(it)).attempt_count == 1


async def test_a_server_that_is_not_there_is_unavailable(server_desk: Desk) -> None:
    nowhere = make_url(server_desk.url).set(port=1).render_as_string(hide_password=False)
    async with desks.opened(nowhere) as desk:
        desk.database._world = desks.hurried()
        with pytest.raises(UnavailableError, match="after 8 tries"):
            await desk.write(_count, UUID(int=1))


async def _cycles(number: int) -> None:
    """So many turns of the loop have passed."""
    loop = asyncio.get_running_loop()
    for _ in range(number):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


async def _cancelled(work: Awaitable[Any], after: int) -> None:
    task = asyncio.ensure_future(work)
    await _cycles(after)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_cancelled_callers_leave_no_connection_behind(server_desk: Desk) -> None:
    dice = random.Random(7)
    runner = ServerRunner(server_desk.url, size=4)
    ids = await server_desk.add_all(*({} for _ in range(300)))
    async with desks.opened(server_desk.url, of=runner) as desk:

        async def one(number: int) -> None:
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: desk.write(_count, ids[number]),
                lambda: desk.database.claim(wish(free=1)),
                lambda: desk.read(store.wakes.next_wake, ("webhook",), suspects=True),
                lambda: desk.write(store.deliveries.create, [builders.delivery()], now=NOW),
            ]
            await _cancelled(dice.choice(calls)(), dice.randrange(60))

        for start in range(0, 200, 8):
            await asyncio.gather(*(one(start + number) for number in range(8)))
        while desk.database._under_way:
            await asyncio.wait(desk.database._under_way)
        for _ in range(1_000):
            if runner._engine.pool.checkedout() == 0:  # type: ignore[attr-defined]  # a QueuePool has it
                break
            await _cycles(1)
        assert runner._engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # as above
        count = select(func.count()).select_from(deliveries)
        assert await desk.read(lambda connection: connection.execute(count).scalar_one()) >= 300
        for row in await server_desk.rows(deliveries):
            assert row.attempt_count in {0, 1}


async def test_a_cancelled_caller_does_not_tear_its_write(server_desk: Desk) -> None:
    ids = await server_desk.add_all({}, {})
    begun = asyncio.Event()

    def unit(connection: Connection) -> None:
        _count(connection, ids[0])
        begun.set()
        await_only(_cycles(50))
        _count(connection, ids[1])

    task = asyncio.create_task(server_desk.write(unit))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server_desk.database.close()
    async with desks.opened(server_desk.url) as again:
        assert [(await again.row(one)).attempt_count for one in ids] == [1, 1]
