"""What is to be looked up is taken by one engine at a time, under a new fence, at its instant."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.store.lookups import Taken
from tests.store import builders
from tests.store.builders import MINUTE, NOW, SECOND
from tests.store.desk import Desk, hands

DUE: Mapping[str, Any] = {"state": State.IN_PROGRESS, "awaiting": "lookup", "wake_at": NOW, "fence": 2}


async def take(desk: Desk, *channels: str, limit: int = 9) -> list[Taken]:
    return await desk.write(store.lookups.take, channels or ("webhook",), now=NOW, until=NOW + MINUTE, limit=limit)


async def test_it_is_taken_under_a_new_fence_with_its_last_attempt(desk: Desk) -> None:
    one = await desk.add(**{**DUE, "state": State.PROCESSING, "awaiting": None, "fence": 1, "wake_at": NOW + MINUTE})
    await desk.write(store.settlements.apply, [builders.settlement(one)], now=NOW)
    await desk.write(put_back)
    ((row, last),) = await take(desk)
    assert (row.id, row.fence, row.wake_at, State(row.state)) == (one, 2, NOW + MINUTE, State.IN_PROGRESS)
    assert last is not None
    assert (last.delivery_id, last.fence) == (one, 1)
    assert await take(desk) == []


def put_back(connection: Any) -> None:
    table = store.schema.deliveries
    connection.execute(table.update().values(state=int(State.IN_PROGRESS), awaiting="lookup", wake_at=NOW))


@pytest.mark.parametrize(
    "other",
    [
        {"awaiting": "callback"},
        {"wake_at": NOW + SECOND / 1_000_000},
        {"channel": "voice"},
        {"state": State.DEAD_LETTER, "wake_at": None},
        {"state": State.PENDING_RETRY},
        {"state": State.PROCESSING},
    ],
    ids=lambda other: f"{next(iter(other))} {next(iter(other.values()))}",
)
async def test_what_differs_is_left(desk: Desk, other: Mapping[str, Any]) -> None:
    one = await desk.add(**{**DUE, **other})
    assert await take(desk) == []
    assert (await desk.row(one)).fence == 2


async def test_no_more_than_asked_for_and_the_longest_due_first(desk: Desk) -> None:
    rows = [{**DUE, "wake_at": NOW - number * SECOND} for number in (1, 3, 2)]
    ids = await desk.add_all(*rows)
    assert {row.id for row, _ in await take(desk, limit=2)} == {ids[1], ids[2]}


async def test_two_takers_share_and_never_take_one_twice(desk: Desk) -> None:
    ids = await desk.add_all(*[dict(DUE) for _ in range(40)])
    shares = await asyncio.gather(*(take(desk, limit=10) for _ in range(6)))
    while len([row for share in shares for row in share]) < len(ids) and (more := await take(desk, limit=10)):
        shares.append(more)
    taken = [row.id for share in shares for row, _ in share]
    assert sorted(taken) == sorted(ids)


async def test_a_settle_that_meets_a_later_look_up_comes_late(desk: Desk) -> None:
    one = await desk.add(**DUE)
    ((row, _),) = await take(desk)
    async with hands(desk.url, 1) as (second,):
        await second.do(store.lookups.take, ["webhook"], now=NOW + MINUTE, until=NOW + 2 * MINUTE, limit=9)
        await second.commit()
    said = builders.settlement(one, fence=row.fence)
    applied = await desk.write(store.settlements.apply, [said], now=NOW + MINUTE)
    assert (applied.settled, [late.delivery_id for late in applied.late]) == ([], [one])
    assert State((await desk.row(one)).state) == State.IN_PROGRESS
