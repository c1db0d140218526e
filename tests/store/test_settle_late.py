"""Settlements that lost their claim, and those that are written twice: evidence that changes nothing."""

import asyncio
from typing import Any

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain import outcomes
from campana.domain.deliveries import State
from campana.domain.tickets import Settlement
from campana.store.schema import attempts, verdicts
from campana.store.settlements import Applied
from tests.store.builders import HOUR, ME, NOW, SECOND, YOU, attempt, settlement, wish, withheld
from tests.store.desk import Desk, hands, until_blocked

LATER = NOW + HOUR
RETURNED = model.Returned(at=LATER, reason="off", held_by="all")


async def _apply(desk: Desk, *group: Settlement) -> Applied:
    return await desk.write(store.settlements.apply, group, now=NOW)


LOST: list[dict[str, Any]] = [
    {"fence": 2},
    {"fence": 4},
    *({"fence": 3, "state": state} for state in State if state is not State.PROCESSING),
]


@pytest.mark.parametrize("column", LOST, ids=str)
async def test_a_wrong_fence_or_state_changes_nothing_and_is_kept_as_evidence(desk: Desk, column: dict[str, Any]) -> None:
    it = await desk.add(**{"state": State.PROCESSING, **column})
    before = await desk.row(it)
    mine = settlement(it, fence=3)
    applied = await _apply(desk, mine)
    assert (applied.settled, applied.late) == ([], [mine])
    assert await desk.row(it) == before
    (row,) = await desk.rows(attempts)
    assert (row.fence, row.late, row.outcome, row.response_code) == (3, True, "delivered", 204)


async def test_a_late_verdict_leaves_nothing(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, fence=4)
    assert len((await _apply(desk, withheld(it, fence=3, transition=RETURNED))).late) == 1
    assert await desk.rows(verdicts) == []
    assert await desk.rows(attempts) == []


async def test_a_late_attempt_beside_a_good_one_changes_only_its_own(desk: Desk) -> None:
    good, lost = await desk.add_all({"state": State.PROCESSING}, {"state": State.PROCESSING, "fence": 2})
    applied = await _apply(desk, settlement(lost), settlement(good))
    assert [settled.settlement.delivery_id for settled in applied.settled] == [good]
    assert [late.delivery_id for late in applied.late] == [lost]
    assert {row.delivery_id: row.late for row in await desk.rows(attempts)} == {good: False, lost: True}


async def test_a_late_answer_is_shown_beside_the_verdict_of_who_ended_the_lease(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING)
    lost = attempt(outcome=outcomes.Ambiguous(error="the worker died"), finished_at=NOW + HOUR)
    back = model.Returned(at=NOW, reason="worker_lost")
    await _apply(desk, settlement(it, transition=back, tried=lost, deaths=model.Deaths(all=1)))
    before = await desk.row(it)
    answer = outcomes.Answer(code=200, headers=(("X", "1"),), body="done")
    mine = settlement(it, tried=attempt(outcome=outcomes.Delivered(answer=answer)))
    for _ in range(2):
        assert (await _apply(desk, mine)).late == [mine]
        (row,) = await desk.rows(attempts)
        assert (row.outcome, row.ambiguous, row.late, row.reason) == ("ambiguous", True, True, "late: delivered")
        assert (row.response_code, row.response_headers, row.response_body) == (200, '[["X","1"]]', "done")
    assert await desk.row(it) == before


KINDS: list[model.Transition] = [
    model.Completed(),
    model.Awaiting(what="callback", until=LATER),
    model.Retried(at=LATER),
    model.Buried(reason="exhausted"),
    model.Declined(),
    model.Skipped(reason="expired"),
    model.Cancelled(reason="cancelled"),
    RETURNED,
]


@pytest.mark.parametrize("transition", KINDS, ids=lambda value: type(value).__name__)
async def test_a_settlement_written_twice_gives_one_answer_and_one_attempt(desk: Desk, transition: model.Transition) -> None:
    it = await desk.add(state=State.PROCESSING)
    group = [settlement(it, transition=transition)]
    first = await _apply(desk, *group)
    before, recorded = await desk.row(it), await desk.rows(attempts)
    assert await _apply(desk, *group) == first
    assert await desk.row(it) == before
    assert await desk.rows(attempts) == recorded


@pytest.mark.parametrize("transition", [RETURNED, model.Skipped(reason="expired")], ids=lambda value: type(value).__name__)
async def test_a_verdict_written_twice_gives_one_answer_and_one_row(desk: Desk, transition: model.Transition) -> None:
    it = await desk.add(state=State.PROCESSING)
    group = [withheld(it, transition=transition)]
    first = await _apply(desk, *group)
    recorded = await desk.rows(verdicts)
    assert await _apply(desk, *group) == first
    assert await desk.rows(verdicts) == recorded


async def test_a_mixed_group_written_twice_says_the_same_twice(desk: Desk) -> None:
    one, two, three, four = await desk.add_all(
        {"state": State.PROCESSING},
        {"state": State.PROCESSING, "cancel_requested": True},
        {"state": State.PROCESSING, "fence": 2},
        {"state": State.PROCESSING},
    )
    group = [
        settlement(one),
        settlement(two, transition=model.Retried(at=LATER)),
        settlement(three),
        withheld(four, transition=RETURNED),
    ]
    first, second = await _apply(desk, *group), await _apply(desk, *group)
    assert [(s.settlement.delivery_id, s.state) for s in first.settled] == [
        (one, State.COMPLETED),
        (two, State.CANCELLED),
        (four, State.SCHEDULED),
    ]
    assert second.late == first.late == [group[2]]
    assert second.settled == first.settled
    assert len(await desk.rows(attempts)) == 3


async def test_a_settlement_is_known_again_when_the_row_has_gone_on_since(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING)
    mine = settlement(it, transition=model.Retried(at=NOW))
    await _apply(desk, mine)
    await desk.database.claim(wish(me=YOU))
    before = await desk.row(it)
    again = await _apply(desk, mine)
    (settled,) = again.settled
    assert (settled.state, settled.transition, again.late) == (State.PENDING_RETRY, model.Retried(at=NOW), [])
    assert await desk.row(it) == before
    assert len(await desk.rows(attempts)) == 1


async def test_another_workers_attempt_under_the_same_fence_is_not_mistaken_for_mine(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING)
    await _apply(desk, settlement(it, tried=attempt(worker=YOU)))
    for other in (attempt(worker=ME), attempt(worker=YOU, finished_at=NOW + 2 * SECOND)):
        assert (await _apply(desk, settlement(it, tried=other))).settled == []


async def test_two_groups_with_the_same_rows_in_opposite_order_wait_for_each_other_and_one_wins(desk: Desk) -> None:
    made = await desk.add_all(*({"state": State.PROCESSING} for _ in range(20)))
    mine = [settlement(one, tried=attempt(worker=ME)) for one in made]
    yours = [settlement(one, tried=attempt(worker=YOU)) for one in reversed(made)]
    async with hands(desk.url, 1) as (me,):
        assert len((await me.do(store.settlements.apply, mine, now=NOW)).settled) == 20
        waiting = asyncio.create_task(_apply(desk, *yours))
        await until_blocked(desk.url)
        await me.commit()
    assert len((await waiting).late) == 20
    assert desk.telemetry.counts["store.retry"] == 0
    assert {row.worker for row in await desk.rows(attempts)} == {ME}
