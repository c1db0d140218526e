"""Limits hand out instants: each once, in order, and no faster than the rate."""

import asyncio
from datetime import timedelta
from typing import Any

from campana import store
from campana.store import schema
from tests.store.builders import HOUR, NOW, SECOND
from tests.store.desk import Desk, hands, until_blocked

SCOPE = "tenant:a/channel:webhook"


async def _reserve(desk: Desk, count: int, *, now: Any = NOW, scope: str = SCOPE) -> list[float]:
    given = await desk.write(store.limits.reserve, {scope: count}, now=now)
    return [(at - NOW) / SECOND for at in given.get(scope, [])]


async def _limit(desk: Desk, *, burst: int = 1, scope: str = SCOPE) -> None:
    await desk.write(store.limits.put, scope, interval=SECOND, burst=burst)


async def test_each_gets_an_instant_of_its_own_a_step_after_the_one_before(desk: Desk) -> None:
    await _limit(desk)
    assert await _reserve(desk, 3) == [0, 1, 2]
    assert await _reserve(desk, 2) == [3, 4]
    assert await _reserve(desk, 1, now=NOW + 4.5 * SECOND) == [5]


async def test_after_a_rest_the_first_is_now(desk: Desk) -> None:
    await _limit(desk)
    await _reserve(desk, 3)
    assert await _reserve(desk, 2, now=NOW + HOUR) == [3600, 3601]


async def test_a_burst_goes_at_once_and_what_comes_after_it_by_steps(desk: Desk) -> None:
    await _limit(desk, burst=3)
    assert await _reserve(desk, 5) == [0, 0, 0, 1, 2]
    assert await _reserve(desk, 1) == [3]


async def test_no_second_ever_has_more_than_the_rate_and_its_burst(desk: Desk) -> None:
    await _limit(desk, burst=2)
    given: list[float] = []
    for number in range(20):
        given += await _reserve(desk, number % 4 + 1, now=NOW + number * 0.7 * SECOND)
    assert given == sorted(given)
    for start in given:
        assert sum(start <= at < start + 1 for at in given) <= 2


async def test_a_scope_without_a_limit_hands_out_nothing(desk: Desk) -> None:
    await _limit(desk)
    assert await _reserve(desk, 3, scope="tenant:a/channel:Webhook") == []
    await desk.write(store.limits.drop, SCOPE)
    assert await _reserve(desk, 3) == []
    assert await desk.write(store.limits.reserve, {}, now=NOW) == {}


async def test_engines_hear_of_a_changed_limit_as_they_hear_of_a_switch(desk: Desk) -> None:
    async def version() -> int:
        return sum(row.number for row in await desk.rows(schema.versions))

    before = await version()
    await _limit(desk)
    between = await version()
    await desk.write(store.limits.drop, SCOPE)
    assert before < between < await version()
    await _limit(desk, scope="a")
    assert (await desk.read(store.engines.board)).limits == {"a"}


async def test_two_at_once_get_different_instants(desk: Desk) -> None:
    await _limit(desk)
    async with hands(desk.url, 1) as (first,):
        mine = await first.do(store.limits.reserve, {SCOPE: 2}, now=NOW)
        reserving = asyncio.create_task(_reserve(desk, 2))
        await until_blocked(desk.url)
        await first.commit()
    assert list(mine[SCOPE]) == [NOW, NOW + timedelta(seconds=1)]
    assert await reserving == [2, 3]
