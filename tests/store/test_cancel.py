"""Cancelling, in each state; and attempts and verdicts as they are read."""

import asyncio

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain.deliveries import FINAL, UNDER_WAY, WAITING, State
from campana.store.deliveries import Cancelled
from tests.store import builders
from tests.store.builders import HOUR, NOW, OTHER_TENANT, SECOND, TENANT
from tests.store.desk import Desk, hands, until_blocked


@pytest.mark.parametrize("state", sorted(WAITING))
async def test_what_waits_ends_at_once(desk: Desk, state: State) -> None:
    waiting = await desk.add(state=state, held_by="all", wake_at=NOW + HOUR)
    assert await desk.write(store.deliveries.cancel, TENANT, waiting, now=NOW + SECOND) is Cancelled.NOW
    row = await desk.row(waiting)
    assert (row.state, row.wake_at, row.held_by, row.finished_at) == (State.CANCELLED, None, None, NOW + SECOND)
    assert (row.reason, row.cancel_requested) == ("cancelled", True)


async def test_who_cancelled_is_on_record_once(desk: Desk) -> None:
    it = await desk.add(fence=3, attempt_count=1, state=State.PENDING_RETRY)
    for _ in range(2):
        await desk.write(store.deliveries.cancel, TENANT, it, now=NOW, actor="key:1")
    (record,) = await desk.read(store.attempts.verdicts_of_delivery, TENANT, it)
    assert (record.fence, record.verdict, record.actor, record.at) == (4, "cancel", "key:1", NOW)
    assert (await desk.row(it)).fence == 4


@pytest.mark.parametrize("state", sorted(UNDER_WAY))
async def test_of_what_is_under_way_it_is_requested(desk: Desk, state: State) -> None:
    busy = await desk.add(state=state)
    before = await desk.row(busy)
    assert await desk.write(store.deliveries.cancel, TENANT, busy, now=NOW) is Cancelled.REQUESTED
    after = await desk.row(busy)
    assert after.cancel_requested
    assert {**after._mapping, "cancel_requested": False} == before._mapping


@pytest.mark.parametrize("state", sorted(FINAL - {State.CANCELLED}))
async def test_what_has_ended_stays_as_it_is(desk: Desk, state: State) -> None:
    ended = await desk.add(state=state)
    before = await desk.row(ended)
    assert await desk.write(store.deliveries.cancel, TENANT, ended, now=NOW) is Cancelled.ALREADY_FINAL
    assert await desk.row(ended) == before


@pytest.mark.parametrize("state", [State.SCHEDULED, State.PROCESSING, State.CANCELLED])
async def test_cancelling_twice_says_the_same_and_changes_nothing_more(desk: Desk, state: State) -> None:
    it = await desk.add(state=state)
    first = await desk.write(store.deliveries.cancel, TENANT, it, now=NOW)
    before = await desk.row(it)
    assert await desk.write(store.deliveries.cancel, TENANT, it, now=NOW + HOUR) is first
    assert await desk.row(it) == before


async def test_another_tenants_delivery_is_unknown(desk: Desk) -> None:
    it = await desk.add()
    before = await desk.row(it)
    assert await desk.write(store.deliveries.cancel, OTHER_TENANT, it, now=NOW) is Cancelled.UNKNOWN
    assert await desk.write(store.deliveries.cancel, TENANT, builders.new_id(), now=NOW) is Cancelled.UNKNOWN
    assert await desk.row(it) == before


async def test_a_cancel_that_meets_a_claim_waits_for_it_and_is_requested(desk: Desk) -> None:
    it = await desk.add()
    async with hands(desk.url, 1) as (claimer,):
        assert (await claimer.do(store.claims.claim, builders.wish())).tickets
        cancelling = asyncio.create_task(desk.write(store.deliveries.cancel, TENANT, it, now=NOW))
        await until_blocked(desk.url)
        await claimer.commit()
    assert await cancelling is Cancelled.REQUESTED
    row = await desk.row(it)
    assert (row.state, row.cancel_requested) == (State.PROCESSING, True)


async def test_a_claim_that_meets_a_cancel_takes_nothing(desk: Desk) -> None:
    it = await desk.add()
    async with hands(desk.url, 1) as (user,):
        assert await user.do(store.deliveries.cancel, TENANT, it, now=NOW) is Cancelled.NOW
        claiming = asyncio.create_task(desk.write(store.claims.claim, builders.wish()))
        if "sqlite" not in desk.url:
            assert (await claiming).tickets == []
        await user.commit()
    assert (await claiming).tickets == []
    assert (await desk.row(it)).state == State.CANCELLED


async def test_attempts_and_verdicts_are_read_by_their_tenant_in_order(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, fence=1)
    later = model.Returned(at=NOW, reason="quiet", held_by="all")
    await desk.write(store.settlements.apply, [builders.withheld(it, transition=later)], now=NOW)
    await desk.write(store.claims.claim, builders.wish())
    await desk.write(store.settlements.apply, [builders.settlement(it, fence=2)], now=NOW)
    (verdict,) = await desk.read(store.attempts.verdicts_of_delivery, TENANT, it)
    assert (verdict.fence, verdict.verdict, verdict.guards, verdict.reason) == (1, "hold", "switches", "quiet")
    (attempt,) = await desk.read(store.attempts.of_delivery, TENANT, it)
    assert (attempt.fence, attempt.outcome, attempt.response_code, attempt.worker) == (2, "delivered", 204, builders.ME)
    assert await desk.read(store.attempts.of_delivery, OTHER_TENANT, it) == []
    assert await desk.read(store.attempts.verdicts_of_delivery, OTHER_TENANT, it) == []
