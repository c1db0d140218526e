"""The claim: what it takes, in which order, and how much of it. Each case varies one column."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.domain.instants import MICROSECOND
from campana.domain.tickets import Ticket
from campana.store.claims import Claimed
from tests.store import builders
from tests.store.builders import HOUR, LEASE, ME, MINUTE, NOW, SECOND, YOU, wish
from tests.store.desk import Desk


async def _claim(desk: Desk, **wanted: Any) -> Claimed:
    return await desk.database.claim(wish(**wanted))


def _ids(tickets: Sequence[Ticket]) -> list[UUID]:
    return [ticket.id for ticket in tickets]


def _late(number: int, **others: Any) -> dict[str, Any]:
    return {"wake_at": NOW - number * SECOND, **others}


async def test_a_due_row_is_processing_under_a_lease_and_a_higher_fence(desk: Desk) -> None:
    it = await desk.add(fence=6, wake_at=NOW - SECOND, held_by="tenant:x")
    (ticket,) = (await _claim(desk)).tickets
    row = await desk.row(it)
    assert (row.state, row.fence, row.lease_owner) == (State.PROCESSING, 7, ME)
    assert (row.wake_at, row.run_until, row.held_by) == (NOW + LEASE, NOW + HOUR, None)
    assert (ticket.id, ticket.fence, ticket.wake_at) == (it, 7, NOW - SECOND)


async def test_the_ticket_says_all_that_the_row_says(desk: Desk) -> None:
    said: dict[str, Any] = {
        "tenant_id": builders.OTHER_TENANT,
        "project_id": builders.OTHER_PROJECT,
        "channel": "log",
        "target": '{"message":"😀"}',
        "payload": b"\x00\xff",
        "policies": '{"max_attempts":9}',
        "generation": 4,
        "attempt_count": 2,
        "key_number": 3,
        "ambiguous_attempts": 1,
        "due_at": NOW - HOUR,
        "expires_at": NOW + HOUR,
    }
    await desk.add(**said)
    (ticket,) = (await _claim(desk)).tickets
    assert {name: getattr(ticket, name) for name in said} == said
    assert (ticket.number, ticket.is_suspect, ticket.queue) == (3, False, "webhook")


@pytest.mark.parametrize("state", State)
async def test_only_what_waits_is_taken(desk: Desk, state: State) -> None:
    it = await desk.add(state=state, wake_at=NOW - HOUR)
    before = await desk.row(it)
    claimed = _ids((await _claim(desk)).tickets)
    if state in {State.SCHEDULED, State.PENDING_RETRY}:
        assert claimed == [it]
    else:
        assert claimed == []
        assert await desk.row(it) == before


@pytest.mark.parametrize(("wake_at", "is_taken"), [(NOW, True), (NOW + MICROSECOND, False), (NOW - 1000 * HOUR, True)], ids=str)
async def test_only_what_is_due_is_taken(desk: Desk, wake_at: Any, *, is_taken: bool) -> None:
    await desk.add(wake_at=wake_at)
    assert len((await _claim(desk)).tickets) == is_taken


@pytest.mark.parametrize("queue", ["python:send", "webhook ", "Webhook", "webhooks", "web", "😀"])
async def test_only_its_own_queues_are_served(desk: Desk, queue: str) -> None:
    other = await desk.add(queue=queue)
    assert (await _claim(desk)).tickets == []
    assert _ids((await _claim(desk, slots={"webhook": 1, queue: 1})).tickets) == [other]


async def test_the_longest_due_go_first(desk: Desk) -> None:
    second, third, first = await desk.add_all(_late(2), _late(1), _late(3))
    assert _ids((await _claim(desk, free=2)).tickets) == [first, second]
    assert _ids((await _claim(desk)).tickets) == [third]


async def test_the_longest_due_go_first_whatever_their_queue(desk: Desk) -> None:
    rows = [_late(number * 7 % 20, queue="abc"[number % 3]) for number in range(20)]
    await desk.add_all(*rows)
    wake_at = [ticket.wake_at for ticket in (await _claim(desk, slots=dict.fromkeys("abc", 20))).tickets]
    assert wake_at == [NOW - number * SECOND for number in range(19, -1, -1)]


async def test_each_queue_gets_as_much_as_it_has_room_for(desk: Desk) -> None:
    rows = [_late(number, queue=queue) for queue in ("a", "b", "c") for number in range(5)]
    await desk.add_all(*rows)
    tickets = (await _claim(desk, slots={"a": 2, "b": 0, "c": 9})).tickets
    assert sorted(ticket.queue for ticket in tickets) == ["a"] * 2 + ["c"] * 5
    assert [ticket.wake_at for ticket in tickets if ticket.queue == "a"] == [NOW - 4 * SECOND, NOW - 3 * SECOND]


async def test_the_queues_that_are_named_first_are_served_first(desk: Desk) -> None:
    await desk.add_all(*(_late(number, queue=queue) for queue in ("a", "b") for number in range(3)))
    tickets = (await _claim(desk, slots={"b": 9, "a": 9}, free=4)).tickets
    assert sorted(ticket.queue for ticket in tickets) == ["a", "b", "b", "b"]


@pytest.mark.parametrize("free", [0, 1, 7, 10, 11])
async def test_never_more_than_asked_for(desk: Desk, free: int) -> None:
    await desk.add_all(*(_late(number, queue=queue) for queue in ("a", "b") for number in range(5)))
    assert len((await _claim(desk, slots={"a": 5, "b": 5}, free=free)).tickets) == min(free, 10)


async def test_with_no_room_at_all_nothing_is_taken(desk: Desk) -> None:
    await desk.add(crash_count=2)
    nothings: list[dict[str, Any]] = [{"slots": {}}, {"slots": {"webhook": 0}}, {"free": 0}]
    for nothing in nothings:
        assert (await _claim(desk, **nothing)).tickets == []


async def test_a_claimed_row_is_not_claimed_again(desk: Desk) -> None:
    await desk.add_all(*({} for _ in range(5)))
    first, second = [_ids((await _claim(desk, me=me, free=3)).tickets) for me in (ME, YOU)]
    assert (len(first), len(second), set(first) & set(second)) == (3, 2, set())


async def test_suspects_are_taken_apart_up_to_their_number(desk: Desk) -> None:
    innocent, *suspects = await desk.add_all(_late(0), *(_late(number, crash_count=2) for number in (3, 2, 1)))
    tickets = (await _claim(desk, suspects=2)).tickets
    assert _ids(tickets) == [*suspects[:2], innocent]
    assert [ticket.is_suspect for ticket in tickets] == [True, True, False]


async def test_suspects_take_no_more_than_their_queue_has_room_for(desk: Desk) -> None:
    await desk.add_all(*(_late(number, crash_count=2) for number in range(6)))
    assert len((await _claim(desk, suspects=8, slots={"webhook": 2})).tickets) == 2
    assert len((await _claim(desk, suspects=8, free=3)).tickets) == 3


async def test_where_no_suspect_is_wanted_none_is_taken(desk: Desk) -> None:
    innocent, _ = await desk.add_all(_late(0), _late(1, crash_count=2))
    assert _ids((await _claim(desk, suspects=0)).tickets) == [innocent]


@pytest.mark.parametrize(
    "column",
    [{"queue": "other"}, {"state": State.PROCESSING}, {"state": State.DEAD_LETTER}, {"wake_at": NOW + SECOND}],
    ids=str,
)
async def test_suspects_obey_queue_state_and_time_too(desk: Desk, column: dict[str, Any]) -> None:
    await desk.add(crash_count=2, **column)
    assert (await _claim(desk)).tickets == []


async def test_a_suspect_of_any_queue_with_room_may_come(desk: Desk) -> None:
    suspect = await desk.add(crash_count=2, queue="b")
    assert _ids((await _claim(desk, slots={"a": 1, "b": 1})).tickets) == [suspect]
    assert (await desk.row(suspect)).fence == 1


@pytest.mark.parametrize(("floors", "suspects"), [({}, 1), ({"webhook": NOW - HOUR}, 0)], ids=["every few seconds", "meanwhile"])
async def test_behind_a_backlog_suspects_have_their_turn_too(desk: Desk, floors: dict[str, Any], suspects: int) -> None:
    await desk.add_all({}, {}, {}, {"crash_count": 2})
    claimed = await _claim(desk, free=2, floors=floors)
    assert sum(ticket.is_suspect for ticket in claimed.tickets) == suspects


async def test_a_full_claim_looks_again_at_once(desk: Desk) -> None:
    await desk.add_all({}, {})
    assert (await _claim(desk, free=2)).following == NOW


FOLLOWING: list[tuple[str, dict[str, Any], list[dict[str, Any]], Any]] = [
    ("nothing waits", {}, [], None),
    ("the next is later", {}, [{"wake_at": NOW + HOUR}, {"wake_at": NOW + MINUTE}], NOW + MINUTE),
    ("it is of another queue", {}, [{"wake_at": NOW + MINUTE, "queue": "b"}], None),
    ("its queue is full", {"slots": {"webhook": 1}}, [{}, {"wake_at": NOW + MINUTE}], None),
    ("its queue is full and due", {"slots": {"webhook": 1}}, [{}, {}], None),
    ("another queue has room", {"slots": {"webhook": 1, "b": 1}}, [{}, {}, {"wake_at": NOW + HOUR, "queue": "b"}], NOW + HOUR),
    ("it is a suspect", {}, [{"wake_at": NOW + MINUTE, "crash_count": 2}], NOW + MINUTE),
    ("suspects are full", {}, [{"crash_count": 2}, {"wake_at": NOW + MINUTE, "crash_count": 2}], None),
    ("it is under way", {}, [{"state": State.PROCESSING, "wake_at": NOW + MINUTE}], None),
    ("it has ended", {}, [{"state": State.COMPLETED, "wake_at": NOW + MINUTE}], None),
]


@pytest.mark.parametrize(("why", "wanted", "rows", "following"), FOLLOWING, ids=[case[0] for case in FOLLOWING])
async def test_the_claim_says_when_the_next_row_with_room_is_due(
    desk: Desk, why: str, wanted: dict[str, Any], rows: list[dict[str, Any]], following: Any
) -> None:
    if rows:
        await desk.add_all(*rows)
    assert (await _claim(desk, **wanted)).following == following


async def test_what_a_claim_took_can_be_found_by_its_lease(desk: Desk) -> None:
    await desk.add_all(*({"crash_count": number % 2 * 2} for number in range(4)))
    wanted = wish(free=2)
    took = await desk.database.claim(wanted)
    found = await desk.read(store.claims.landed, wanted)
    assert found is not None
    assert all(ticket.fence == 1 for ticket in found.tickets)
    assert {(ticket.id, ticket.fence) for ticket in found.tickets} == {(ticket.id, ticket.fence) for ticket in took.tickets}


OTHER_CLAIMS: list[dict[str, Any]] = [{"me": YOU}, *({"lease_until": NOW + LEASE + step * MICROSECOND} for step in (-1, 1))]


@pytest.mark.parametrize("other", OTHER_CLAIMS, ids=str)
async def test_another_claim_is_not_taken_for_this_one(desk: Desk, other: dict[str, Any]) -> None:
    await desk.add()
    assert await desk.read(store.claims.landed, wish()) is None
    await desk.database.claim(wish(**other))
    assert await desk.read(store.claims.landed, wish()) is None


async def test_what_was_settled_since_is_not_found(desk: Desk) -> None:
    it = await desk.add()
    await desk.database.claim(wish())
    await desk.write(store.settlements.apply, [builders.settlement(it)], now=NOW)
    assert await desk.read(store.claims.landed, wish()) is None
