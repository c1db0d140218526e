"""What closed scopes hold, and its release."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.store.schema import deliveries
from tests.store.builders import HOUR, NOW, SECOND
from tests.store.desk import Desk, hands, until_blocked

HELD: dict[str, Any] = {"held_by": "tenant:x", "wake_at": NOW + 24 * HOUR, "due_at": NOW - HOUR}


async def _release(desk: Desk, *scopes: str, limit: int = 500, step: timedelta = timedelta(0), first: Any = NOW) -> int:
    return await desk.write(store.holds.release, scopes, first=first, step=step, limit=limit)


async def test_every_scope_that_holds_a_waiting_row_is_named_once(desk: Desk) -> None:
    scopes = ["a", "a", "a ", "A", "😀", None]
    await desk.add_all(*({**HELD, "held_by": scope} for scope in scopes))
    assert set(await desk.read(store.holds.scopes)) == {"a", "a ", "A", "😀"}
    assert len(await desk.read(store.holds.scopes)) == 4


@pytest.mark.parametrize("state", [State.PROCESSING, State.IN_PROGRESS, State.COMPLETED, State.CANCELLED])
async def test_what_does_not_wait_is_not_held(desk: Desk, state: State) -> None:
    it = await desk.add(**HELD, state=state)
    before = await desk.row(it)
    assert await desk.read(store.holds.scopes) == []
    assert await desk.read(store.holds.depth) == 0
    assert await _release(desk, "tenant:x") == 0
    assert await desk.row(it) == before


async def test_a_released_row_is_due_at_once_and_held_no_more(desk: Desk) -> None:
    it = await desk.add(**HELD, state=State.PENDING_RETRY, attempt_count=2)
    assert await _release(desk, "tenant:x") == 1
    row = await desk.row(it)
    assert (row.held_by, row.wake_at, row.state, row.attempt_count) == (None, NOW, State.PENDING_RETRY, 2)


async def test_a_released_row_that_is_not_due_yet_waits_for_its_time(desk: Desk) -> None:
    it = await desk.add(**{**HELD, "due_at": NOW + HOUR})
    await _release(desk, "tenant:x")
    assert (await desk.row(it)).wake_at == NOW + HOUR


async def test_rows_of_scopes_that_are_still_closed_stay(desk: Desk) -> None:
    near = [await desk.add(**{**HELD, "held_by": scope}) for scope in ("tenant:x ", "TENANT:X", "tenant:y")]
    opened = await desk.add(**HELD)
    assert await _release(desk, "tenant:x", "tenant:z") == 1
    assert (await desk.row(opened)).held_by is None
    assert all([(await desk.row(one)).held_by is not None for one in near])


async def test_a_release_is_spread_over_its_time_the_longest_due_first(desk: Desk) -> None:
    made = await desk.add_all(*({**HELD, "due_at": NOW - number * SECOND} for number in range(4)))
    assert await _release(desk, "tenant:x", step=SECOND) == 4
    assert [(await desk.row(one)).wake_at for one in reversed(made)] == [NOW + number * SECOND for number in range(4)]


async def test_a_release_takes_no_more_than_its_limit(desk: Desk) -> None:
    await desk.add_all(*(dict(HELD) for _ in range(5)))
    assert await _release(desk, "tenant:x", limit=3) == 3
    assert await desk.read(store.holds.depth) == 2
    assert await _release(desk, "tenant:x", limit=3) == 2
    assert await _release(desk, "tenant:x", limit=3) == 0


async def test_lanes_are_no_scopes_to_be_released(desk: Desk) -> None:
    await desk.add_all(*({**HELD, "held_by": scope} for scope in ("all", "lane:a", "lane:b", "slots:vapi", "tenant:x")))
    assert await desk.read(store.holds.scopes) == ["all", "slots:vapi", "tenant:x"]


async def test_depth_is_counted_no_further_than_asked(desk: Desk) -> None:
    await desk.add_all(*(dict(HELD) for _ in range(5)))
    assert await desk.read(store.holds.depth) == 5
    assert await desk.read(store.holds.depth, at_most=3) == 3


async def test_two_releases_at_once_release_each_row_once(desk: Desk) -> None:
    await desk.add_all(*(dict(HELD) for _ in range(5)))
    async with hands(desk.url, 1) as (first,):
        assert await first.do(store.holds.release, ["tenant:x"], first=NOW, limit=9, step=timedelta(0)) == 5
        second = asyncio.create_task(_release(desk, "tenant:x", first=NOW + HOUR))
        await until_blocked(desk.url)
        await first.commit()
    assert await second == 0
    rows = await desk.rows(deliveries)
    assert {row.wake_at for row in rows} == {NOW}
