"""Creating, and the dedupe key: whoever asks twice gets one delivery, whatever the race."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.store.deliveries import Made
from campana.store.schema import deliveries
from tests.store import builders
from tests.store.builders import HOUR, NOW, OTHER_TENANT
from tests.store.desk import Desk, execute, hands, until_blocked

LONG = ["x" * 255, "😀" * 255]
DIFFERENT = [
    ("a", "a "),
    ("a", " a"),
    ("a", "A"),
    ("é", "e\u0301"),
    ("é", "e"),
    ("ß", "ss"),
    ("😀", "😁"),
    ("a%", "ab"),
    ("a_", "ab"),
]


async def _create(desk: Desk, *new: Any) -> list[Made]:
    return await desk.write(store.deliveries.create, new, now=NOW)


async def test_a_new_delivery_waits_with_all_that_it_was_made_with(desk: Desk) -> None:
    wanted = builders.delivery(
        payload=b"\x00\xff{}",
        target='{"url":"http://receiver.test/😀"}',
        recipient="ann ",
        labels={"team": "red"},
        priority=2,
        dedupe_key="k",
        expires_at=NOW + HOUR,
        due_at=NOW + HOUR,
    )
    assert await _create(desk, wanted) == [Made(id=wanted.id, deduplicated=False)]
    row = await desk.row(wanted.id)
    for name in ("tenant_id", "project_id", "queue", "channel", "target", "payload", "recipient", "dedupe_key", "priority"):
        assert getattr(row, name) == getattr(wanted, name)
    assert (row.due_at, row.expires_at, row.created_at) == (NOW + HOUR, NOW + HOUR, NOW)
    assert (row.state, row.wake_at, row.fence, row.generation) == (State.SCHEDULED, NOW + HOUR, 0, 1)
    assert (row.attempt_count, row.crash_count, row.key_number, row.cancel_requested) == (0, 0, 1, False)


async def test_what_is_long_due_waits_from_now_on(desk: Desk) -> None:
    wanted = builders.delivery(due_at=NOW - HOUR)
    await _create(desk, wanted)
    row = await desk.row(wanted.id)
    assert (row.wake_at, row.due_at) == (NOW, NOW - HOUR)


async def test_a_second_delivery_with_the_same_key_is_the_first(desk: Desk) -> None:
    first, second = (builders.delivery(dedupe_key="k") for _ in range(2))
    await _create(desk, first)
    assert await _create(desk, second) == [Made(id=first.id, deduplicated=True)]
    assert [row.id for row in await desk.rows(deliveries)] == [first.id]


async def test_without_a_key_everything_is_new(desk: Desk) -> None:
    wanted = [builders.delivery() for _ in range(3)]
    assert [made.deduplicated for made in await _create(desk, *wanted)] == [False] * 3
    assert len(await desk.rows(deliveries)) == 3


async def test_two_tenants_may_use_the_same_key(desk: Desk) -> None:
    mine, theirs = builders.delivery(dedupe_key="k"), builders.delivery(dedupe_key="k", tenant_id=OTHER_TENANT)
    assert [made.deduplicated for made in await _create(desk, mine, theirs)] == [False, False]


async def test_an_ended_delivery_still_holds_its_key(desk: Desk) -> None:
    held = await desk.add(dedupe_key="k", state=State.COMPLETED)
    assert await _create(desk, builders.delivery(dedupe_key="k")) == [Made(id=held, deduplicated=True)]


@pytest.mark.parametrize("pair", DIFFERENT, ids=ascii)
async def test_keys_that_differ_in_one_byte_are_two(desk: Desk, pair: tuple[str, str]) -> None:
    wanted = [builders.delivery(dedupe_key=key) for key in pair]
    assert [made.deduplicated for made in await _create(desk, *wanted)] == [False, False]
    assert [row.dedupe_key for row in await desk.rows(deliveries)] == list(pair)


@pytest.mark.parametrize("key", LONG, ids=["ascii", "4 bytes"])
async def test_a_key_may_have_255_characters(desk: Desk, key: str) -> None:
    first, second = builders.delivery(dedupe_key=key), builders.delivery(dedupe_key=key)
    near = builders.delivery(dedupe_key=key[:-1] + "y")
    assert [made.id for made in await _create(desk, first, second, near)] == [first.id, first.id, near.id]


async def test_duplicates_inside_a_batch_are_the_first_of_them(desk: Desk) -> None:
    keys = ["a", "b", "a", None, "b", "a", None]
    batch = [builders.delivery(dedupe_key=key) for key in keys]
    made = await _create(desk, *batch)
    assert [one.id for one in made] == [batch[index].id for index in (0, 1, 0, 3, 1, 0, 6)]
    assert [one.deduplicated for one in made] == [False, False, True, False, True, True, False]
    assert len(await desk.rows(deliveries)) == 4


async def test_a_batch_run_again_gives_the_same_answer(desk: Desk) -> None:
    await _create(desk, builders.delivery(dedupe_key="taken"))
    batch = [builders.delivery(dedupe_key=key) for key in ("a", None, "taken", "a")]
    first = await _create(desk, *batch)
    assert await _create(desk, *batch) == first
    assert len(await desk.rows(deliveries)) == 3


async def test_a_batch_of_more_keys_than_one_look_up_takes_finds_them_all(desk: Desk) -> None:
    first = [builders.delivery(dedupe_key=f"key {number}") for number in range(1_201)]
    again = [builders.delivery(dedupe_key=one.dedupe_key) for one in first]
    await _create(desk, *first)
    assert [made.id for made in await _create(desk, *again)] == [one.id for one in first]


@pytest.mark.parametrize("is_first_kept", [True, False])
async def test_of_two_creators_of_one_key_at_once_one_makes_it(desk: Desk, *, is_first_kept: bool) -> None:
    mine, yours = builders.delivery(dedupe_key="k"), builders.delivery(dedupe_key="k")
    async with hands(desk.url, 1) as (me,):
        assert await me.do(store.deliveries.create, [mine], now=NOW) == [Made(id=mine.id, deduplicated=False)]
        waiting = asyncio.create_task(_create(desk, yours))
        await until_blocked(desk.url)
        assert not waiting.done()
        await (me.commit() if is_first_kept else me.rollback())
    winner = mine if is_first_kept else yours
    assert await waiting == [Made(id=winner.id, deduplicated=is_first_kept)]
    assert [row.id for row in await desk.rows(deliveries)] == [winner.id]


async def test_two_batches_with_the_same_keys_in_opposite_order_both_come_through(desk: Desk) -> None:
    keys = [f"k{number}" for number in range(50)]
    for _ in range(5):
        one, two = ([builders.delivery(dedupe_key=key) for key in order] for order in (keys, keys[::-1]))
        first, second = await asyncio.gather(_create(desk, *one), _create(desk, *two))
        assert {made.id for made in first} == {made.id for made in second}
    assert len(await desk.rows(deliveries)) == 50


async def test_an_earlier_key_is_free_again_once_its_delivery_is_gone(desk: Desk) -> None:
    await _create(desk, builders.delivery(dedupe_key="k"))
    await desk.write(execute, deliveries.delete())
    again = builders.delivery(dedupe_key="k", due_at=NOW + timedelta(days=1))
    assert await _create(desk, again) == [Made(id=again.id, deduplicated=False)]
