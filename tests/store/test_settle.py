"""Settling: each transition writes its own columns, once, under fence and state."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain import outcomes
from campana.domain.deliveries import Deaths, State
from campana.domain.tickets import Settlement
from campana.store.schema import attempts, verdicts
from campana.store.settlements import Applied
from tests.store.builders import HOUR, ME, MINUTE, NOW, SECOND, TENANT, attempt, new_id, settlement, withheld
from tests.store.desk import Desk

LATER = NOW + HOUR


async def _apply(desk: Desk, *group: Settlement, now: datetime = NOW) -> Applied:
    return await desk.write(store.settlements.apply, group, now=now)


TRANSITIONS: list[tuple[model.Transition, dict[str, Any]]] = [
    (model.Completed(), {"state": State.COMPLETED, "finished_at": NOW}),
    (model.Awaiting(what="callback", until=LATER), {"state": State.IN_PROGRESS, "wake_at": LATER, "awaiting": "callback"}),
    (model.Awaiting(what="lookup", until=LATER), {"state": State.IN_PROGRESS, "wake_at": LATER, "awaiting": "lookup"}),
    (model.Retried(at=LATER), {"state": State.PENDING_RETRY, "wake_at": LATER}),
    (model.Buried(reason="exhausted"), {"state": State.DEAD_LETTER, "finished_at": NOW, "reason": "exhausted"}),
    (model.Declined(), {"state": State.DECLINED, "finished_at": NOW}),
    (model.Skipped(reason="expired"), {"state": State.SKIPPED, "finished_at": NOW, "reason": "expired"}),
    (model.Cancelled(reason="cancelled"), {"state": State.CANCELLED, "finished_at": NOW, "reason": "cancelled"}),
    (model.Returned(at=LATER, reason="quiet"), {"state": State.PENDING_RETRY, "wake_at": LATER, "reason": "quiet"}),
]


@pytest.mark.parametrize(("transition", "columns"), TRANSITIONS, ids=lambda value: type(value).__name__)
async def test_each_transition_writes_its_columns(desk: Desk, transition: model.Transition, columns: dict[str, Any]) -> None:
    it = await desk.add(state=State.PROCESSING, fence=3, suspect_fence=2, crash_count=1)
    before = await desk.row(it)
    applied = await _apply(desk, settlement(it, fence=3, transition=transition, key_number=2, ambiguous_attempts=1))
    empty = dict.fromkeys(("wake_at", "lease_owner", "run_until", "held_by", "awaiting", "reason", "finished_at"))
    counted = {"attempt_count": 1, "key_number": 2, "ambiguous_attempts": 1, "last_error": None}
    assert (await desk.row(it))._mapping == {**before._mapping, **empty, **counted, **columns}
    (settled,) = applied.settled
    assert (settled.state, settled.transition, applied.late) == (columns["state"], transition, [])


@pytest.mark.parametrize(("attempt_count", "state"), [(0, State.SCHEDULED), (2, State.PENDING_RETRY)])
async def test_what_was_not_tried_goes_back_to_where_it_waited(desk: Desk, attempt_count: int, state: State) -> None:
    it = await desk.add(state=State.PROCESSING, attempt_count=attempt_count, key_number=2)
    back = model.Returned(at=LATER, reason="switched_off", held_by="tenant:x")
    applied = await _apply(desk, withheld(it, transition=back))
    row = await desk.row(it)
    assert (row.state, row.wake_at, row.held_by, row.attempt_count) == (state, LATER, "tenant:x", attempt_count)
    assert applied.settled[0].state is state
    (verdict,) = await desk.rows(verdicts)
    assert (verdict.delivery_id, verdict.fence, verdict.tenant_id) == (it, 1, TENANT)
    assert (verdict.reason, verdict.until, verdict.at) == ("switched_off", LATER, NOW)
    assert await desk.rows(attempts) == []


async def test_a_parked_row_wakes_no_later_than_it_expires(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, expires_at=NOW + MINUTE)
    applied = await _apply(desk, withheld(it, transition=model.Returned(at=LATER, reason="off")))
    assert (await desk.row(it)).wake_at == NOW + MINUTE
    assert applied.settled[0].transition == model.Returned(at=NOW + MINUTE, reason="off")


async def test_an_attempt_is_recorded_with_all_its_evidence(desk: Desk) -> None:
    answer = outcomes.Answer(
        code=503,
        headers=(("Retry-After", "5"), ("X-Name", "😀")),
        body="down 😀",
        provider="twilio",
        provider_call_id="CA1",
        cost=Decimal("0.0075"),
    )
    it = await desk.add(state=State.PROCESSING, attempt_count=1)
    failed = outcomes.Failed(error="503 😀", ambiguous=True, answer=answer)
    tried = attempt(outcome=failed, number=2, key_number=2, finished_at=NOW + SECOND)
    await _apply(desk, settlement(it, transition=model.Retried(at=LATER), tried=tried))
    (row,) = await desk.rows(attempts)
    assert (row.delivery_id, row.fence, row.tenant_id, row.generation) == (it, 1, TENANT, 1)
    assert (row.number, row.key_number, row.started_at, row.finished_at) == (2, 2, NOW, NOW + SECOND)
    assert (row.outcome, row.ambiguous, row.late, row.error, row.worker) == ("failed", True, False, "503 😀", ME)
    assert (row.response_code, row.response_body, row.provider) == (503, "down 😀", "twilio")
    assert (row.response_headers, row.cost) == ('[["Retry-After","5"],["X-Name","😀"]]', "0.0075")
    assert (row.provider_call_id, row.guards) == ("CA1", "switches,expired")
    delivery = await desk.row(it)
    assert (delivery.last_error, delivery.provider_call_id, delivery.attempt_count) == ("503 😀", "CA1", 2)


async def test_a_long_error_is_kept_as_far_as_it_fits(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING)
    tried = attempt(outcome=outcomes.Failed(error="😀" * 3_000))
    await _apply(desk, settlement(it, transition=model.Retried(at=LATER), tried=tried))
    assert (await desk.row(it)).last_error == "😀" * 2_000
    assert [row.error for row in await desk.rows(attempts)] == ["😀" * 2_000]


async def test_a_provider_id_stays_when_a_later_attempt_has_none(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, provider_call_id="CA1", attempt_count=1)
    await _apply(desk, settlement(it))
    assert (await desk.row(it)).provider_call_id == "CA1"


async def test_a_lost_worker_is_counted_as_a_death_and_not_as_an_attempt(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, attempt_count=1, key_number=2, crash_count=1)
    lost = attempt(outcome=outcomes.Ambiguous(error="the worker died"), number=2, key_number=2)
    back = model.Returned(at=NOW, reason="worker_lost")
    deaths = Deaths(all=2, proven=1)
    await _apply(desk, settlement(it, transition=back, tried=lost, key_number=9, ambiguous_attempts=1, deaths=deaths))
    row = await desk.row(it)
    assert (row.attempt_count, row.key_number, row.crash_count, row.proven_crashes) == (1, 2, 2, 1)
    assert (row.state, row.ambiguous_attempts) == (State.PENDING_RETRY, 1)
    assert [one.outcome for one in await desk.rows(attempts)] == ["ambiguous"]


HEEDED = [
    (model.Retried(at=LATER), State.CANCELLED),
    (model.Returned(at=LATER, reason="off"), State.CANCELLED),
    (model.Completed(), State.COMPLETED),
    (model.Awaiting(what="callback", until=LATER), State.IN_PROGRESS),
    (model.Buried(reason="permanent"), State.DEAD_LETTER),
    (model.Declined(), State.DECLINED),
    (model.Skipped(reason="expired"), State.SKIPPED),
]


@pytest.mark.parametrize(("transition", "state"), HEEDED, ids=lambda value: type(value).__name__)
async def test_a_cancel_requested_meanwhile_lets_the_outcome_stand_and_no_retry_follow(
    desk: Desk, transition: model.Transition, state: State
) -> None:
    it = await desk.add(state=State.PROCESSING, cancel_requested=True)
    applied = await _apply(desk, settlement(it, transition=transition))
    assert applied.settled[0].state is state
    row = await desk.row(it)
    assert (row.state, row.finished_at is None) == (state, state is State.IN_PROGRESS)
    assert len(await desk.rows(attempts)) == 1


async def test_a_group_settles_each_by_its_own(desk: Desk) -> None:
    made = await desk.add_all(*({"state": State.PROCESSING, "attempt_count": number % 3} for number in range(30)))
    kinds: list[model.Transition] = [model.Completed(), model.Retried(at=LATER), model.Buried(reason="exhausted")]
    group = [settlement(one, transition=kinds[number % 3]) for number, one in enumerate(made)]
    applied = await _apply(desk, *group[::-1])
    assert {settled.settlement.delivery_id for settled in applied.settled} == set(made)
    states = (State.COMPLETED, State.PENDING_RETRY, State.DEAD_LETTER)
    for number, one in enumerate(made):
        row = await desk.row(one)
        assert (row.state, row.attempt_count) == (states[number % 3], number % 3 + 1)
    assert len(await desk.rows(attempts)) == 30


async def test_neighbours_are_left_alone(desk: Desk) -> None:
    it, neighbour = await desk.add_all({"state": State.PROCESSING}, {"state": State.PROCESSING})
    before = await desk.row(neighbour)
    await _apply(desk, settlement(it))
    assert await desk.row(neighbour) == before


async def test_an_empty_group_changes_nothing(desk: Desk) -> None:
    assert await _apply(desk) == Applied(settled=[], late=[])


async def test_a_row_that_is_gone_is_late_and_leaves_nothing(desk: Desk) -> None:
    gone = settlement(new_id())
    assert (await _apply(desk, gone)).late == [gone]
    assert await desk.rows(attempts) == []
