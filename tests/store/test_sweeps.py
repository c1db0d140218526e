"""The record of sweeps: who may run one, when, and that one who lost the lease writes nothing more."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Row

from campana import store
from campana.store import sweeps
from campana.store.retention import Swept
from campana.store.sweeps import Sweep
from tests.store.builders import HOUR, ME, NOW, SECOND, YOU, new_id
from tests.store.desk import Desk, hands, until_blocked

LENGTH = 60 * SECOND
KEEP = timedelta(days=90)
PAST = new_id()


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A sweep that notes where it was asked to go on."""
    seen: list[Any] = []

    def work(connection: Any, *, now: datetime, keep: timedelta, limit: int, past: Any) -> Swept:
        seen.append((keep, limit, past))
        return Swept(3, PAST, more=True)

    monkeypatch.setitem(sweeps.SWEEPS, "probe", Sweep(name="probe", what="a test", period=HOUR, work=work, page=7))
    return seen


async def _begin(desk: Desk, me: Any = ME, *, now: datetime = NOW, is_asked: bool = False) -> int | None:
    return await desk.write(store.sweeps.begin, "probe", me, now=now, length=LENGTH, is_asked=is_asked)


async def _turn(desk: Desk, fence: int, me: Any = ME, *, now: datetime = NOW) -> Swept | None:
    return await desk.write(store.sweeps.turn, "probe", me, fence, now=now, length=LENGTH, keep=KEEP)


async def _end(desk: Desk, fence: int, me: Any = ME, *, now: datetime = NOW, error: str | None = None) -> bool:
    return await desk.write(store.sweeps.end, "probe", me, fence, now=now, next_at=now + HOUR, error=error)


async def _record(desk: Desk) -> Row[Any]:
    return (await desk.read(store.sweeps.every))["probe"]


async def test_a_sweep_is_begun_worked_page_by_page_and_ended(desk: Desk, probe: list[Any]) -> None:
    assert await desk.read(store.sweeps.due, ["probe"], now=NOW) == ["probe"]
    assert await _begin(desk) == 1
    assert [await _turn(desk, 1), await _turn(desk, 1)] == [Swept(3, PAST, more=True)] * 2
    assert probe == [(KEEP, 7, None), (KEEP, 7, PAST)]
    record = await _record(desk)
    assert (record.started_at, record.finished_at, record.done, record.past) == (NOW, None, 6, PAST)
    assert await _end(desk, 1, now=NOW + SECOND)
    record = await _record(desk)
    assert (record.finished_at, record.next_at, record.error) == (NOW + SECOND, NOW + SECOND + HOUR, None)


async def test_it_is_due_again_after_its_period_and_before_that_if_asked_for(desk: Desk) -> None:
    await _begin(desk)
    await _end(desk, 1)
    assert await desk.read(store.sweeps.due, ["probe", "other"], now=NOW + HOUR - SECOND) == ["other"]
    assert await _begin(desk, YOU, now=NOW + SECOND) is None
    assert await _begin(desk, ME, now=NOW + SECOND, is_asked=True)
    await _end(desk, 3)
    assert await desk.read(store.sweeps.due, ["probe"], now=NOW + HOUR) == ["probe"]


async def test_what_went_wrong_is_on_record_until_the_next_time(desk: Desk) -> None:
    await _begin(desk)
    await _end(desk, 1, error="e" * 600)
    assert (await _record(desk)).error == "e" * 500
    await _begin(desk, now=NOW + HOUR)
    record = await _record(desk)
    assert (record.error, record.done, record.finished_at) == (None, 0, None)


async def test_while_one_runs_it_nobody_else_does_even_if_asked_to(desk: Desk) -> None:
    await _begin(desk)
    assert await _begin(desk, YOU, is_asked=True) is None
    assert await _begin(desk, YOU, now=NOW + LENGTH + SECOND) == 2


async def test_one_who_outlasts_the_lease_and_lost_it_changes_nothing(desk: Desk, probe: list[Any]) -> None:
    later = NOW + LENGTH + SECOND
    await _begin(desk)
    await _begin(desk, YOU, now=later)
    assert await _turn(desk, 1, now=later) is None
    assert not await _end(desk, 1, now=later, error="mine")
    await _turn(desk, 2, YOU, now=later)
    await _end(desk, 2, YOU, now=later)
    assert await _turn(desk, 1, now=later) is None, "and does not take it again, though it is free"
    assert await _begin(desk, YOU, now=later, is_asked=True)
    record = await _record(desk)
    assert (record.error, len(probe)) == (None, 1)


async def test_one_who_outlasts_the_lease_while_nobody_wants_it_goes_on(desk: Desk) -> None:
    await _begin(desk)
    assert await _turn(desk, 1, now=NOW + 10 * LENGTH)


async def test_of_two_that_begin_at_once_one_does(desk: Desk) -> None:
    async with hands(desk.url, 1) as (first,):
        assert await first.do(store.sweeps.begin, "probe", YOU, now=NOW, length=LENGTH) == 1
        second = asyncio.create_task(_begin(desk))
        await until_blocked(desk.url)
        await first.commit()
    assert await second is None


@pytest.mark.parametrize("name", sorted(store.sweeps.SWEEPS.keys() - {"probe"}))
async def test_every_sweep_that_there_is_comes_to_its_end_on_an_empty_database(desk: Desk, name: str) -> None:
    fence = await desk.write(store.sweeps.begin, name, ME, now=NOW, length=LENGTH)
    assert fence is not None
    swept = await desk.write(store.sweeps.turn, name, ME, fence, now=NOW, length=LENGTH, keep=KEEP)
    assert swept == Swept(0, None, more=False)
