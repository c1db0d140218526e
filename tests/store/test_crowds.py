"""Crowds: due rows for receivers to which nothing can go now are put off many at a time, and nothing else is touched."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.store.crowds import Waiting
from tests.store.builders import HOUR, NOW, OTHER_TENANT, SECOND, TENANT
from tests.store.desk import Desk, hands

TARGET = '{"url":"http://down.test/"}'
DOWN: dict[str, Any] = {"target": TARGET}


def all_of(target: str = TARGET, *, at: datetime = NOW + SECOND, step: timedelta = timedelta(0)) -> Any:
    def choose(rows: Sequence[Waiting]) -> list[tuple[UUID, datetime, str]]:
        mine = [row for row in rows if row.target == target]
        return [(row.id, at + step * number, "breaker_open") for number, row in enumerate(mine)]

    return choose


async def _put_off(desk: Desk, choose: Any, *, limit: int = 100, queue: str = "webhook", floor: datetime = NOW - HOUR) -> int:
    return await desk.write(store.crowds.put_off, queue, choose, now=NOW, floor=floor, limit=limit)


@pytest.mark.parametrize("state", [State.SCHEDULED, State.PENDING_RETRY])
async def test_what_is_chosen_is_looked_at_later_for_a_reason_and_nothing_else_of_it_changes(desk: Desk, state: State) -> None:
    tried = {"state": state, "attempt_count": 2, "slot_at": NOW, "fence": 7}
    it, other = await desk.add(**DOWN, **tried), await desk.add(target="{}", **tried)
    before, left = await desk.row(it), await desk.row(other)
    assert await _put_off(desk, all_of()) == 1
    changed = {"wake_at": NOW + SECOND, "reason": "breaker_open", "slot_at": None}
    assert (await desk.row(it))._asdict() == before._asdict() | changed
    assert await desk.row(other) == left


@pytest.mark.parametrize(
    "put",
    [
        {"wake_at": NOW + SECOND},
        {"wake_at": NOW - 2 * HOUR},
        {"queue": "other"},
        {"state": State.PROCESSING},
        {"state": State.IN_PROGRESS},
        {"state": State.COMPLETED},
        {"crash_count": 2},
        {"held_by": "tenant:x"},
    ],
)
async def test_only_what_a_claim_would_take_is_looked_at(desk: Desk, put: dict[str, Any]) -> None:
    it = await desk.add(**DOWN, **put)
    before = await desk.row(it)
    assert await _put_off(desk, all_of()) == 0
    assert await desk.row(it) == before


async def test_the_longest_due_are_looked_at_and_keep_their_order(desk: Desk) -> None:
    ids = [await desk.add(**DOWN, wake_at=NOW - number * SECOND) for number in range(5)]
    assert await _put_off(desk, all_of(step=SECOND), limit=3) == 3
    wakes = [(await desk.row(it)).wake_at - NOW for it in ids]
    assert wakes == [timedelta(0), -SECOND, 3 * SECOND, 2 * SECOND, SECOND]


async def test_whoever_chooses_is_told_what_it_takes_to_choose(desk: Desk) -> None:
    seen: list[Waiting] = []

    def choose(rows: Sequence[Waiting]) -> list[tuple[UUID, datetime, str]]:
        seen.extend(rows)
        return []

    mine = await desk.add(**DOWN, wake_at=NOW - SECOND, expires_at=NOW + HOUR)
    theirs = await desk.add(**DOWN, tenant_id=OTHER_TENANT, attempt_count=1, state=State.PENDING_RETRY)
    assert await _put_off(desk, choose) == 0
    assert seen == [
        Waiting(mine, TENANT, "webhook", TARGET, 0, NOW + HOUR),
        Waiting(theirs, OTHER_TENANT, "webhook", TARGET, 1, None),
    ]


async def test_what_somebody_else_is_about_to_claim_is_passed_over(server_desk: Desk, migrated: str) -> None:
    taken, free = await server_desk.add(**DOWN), await server_desk.add(**DOWN)
    async with hands(migrated, 2) as (first, second):
        await first.do(_lock, taken)
        assert await second.do(store.crowds.put_off, "webhook", all_of(), now=NOW, floor=NOW - HOUR, limit=100) == 1
        await second.commit()
        await first.rollback()
    assert (await server_desk.row(taken)).wake_at == NOW
    assert (await server_desk.row(free)).wake_at == NOW + SECOND


def _lock(connection: Any, delivery_id: UUID) -> None:
    table = store.schema.deliveries
    connection.execute(table.select().where(table.c.id == delivery_id).with_for_update())
