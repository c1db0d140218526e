"""Timers: leases, callbacks and look-ups whose time is up are ended as the judge says, each once."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain import outcomes, retries
from campana.domain.ambiguity import Contract, OnAmbiguous
from campana.domain.deliveries import Deaths, State
from campana.domain.instants import MICROSECOND
from campana.domain.tickets import Settlement
from campana.store.schema import attempts
from campana.store.settlements import Judge, Locked
from tests.store import builders
from tests.store.builders import HOUR, ME, MINUTE, NOW, SECOND, YOU
from tests.store.desk import Desk, hands, is_file, until_blocked

OVER: dict[str, Any] = {"state": State.PROCESSING, "wake_at": NOW}


def _judge(row: Locked, _last: Locked | None = None) -> Settlement:
    """As the engine does: a lost worker is a death and its attempt is recorded; silence is a verdict on an attempt of before."""
    if row.state == State.IN_PROGRESS:
        return replace(builders.settlement(row.id, fence=row.fence, transition=model.Retried(at=NOW + MINUTE)), attempt=None)
    deaths = Deaths(all=row.crash_count + 1, proven=row.proven_crashes + (row.suspect_fence == row.fence))
    lost = builders.attempt(outcome=outcomes.Ambiguous(error="lost"), number=row.attempt_count + 1, worker=row.lease_owner)
    back = model.judge_lost(_facts(row), deaths, now=NOW)
    return builders.settlement(row.id, fence=row.fence, transition=back, tried=lost, ambiguous_attempts=1, deaths=deaths)


def _facts(row: Locked) -> model.Facts:
    policies = model.Policies(retry=retries.Policy(), on_ambiguous=OnAmbiguous.RETRY)
    contract = Contract(repeatable=True, on_ambiguous=OnAmbiguous.RETRY)
    return model.Facts(attempt_count=row.attempt_count, policies=policies, contract=contract)


async def _reclaim(desk: Desk, *, judge: Judge = _judge, limit: int = 200, sparing: UUID | None = None) -> list[UUID]:
    settled = await desk.write(store.settlements.reclaim, judge, ["webhook"], now=NOW, limit=limit, sparing=sparing)
    return [one.settlement.delivery_id for one in settled]


async def test_a_lease_that_is_over_ends_as_a_death_and_the_row_is_due_again(desk: Desk) -> None:
    it = await desk.add(**OVER, fence=4, attempt_count=1)
    assert await _reclaim(desk) == [it]
    row = await desk.row(it)
    assert (row.state, row.wake_at, row.lease_owner, row.fence) == (State.PENDING_RETRY, NOW, None, 4)
    assert (row.crash_count, row.proven_crashes, row.attempt_count) == (1, 0, 1)
    (lost,) = await desk.rows(attempts)
    assert (lost.fence, lost.outcome, lost.ambiguous, lost.worker, lost.late) == (4, "ambiguous", True, ME, False)


@pytest.mark.parametrize("state", State)
async def test_only_what_is_under_way_has_a_timer(desk: Desk, state: State) -> None:
    it = await desk.add(state=state, wake_at=NOW)
    assert await _reclaim(desk) == ([it] if state in model.UNDER_WAY else [])


@pytest.mark.parametrize(("wake_at", "is_over"), [(NOW, True), (NOW + MICROSECOND, False), (NOW - HOUR, True)], ids=str)
async def test_only_what_is_over_is_ended(desk: Desk, wake_at: Any, *, is_over: bool) -> None:
    await desk.add(state=State.PROCESSING, wake_at=wake_at)
    assert len(await _reclaim(desk)) == is_over


async def test_silence_of_a_provider_is_no_death_and_no_attempt(desk: Desk) -> None:
    it = await desk.add(state=State.IN_PROGRESS, wake_at=NOW, attempt_count=1)
    assert await _reclaim(desk) == [it]
    row = await desk.row(it)
    assert (row.state, row.wake_at, row.attempt_count, row.crash_count) == (State.PENDING_RETRY, NOW + MINUTE, 1, 0)
    assert row.awaiting is None
    assert await desk.rows(attempts) == []


async def test_leases_of_others_are_spared_but_not_their_callbacks(desk: Desk) -> None:
    mine, theirs = await desk.add_all({**OVER, "lease_owner": ME}, {**OVER, "lease_owner": YOU})
    callback = await desk.add(state=State.IN_PROGRESS, wake_at=NOW)
    assert set(await _reclaim(desk, sparing=ME)) == {mine, callback}
    assert (await desk.row(theirs)).state == State.PROCESSING
    assert await _reclaim(desk) == [theirs]


async def test_the_first_to_end_go_first_up_to_the_limit(desk: Desk) -> None:
    made = await desk.add_all(*({**OVER, "wake_at": NOW - seconds * SECOND} for seconds in (1, 3, 2)))
    assert await _reclaim(desk, limit=2) == [made[1], made[2]]
    assert await _reclaim(desk, limit=2) == [made[0]]


async def test_what_was_ended_is_not_ended_again(desk: Desk) -> None:
    await desk.add(**OVER)
    assert len(await _reclaim(desk)) == 1
    assert await _reclaim(desk) == []
    assert len(await desk.rows(attempts)) == 1


@pytest.mark.parametrize(("suspect_fence", "proven"), [(4, 1), (3, 0), (None, 0)])
async def test_a_death_is_proven_only_by_a_start_under_this_fence(desk: Desk, suspect_fence: int | None, proven: int) -> None:
    it = await desk.add(**OVER, fence=4, crash_count=1, suspect_fence=suspect_fence)
    await _reclaim(desk)
    row = await desk.row(it)
    assert (row.crash_count, row.proven_crashes) == (2, proven)


async def test_the_third_proven_death_is_the_last(desk: Desk) -> None:
    it = await desk.add(**OVER, fence=9, crash_count=5, proven_crashes=2, suspect_fence=9)
    await _reclaim(desk)
    row = await desk.row(it)
    assert (row.state, row.reason, row.proven_crashes, row.wake_at) == (State.DEAD_LETTER, "crash_loop", 3, None)


async def test_a_requested_cancel_is_heeded_when_the_lease_ends(desk: Desk) -> None:
    it = await desk.add(**OVER, cancel_requested=True)
    await _reclaim(desk)
    assert (await desk.row(it)).state == State.CANCELLED


async def test_two_at_once_end_different_rows(desk: Desk) -> None:
    made = await desk.add_all(*({**OVER, "wake_at": NOW - (5 - number) * SECOND} for number in range(4)))
    async with hands(desk.url, 1) as (first,):
        mine = await first.do(store.settlements.reclaim, _judge, ["webhook"], now=NOW, limit=2, sparing=None)
        ending = asyncio.create_task(_reclaim(desk, limit=2))
        yours = None if is_file(desk.url) else await ending
        await first.commit()
        yours = yours or await ending
    assert [one.settlement.delivery_id for one in mine] == made[:2]
    assert yours == made[2:]


async def test_a_row_that_is_being_settled_is_passed_over(desk: Desk) -> None:
    it = await desk.add(**OVER)
    async with hands(desk.url, 1) as (worker,):
        await worker.do(store.settlements.apply, [builders.settlement(it)], now=NOW)
        ending = asyncio.create_task(_reclaim(desk))
        if not is_file(desk.url):
            assert await ending == []
        await worker.commit()
    assert await ending == []
    assert (await desk.row(it)).state == State.COMPLETED


async def test_a_settle_that_meets_a_reclaim_comes_late(desk: Desk) -> None:
    it = await desk.add(**OVER)
    async with hands(desk.url, 1) as (reaper,):
        await reaper.do(store.settlements.reclaim, _judge, ["webhook"], now=NOW, limit=9, sparing=None)
        settling = asyncio.create_task(desk.write(store.settlements.apply, [builders.settlement(it)], now=NOW))
        await until_blocked(desk.url)
        await reaper.commit()
    assert len((await settling).late) == 1
    (row,) = await desk.rows(attempts)
    assert (row.outcome, row.late, row.reason) == ("ambiguous", True, "late: delivered")
    assert (await desk.row(it)).state == State.SCHEDULED
