"""What is taken away, what stays, and that nobody waits for it."""

from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, update

from campana import store
from campana.domain.deliveries import FINAL, State
from campana.store import retention
from campana.store.events import NewEvent
from campana.store.retention import Swept
from campana.store.schema import attempts, deliveries, events, ledger, operations, verdicts
from campana.world import uuid7
from tests.store.builders import HOUR, NOW, OTHER_TENANT, PROJECT, SECOND, TENANT, delivery, settlement, wish
from tests.store.desk import Desk, execute, hands

KEEP = timedelta(days=90)
LONG_AGO = NOW - KEEP - SECOND
_noise = count()


def _id(at: datetime) -> UUID:
    return uuid7(int(at.timestamp() * 1_000) << 12, next(_noise))


async def _sweep(desk: Desk, work: Any, *, limit: int = 100, past: UUID | None = None, keep: timedelta = KEEP) -> Swept:
    return await desk.write(work, now=NOW, keep=keep, limit=limit, past=past)


async def _ended(desk: Desk, *, finished_at: datetime = LONG_AGO, made_at: datetime | None = None, **others: Any) -> UUID:
    said = {"state": State.COMPLETED, "wake_at": None, "finished_at": finished_at, **others}
    return await desk.add(id=_id(made_at or finished_at - HOUR), **said)


async def _left(desk: Desk) -> set[UUID]:
    return {row.id for row in await desk.rows(deliveries)}


@pytest.mark.parametrize("state", sorted(FINAL))
async def test_what_ended_too_long_ago_goes_with_its_story(desk: Desk, state: State) -> None:
    made_at = LONG_AGO - HOUR
    old, young = [await desk.add(id=_id(made_at), state=State.PROCESSING, fence=2) for _ in range(2)]
    for it in (old, young):
        await desk.write(store.settlements.apply, [settlement(it, fence=2)], now=NOW)
        said = {"delivery_id": it, "fence": 1, "tenant_id": TENANT, "at": NOW, "guards": "", "verdict": "hold", "reason": ""}
        await desk.write(execute, insert(verdicts), [said])
    await desk.write(execute, update(deliveries).values(state=int(state), finished_at=NOW - KEEP))
    await desk.write(execute, update(deliveries).where(deliveries.c.id == old).values(finished_at=LONG_AGO))
    assert (await _sweep(desk, retention.ended)).rows == 1
    assert await _left(desk) == {young}
    assert [row.delivery_id for table in (attempts, verdicts) for row in await desk.rows(table)] == [young, young]


@pytest.mark.parametrize("state", sorted(set(State) - FINAL))
async def test_what_lives_stays_however_old_it_is(desk: Desk, state: State) -> None:
    it = await desk.add(id=_id(NOW - 4 * KEEP), state=state)
    assert (await _sweep(desk, retention.ended)).rows == 0
    assert await _left(desk) == {it}


async def test_a_walk_goes_on_where_the_page_before_it_ended(desk: Desk) -> None:
    made_at = LONG_AGO - HOUR
    old = [await _ended(desk, made_at=made_at + number * SECOND) for number in range(3)]
    lives = [await desk.add(id=_id(made_at + (number + 0.5) * SECOND)) for number in range(3)]
    await _ended(desk, finished_at=NOW, made_at=NOW - HOUR)
    first = await _sweep(desk, retention.ended, limit=4)
    assert first == Swept(2, lives[1], more=True)
    second = await _sweep(desk, retention.ended, limit=4, past=first.past)
    assert second == Swept(1, None, more=False)
    assert set(old) & await _left(desk) == set()
    assert set(lives) <= await _left(desk)


async def test_a_dedupe_key_is_free_again_with_its_delivery(desk: Desk) -> None:
    await _ended(desk, dedupe_key="a", tenant_id=TENANT)
    again = delivery(dedupe_key="a")
    (made,) = await desk.write(store.deliveries.create, [again], now=NOW)
    assert made.deduplicated
    await _sweep(desk, retention.ended)
    (made,) = await desk.write(store.deliveries.create, [again], now=NOW)
    assert not made.deduplicated


async def test_claims_and_settles_do_not_wait_for_it(desk: Desk) -> None:
    await _ended(desk)
    due = await desk.add(id=_id(LONG_AGO), wake_at=NOW)
    held = await desk.add(id=_id(LONG_AGO), state=State.PROCESSING, fence=1)
    if "sqlite" in desk.url:
        return  # one writer: they wait for each transaction, and each is short
    async with hands(desk.url, 1) as (sweeper,):
        assert (await sweeper.do(retention.ended, now=NOW, keep=KEEP, limit=100, past=None)).rows == 1
        claimed = await desk.database.claim(wish())
        assert [ticket.id for ticket in claimed.tickets] == [due]
        applied = await desk.write(store.settlements.apply, [settlement(held)], now=NOW)
        assert len(applied.settled) == 1
        await sweeper.commit()


async def test_old_events_go_and_numbers_go_on(desk: Desk) -> None:
    def event(at: datetime, kind: str) -> NewEvent:
        return NewEvent(tenant_id=OTHER_TENANT, kind=kind, at=at)

    async def number() -> None:
        await desk.write(store.relay.number, _id(NOW), now=NOW, length=timedelta(0), limit=100)

    await desk.write(store.events.write, [event(LONG_AGO, "a"), event(LONG_AGO, "b"), event(NOW - KEEP, "young")])
    await number()
    await desk.write(store.events.write, [event(LONG_AGO, "nobody has seen it yet")])
    assert await _sweep(desk, retention.told, limit=1) == Swept(1, more=True)
    assert await _sweep(desk, retention.told, limit=10) == Swept(1, more=False)
    await number()
    assert [(row.number, row.kind) for row in await desk.rows(events)] == [(3, "young"), (4, "nobody has seen it yet")]


async def test_only_claims_whose_lease_ended_long_ago_leave_the_ledger(desk: Desk) -> None:
    rows: dict[str, dict[str, Any]] = {
        "lapsed": {"held_until": NOW - retention.SPARED - SECOND},
        "late": {"held_until": NOW - SECOND},
        "held": {"held_until": NOW + HOUR},
        "by a delivery": {"delivery_id": _id(LONG_AGO)},
        "sent": {"sent_at": LONG_AGO},
    }
    key = {"tenant_id": TENANT, "entity_type": "MEETING", "reminder_type": "24h", "user_id": "u"}
    every = [
        {"id": _id(LONG_AGO), "entity_id": name, "claimed_at": LONG_AGO, **key, **dict.fromkeys(_HELD), **said}
        for name, said in rows.items()
    ]
    await desk.write(execute, insert(ledger), every)
    assert (await _sweep(desk, retention.lapsed)).rows == 1
    assert {row.entity_id for row in await desk.rows(ledger)} == rows.keys() - {"lapsed"}


_HELD = ("held_until", "sent_at", "delivery_id")


async def test_operations_go_when_they_ended_long_ago(desk: Desk) -> None:
    same = {"tenant_id": TENANT, "project_id": PROJECT, "kind": "redrive", "filter": "{}", "actor": "a", "done": 0, "failed": 0}
    ends = {"old": LONG_AGO, "young": NOW - KEEP, "under way": None}
    every = [
        {"id": _id(LONG_AGO), "status": name, "created_at": LONG_AGO, "finished_at": at, **same} for name, at in ends.items()
    ]
    await desk.write(execute, insert(operations), every)
    assert (await _sweep(desk, retention.done)).rows == 1
    assert {row.status for row in await desk.rows(operations)} == {"young", "under way"}
