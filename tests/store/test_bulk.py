"""Acts on many deliveries: in batches, each once, bounded, and going on where a dead worker was."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain.acts import Act
from campana.domain.deliveries import LIVE, State
from campana.store import bulk
from campana.store.bulk import Advanced, NewOperation, Status
from campana.store.deliveries import Filter
from campana.store.schema import operations, verdicts
from tests.store import builders
from tests.store.builders import HOUR, NOW, OTHER_PROJECT, OTHER_TENANT, TENANT
from tests.store.desk import Desk, hands, is_file

LATER = NOW + HOUR
LETTER: dict[str, Any] = {"state": State.DEAD_LETTER, "fence": 1, "reason": "exhausted"}
LETTERS = Filter(states=frozenset({State.DEAD_LETTER}))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 3)
    monkeypatch.setattr(bulk, "WINDOW", 5)


async def begin(desk: Desk, act: Act = Act.REDRIVE, wanted: Filter = LETTERS) -> UUID:
    new = NewOperation(id=builders.new_id(), tenant_id=TENANT, act=act, wanted=wanted, actor="key:1", created_at=NOW)
    await desk.write(store.bulk.begin, new)
    return new.id


async def finish(desk: Desk, operation: UUID) -> list[Advanced]:
    steps = []
    while (came := await desk.write(store.bulk.advance, operation, now=LATER)) is not None:
        steps.append(came)
    return steps


async def states(desk: Desk, ids: list[UUID]) -> list[State]:
    return [State((await desk.row(one)).state) for one in ids]


async def test_all_that_match_are_changed_once_in_batches_and_counted(desk: Desk) -> None:
    letters = await desk.add_all(*(LETTER for _ in range(7)))
    it = await begin(desk)
    steps = await finish(desk, it)
    assert [(one.done, one.is_finished) for one in steps] == [(3, False), (3, False), (1, True)]
    assert await states(desk, letters) == [State.SCHEDULED] * 7
    assert {(await desk.row(one)).generation for one in letters} == {2}
    row = await desk.read(store.bulk.get, TENANT, it)
    assert row is not None
    assert (row.status, row.total, row.done, row.failed, row.finished_at) == ("finished", 7, 7, 0, LATER)
    assert {record.actor for record in await desk.rows(verdicts)} == {"key:1"}


async def test_what_does_not_match_is_passed_over_window_by_window(desk: Desk) -> None:
    crowd = await desk.add_all(*({"state": State.COMPLETED} for _ in range(12)))
    last = await desk.add(**LETTER)
    it = await begin(desk)
    assert [(one.done, one.is_finished) for one in await finish(desk, it)] == [(0, False), (0, False), (1, True)]
    assert await states(desk, [*crowd, last]) == [State.COMPLETED] * 12 + [State.SCHEDULED]


async def test_what_comes_after_it_was_asked_for_is_not_its_business(desk: Desk) -> None:
    before = await desk.add(**LETTER)
    it = await begin(desk)
    behind = await desk.add(**LETTER)
    await finish(desk, it)
    assert await states(desk, [before, behind]) == [State.SCHEDULED, State.DEAD_LETTER]


async def test_what_dies_again_meanwhile_is_not_redriven_twice(desk: Desk) -> None:
    letters = await desk.add_all(*(LETTER for _ in range(4)))
    it = await begin(desk)
    await desk.write(store.bulk.advance, it, now=LATER)
    (ticket, *_) = (await desk.database.claim(builders.wish(now=LATER))).tickets
    buried = builders.settlement(ticket.id, fence=ticket.fence, transition=model.Buried(reason="permanent"))
    await desk.write(store.settlements.apply, [buried], now=LATER)
    await finish(desk, it)
    assert ((await desk.row(ticket.id)).state, (await desk.row(ticket.id)).generation) == (State.DEAD_LETTER, 2)
    assert (await desk.row(letters[3])).generation == 2


async def test_a_killed_workers_batch_never_was_and_the_next_one_goes_on(desk: Desk) -> None:
    letters = await desk.add_all(*(LETTER for _ in range(5)))
    it = await begin(desk)
    await desk.write(store.bulk.advance, it, now=NOW)
    async with hands(desk.url, 1) as (worker,):
        came = await worker.do(store.bulk.advance, it, now=NOW)
        assert came is not None
        await worker.rollback()
    assert await states(desk, letters) == [State.SCHEDULED] * 3 + [State.DEAD_LETTER] * 2
    await finish(desk, it)
    row = await desk.read(store.bulk.get, TENANT, it)
    assert row is not None
    assert (row.done, row.failed, len(await desk.rows(verdicts))) == (5, 0, 5)


async def test_two_workers_never_do_the_same_batch(desk: Desk) -> None:
    await desk.add_all(*(LETTER for _ in range(6)))
    it = await begin(desk)
    async with hands(desk.url, 1) as (first,):
        assert await first.do(store.bulk.advance, it, now=NOW)
        advancing = asyncio.create_task(desk.write(store.bulk.advance, it, now=NOW))
        if not is_file(desk.url):
            assert await advancing is None
        await first.commit()
    await advancing
    await asyncio.gather(*(finish(desk, it) for _ in range(3)))
    records = await desk.rows(verdicts)
    row = await desk.read(store.bulk.get, TENANT, it)
    assert row is not None
    assert (len(records), len({one.delivery_id for one in records}), row.done) == (6, 6, 6)


async def test_it_can_be_stopped_and_keeps_what_it_has_done(desk: Desk) -> None:
    letters = await desk.add_all(*(LETTER for _ in range(5)))
    it = await begin(desk)
    await desk.write(store.bulk.advance, it, now=NOW)
    for _ in range(2):
        row = await desk.write(store.bulk.stop, TENANT, it, now=LATER)
        assert row is not None
        assert (row.status, row.done, row.finished_at) == (Status.CANCELLED, 3, LATER)
    assert await finish(desk, it) == []
    assert await states(desk, letters) == [State.SCHEDULED] * 3 + [State.DEAD_LETTER] * 2


async def test_what_has_ended_is_not_stopped(desk: Desk) -> None:
    it = await begin(desk)
    await finish(desk, it)
    row = await desk.write(store.bulk.stop, TENANT, it, now=LATER + HOUR)
    assert row is not None
    assert (row.status, row.finished_at) == (Status.FINISHED, LATER)


async def test_what_can_not_be_changed_is_counted_and_left_alone(desk: Desk) -> None:
    good, gone = await desk.add_all(LETTER, LETTER | {"expires_at": NOW})
    it = await begin(desk)
    assert [(one.done, one.failed) for one in await finish(desk, it)] == [(1, 1)]
    assert await states(desk, [good, gone]) == [State.SCHEDULED, State.DEAD_LETTER]


async def test_many_are_discarded(desk: Desk) -> None:
    letters = await desk.add_all(*(LETTER for _ in range(4)))
    await finish(desk, await begin(desk, Act.DISCARD))
    assert await states(desk, letters) == [State.CANCELLED] * 4


async def test_many_are_cancelled_at_once_or_when_it_can_be(desk: Desk) -> None:
    waiting, busy, done = await desk.add_all({}, {"state": State.PROCESSING}, {"state": State.COMPLETED})
    it = await begin(desk, Act.CANCEL, Filter(states=LIVE, channel="webhook"))
    assert [(one.done, one.failed) for one in await finish(desk, it)] == [(2, 0)]
    assert await states(desk, [waiting, busy, done]) == [State.CANCELLED, State.PROCESSING, State.COMPLETED]
    assert (await desk.row(busy)).cancel_requested


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ({"channel": "log"}, {"channel": "log"}),
        ({"recipient": "Anna "}, {"recipient": "Anna "}),
        ({"project_id": OTHER_PROJECT}, {"project_id": OTHER_PROJECT}),
        ({"dedupe_key": "k"}, {"dedupe_key": "k"}),
        ({"provider_call_id": "c"}, {"provider_call_id": "c"}),
        ({"schedule_id": TENANT}, {"schedule_id": TENANT}),
        ({"due_at": LATER}, {"due_from": LATER}),
        ({"due_at": NOW - HOUR}, {"due_to": NOW}),
        ({"labels": '{"a": "é"}'}, {"labels": {"a": "é"}}),
    ],
)
async def test_each_filter_narrows_as_in_a_list(desk: Desk, column: dict[str, Any], wanted: dict[str, Any]) -> None:
    other, it = await desk.add_all(LETTER, LETTER | column)
    await finish(desk, await begin(desk, wanted=Filter(states=LETTERS.states, **wanted)))
    assert await states(desk, [other, it]) == [State.DEAD_LETTER, State.SCHEDULED]


async def test_nothing_of_another_tenant_is_touched(desk: Desk) -> None:
    anothers = await desk.add(**LETTER, tenant_id=OTHER_TENANT)
    it = await begin(desk)
    await finish(desk, it)
    assert await states(desk, [anothers]) == [State.DEAD_LETTER]
    assert await desk.read(store.bulk.get, OTHER_TENANT, it) is None
    assert await desk.write(store.bulk.stop, OTHER_TENANT, it, now=NOW) is None


async def test_each_running_operation_gets_its_turn(desk: Desk) -> None:
    assert await desk.read(store.bulk.running, after=None) is None
    first, second, third = [await begin(desk) for _ in range(3)]
    await desk.write(store.bulk.fail, second, error="x" * 1_000, now=NOW)
    assert await desk.read(store.bulk.running, after=None) == first
    assert await desk.read(store.bulk.running, after=first) == third
    assert await desk.read(store.bulk.running, after=third) == first
    failed = [row for row in await desk.rows(operations) if row.status == Status.FAILED]
    assert [(row.id, row.error) for row in failed] == [(second, "x" * 500)]


async def test_begun_twice_it_is_one(desk: Desk) -> None:
    new = NewOperation(id=builders.new_id(), tenant_id=TENANT, act=Act.DISCARD, wanted=LETTERS, actor="key:1", created_at=NOW)
    await desk.write(store.bulk.begin, new)
    await finish(desk, new.id)
    await desk.write(store.bulk.begin, new)
    (row,) = await desk.rows(operations)
    assert row.status == Status.FINISHED
