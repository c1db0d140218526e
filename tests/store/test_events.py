"""The outbox: each change of a state is told once, in the transaction of the change."""

import json
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain import events as told
from campana.domain import outcomes
from campana.domain.deliveries import State
from campana.domain.tickets import Settlement
from campana.store.events import NewEvent
from campana.store.schema import events
from tests.store.builders import HOUR, NOW, SECOND, TENANT, attempt, delivery, new_id, settlement, withheld
from tests.store.desk import Desk, hand

LATER = NOW + HOUR
FAILED = attempt(outcome=outcomes.Failed(error="no"))


async def _events(desk: Desk) -> list[tuple[UUID | None, str, dict[str, Any]]]:
    rows = await desk.rows(events)
    assert all(row.number is None and row.tenant_id == TENANT and row.at == NOW for row in rows)
    return [(row.delivery_id, row.kind, json.loads(row.data)) for row in rows]


TRANSITIONS: list[tuple[model.Transition, str, dict[str, Any]]] = [
    (model.Completed(), "delivery.completed", {}),
    (model.Awaiting(what="callback", until=LATER), "delivery.accepted", {}),
    (model.Retried(at=LATER), "delivery.retry", {}),
    (model.Buried(reason="exhausted"), "delivery.dead_letter", {"reason": "exhausted"}),
    (model.Declined(), "delivery.declined", {}),
    (model.Skipped(reason="expired"), "delivery.skipped", {"reason": "expired"}),
    (model.Cancelled(reason="cancelled"), "delivery.cancelled", {"reason": "cancelled"}),
    (model.Returned(at=LATER, reason="quiet"), "delivery.retry", {"reason": "quiet"}),
]


@pytest.mark.parametrize(("transition", "kind", "more"), TRANSITIONS, ids=lambda value: type(value).__name__)
async def test_each_end_of_a_claim_is_told_once(
    desk: Desk, transition: model.Transition, kind: str, more: dict[str, Any]
) -> None:
    it = await desk.add(state=State.PROCESSING, fence=3)
    one = settlement(it, fence=3, transition=transition, tried=FAILED)
    for _ in range(2):
        await desk.write(store.settlements.apply, [one], now=NOW)
    state = State((await desk.row(it)).state).word
    assert await _events(desk) == [(it, kind, {"state": state, "fence": 3, "attempt": 1, "outcome": "failed", **more})]
    assert kind in told.KINDS


async def test_a_group_is_told_whole(desk: Desk) -> None:
    made = await desk.add_all(*({"state": State.PROCESSING, "fence": 1} for _ in range(3)))
    back = model.Returned(at=LATER, reason="switched_off", held_by="tenant:x")
    group = [settlement(made[0]), withheld(made[1], transition=back), settlement(made[2], tried=FAILED)]
    await desk.write(store.settlements.apply, group, now=NOW)
    found = {it: (kind, said) for it, kind, said in await _events(desk)}
    assert found == {
        made[0]: ("delivery.completed", {"state": "completed", "fence": 1, "attempt": 1, "outcome": "delivered"}),
        made[1]: ("delivery.deferred", {"state": "scheduled", "fence": 1, "reason": "switched_off"}),
        made[2]: ("delivery.completed", {"state": "completed", "fence": 1, "attempt": 1, "outcome": "failed"}),
    }


async def test_what_came_too_late_is_no_event(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, fence=2)
    await desk.write(store.settlements.apply, [settlement(it, fence=1)], now=NOW)
    assert await _events(desk) == []


async def test_a_look_up_that_changes_nothing_is_no_event(desk: Desk) -> None:
    it = await desk.add(state=State.IN_PROGRESS, fence=2, awaiting="lookup")
    again = model.Awaiting(what="lookup", until=LATER, since=NOW)
    unsure = withheld(it, fence=2, transition=again)
    its = {name: getattr(unsure, name) for name in Settlement.__slots__} | {"begins": State.IN_PROGRESS}
    await desk.write(store.settlements.apply, [Settlement(**its)], now=NOW)
    assert await _events(desk) == []


async def test_a_lost_claim_is_told(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, fence=4, wake_at=NOW - SECOND)

    def lost(row: Any, last: Any) -> Settlement:
        return withheld(row.id, fence=row.fence, transition=model.Returned(at=NOW, reason="worker_lost"))

    await desk.write(store.settlements.reclaim, lost, ["webhook"], now=NOW, limit=10, sparing=None)
    assert await _events(desk) == [(it, "delivery.deferred", {"state": "scheduled", "fence": 4, "reason": "worker_lost"})]


async def test_what_is_taken_in_is_told_once_and_a_duplicate_never(desk: Desk) -> None:
    first, second, third = delivery(dedupe_key="a"), delivery(dedupe_key="a"), delivery()
    for batch in ([first], [second, third], [first], [second, third], [second]):
        await desk.write(store.deliveries.create, batch, now=NOW)
    found = {"state": "scheduled", "fence": 0}
    assert await _events(desk) == [(first.id, "delivery.scheduled", found), (third.id, "delivery.scheduled", found)]


async def test_a_large_batch_is_told_whole(desk: Desk) -> None:
    batch = [delivery() for _ in range(1_200)]
    for _ in range(2):
        await desk.write(store.deliveries.create, batch, now=NOW)
    assert [it for it, _, _ in await _events(desk)] == [one.id for one in batch]


async def test_a_cancel_is_told_under_its_own_fence_when_it_ends_the_delivery(desk: Desk) -> None:
    waits, runs = await desk.add(fence=2), await desk.add(state=State.PROCESSING)
    for it in (waits, runs, waits, runs):
        await desk.write(store.deliveries.cancel, TENANT, it, now=NOW)
    assert await _events(desk) == [(waits, "delivery.cancelled", {"state": "cancelled", "fence": 3, "reason": "cancelled"})]


async def test_an_event_lives_and_dies_with_its_change(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, fence=1)
    one = await hand(desk.url)
    await one.do(store.settlements.apply, [settlement(it)], now=NOW)
    await one.rollback()
    await one.close()
    assert await _events(desk) == []
    assert (await desk.row(it)).state == State.PROCESSING


async def test_events_of_other_things_say_what_they_say(desk: Desk) -> None:
    it = new_id()
    off = NewEvent(tenant_id=TENANT, kind="switch.changed", at=NOW, data={"scope": "all 😀"})
    bare = NewEvent(tenant_id=TENANT, kind="x", at=NOW, delivery_id=it)
    await desk.write(store.events.write, [])
    await desk.write(store.events.write, [off, bare])
    found = [(row.kind, row.delivery_id, row.data) for row in await desk.rows(events)]
    assert found == [("switch.changed", None, '{"scope":"all 😀"}'), ("x", it, None)]
