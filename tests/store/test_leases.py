"""Row leases: one holder at a time, each new one under a higher fence."""

import asyncio
from typing import Any
from uuid import UUID

from campana import store
from tests.store.builders import HOUR, NOW, SECOND
from tests.store.desk import Desk, hands, until_blocked

A, B = UUID(int=1), UUID(int=2)
LENGTH = 30 * SECOND


async def _take(desk: Desk, holder: UUID, *, name: str = "sweep", now: Any = NOW) -> int | None:
    return await desk.write(store.leases.take, name, holder, now=now, length=LENGTH)


async def _is_held(desk: Desk, holder: UUID, fence: int, *, now: Any = NOW) -> bool:
    return await desk.read(store.leases.is_held, "sweep", holder, fence, now=now)


async def test_a_lease_has_one_holder_and_its_fence_rises_with_each_new_one(desk: Desk) -> None:
    assert await _take(desk, A) == 1
    assert await _take(desk, B) is None
    assert await _take(desk, A, now=NOW + SECOND) == 1
    assert await _take(desk, B, now=NOW + LENGTH) is None
    assert await _take(desk, B, now=NOW + LENGTH + SECOND) == 2
    assert await _take(desk, A, now=NOW + LENGTH + SECOND) is None
    assert await _take(desk, A, now=NOW + HOUR) == 3


async def test_a_lease_is_held_by_its_holder_under_its_fence_until_its_end(desk: Desk) -> None:
    assert await _is_held(desk, A, 1) is False
    await _take(desk, A)
    held = [(A, 1, NOW), (A, 1, NOW + LENGTH), (A, 2, NOW), (B, 1, NOW)]
    assert [await _is_held(desk, holder, fence, now=now) for holder, fence, now in held] == [True, False, False, False]


async def test_a_lease_given_back_is_anybodys(desk: Desk) -> None:
    await _take(desk, A)
    await desk.write(store.leases.give_back, "sweep", B)
    assert await _is_held(desk, A, 1)
    await desk.write(store.leases.give_back, "sweep", A)
    assert not await _is_held(desk, A, 1)
    assert await _take(desk, B) == 2


async def test_leases_of_other_names_are_others(desk: Desk) -> None:
    assert [await _take(desk, holder, name=name) for holder, name in ((A, "a"), (B, "a "), (B, "A"))] == [1, 1, 1]


async def test_of_two_that_take_a_new_lease_at_once_one_gets_it(desk: Desk) -> None:
    async with hands(desk.url, 1) as (first,):
        assert await first.do(store.leases.take, "sweep", A, now=NOW, length=LENGTH) == 1
        second = asyncio.create_task(_take(desk, B))
        await until_blocked(desk.url)
        await first.commit()
    assert await second is None
    assert await _is_held(desk, A, 1)
