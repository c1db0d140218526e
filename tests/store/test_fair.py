"""Fair claims: each tenant of a window gets its share, the urgent first, and what room is left goes to the oldest."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, update

from campana import store
from campana.domain.deliveries import State
from campana.domain.tickets import Ticket
from campana.store import candidates
from campana.store.candidates import Window
from campana.store.claims import Claimed
from campana.store.schema import deliveries
from tests.store.builders import HOUR, NOW, SECOND, wish
from tests.store.desk import Desk

TENANTS = [UUID(int=100 + number) for number in range(5)]
BIG, *SMALL = TENANTS
BEHIND = frozenset({"webhook"})


def _window(*tenants: UUID, share: int = 8, priorities: Sequence[int] = (0, 1, 2)) -> Window:
    return Window(tenants=tenants or TENANTS, share=share, priorities=priorities)


async def _claim(desk: Desk, **wanted: Any) -> Claimed:
    return await desk.database.claim(wish(**{"window": _window(), "backlog": BEHIND, **wanted}))


def _late(number: int, **others: Any) -> dict[str, Any]:
    return {"wake_at": NOW - number * SECOND, **others}


async def _crowd(desk: Desk, count: int = 30) -> None:
    """One tenant has so many rows that are due for long; each of the others has one that is due now."""
    await desk.add_all(*(_late(1_000 + number, tenant_id=BIG) for number in range(count)))
    await desk.add_all(*({"tenant_id": tenant} for tenant in SMALL))


def _tenants(tickets: Sequence[Ticket]) -> Counter[UUID]:
    return Counter(ticket.tenant_id for ticket in tickets)


async def test_without_a_window_the_oldest_come_first_whoever_has_them(desk: Desk) -> None:
    await _crowd(desk)
    assert _tenants((await _claim(desk, free=10, window=None)).tickets) == {BIG: 10}


async def test_each_tenant_of_the_window_gets_its_share_and_the_oldest_get_the_rest(desk: Desk) -> None:
    await _crowd(desk)
    claimed = await _claim(desk, free=10, window=_window(share=2))
    assert _tenants(claimed.tickets) == {BIG: 6, **dict.fromkeys(SMALL, 1)}
    assert claimed.cursor == TENANTS[-1]


async def test_a_tenant_outside_the_window_waits_for_its_turn(desk: Desk) -> None:
    await _crowd(desk)
    claimed = await _claim(desk, free=3, window=_window(SMALL[0], SMALL[1]))
    assert _tenants(claimed.tickets) == {BIG: 1, SMALL[0]: 1, SMALL[1]: 1}
    assert claimed.cursor == SMALL[1]


async def test_the_next_window_begins_after_the_last_tenant_that_was_served(desk: Desk) -> None:
    await desk.add_all(*({"tenant_id": tenant} for tenant in TENANTS for _ in range(3)))
    claimed = await _claim(desk, free=4, window=_window(share=2))
    assert _tenants(claimed.tickets) == {TENANTS[0]: 2, TENANTS[1]: 2}
    assert claimed.cursor == TENANTS[1]


async def test_a_window_without_due_rows_has_had_its_turn(desk: Desk) -> None:
    await desk.add_all(_late(1, tenant_id=BIG))
    claimed = await _claim(desk, window=_window(*SMALL))
    assert (_tenants(claimed.tickets), claimed.cursor) == ({BIG: 1}, SMALL[-1])


async def test_a_queue_without_a_backlog_is_not_asked_by_turns(desk: Desk) -> None:
    await _crowd(desk)
    claimed = await _claim(desk, free=10, backlog=frozenset({"log"}))
    assert (_tenants(claimed.tickets), claimed.cursor) == ({BIG: 10}, None)


@pytest.mark.parametrize(("priorities", "first"), [((0, 1, 2), 0), ((2, 1, 0), 2)])
async def test_a_tenants_priorities_take_their_turns(desk: Desk, priorities: Sequence[int], first: int) -> None:
    await desk.add_all(*(_late(number, tenant_id=BIG, priority=number % 3) for number in range(9)))
    claimed = await _claim(desk, free=3, window=_window(BIG, share=3, priorities=priorities))
    assert [ticket.priority for ticket in await _rows(desk, claimed)] == [first] * 3


async def _rows(desk: Desk, claimed: Claimed) -> list[Any]:
    return [await desk.row(ticket.id) for ticket in claimed.tickets]


async def test_an_urgent_row_that_is_due_later_is_not_taken_before_its_time(desk: Desk) -> None:
    await desk.add(tenant_id=BIG, priority=0, wake_at=NOW + SECOND)
    due = await desk.add(tenant_id=BIG, priority=2)
    assert [ticket.id for ticket in (await _claim(desk)).tickets] == [due]


@pytest.mark.parametrize("free", [1, 4, 7, 29, 34, 50])
async def test_a_fair_claim_takes_no_more_than_asked_and_nothing_twice(desk: Desk, free: int) -> None:
    await _crowd(desk)
    first, second = [await _claim(desk, free=free, window=_window(share=3)) for _ in range(2)]
    taken = [ticket.id for claimed in (first, second) for ticket in claimed.tickets]
    assert (len(first.tickets), len(taken)) == (min(free, 34), min(2 * free, 34))
    assert len(set(taken)) == len(taken)
    assert {(await desk.row(one)).fence for one in taken} == {1}


OTHERS: list[dict[str, Any]] = [
    {"state": State.PROCESSING},
    {"state": State.COMPLETED},
    {"queue": "log"},
    {"crash_count": 2},
    {"wake_at": NOW + HOUR},
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
async def test_by_turns_only_what_waits_and_is_due_and_innocent_is_taken(desk: Desk, other: dict[str, Any]) -> None:
    await desk.add(tenant_id=BIG, **other)
    assert (await _claim(desk, suspects=0)).tickets == []


async def test_a_tenant_gets_one_share_whatever_its_priorities(desk: Desk) -> None:
    await desk.add_all(*(_late(9, tenant_id=BIG, priority=priority) for priority in (0, 1, 2) for _ in range(3)))
    await desk.add_all(*({"tenant_id": tenant} for tenant in SMALL))
    claimed = await _claim(desk, free=6, window=_window(share=2))
    assert _tenants(claimed.tickets) == {BIG: 2, **dict.fromkeys(SMALL, 1)}


async def test_what_was_taken_since_it_was_looked_for_is_passed_over(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a claim looks without a lock it looks again under one; PostgreSQL does both at once."""
    first, second = await desk.add_all({"tenant_id": BIG}, {"tenant_id": SMALL[0]})
    look, looked = candidates._probe, []

    def meanwhile(connection: Connection, *said: Any) -> list[UUID]:
        found = look(connection, *said)
        connection.execute(update(deliveries).where(deliveries.c.id == first).values(state=int(State.PROCESSING)))
        looked.append(found)
        return found

    monkeypatch.setattr(candidates, "_probe", meanwhile)
    taken = {ticket.id for ticket in (await _claim(desk)).tickets}
    assert taken == ({second} if looked else {first, second})


async def test_more_tenants_than_one_statement_can_ask_are_asked_all_the_same(desk: Desk) -> None:
    many = [UUID(int=1_000 + number) for number in range(150)]
    await desk.add_all(*({"tenant_id": tenant} for tenant in many))
    claimed = await _claim(desk, slots={"webhook": 200}, free=200, window=_window(*many))
    assert _tenants(claimed.tickets) == dict.fromkeys(many, 1)


async def test_a_claim_says_which_queues_may_have_more(desk: Desk) -> None:
    await desk.add_all(*({"queue": queue} for queue in ("a", "a", "b", "c")))
    assert (await _claim(desk, slots={"a": 1, "b": 5, "d": 5})).backlog == {"a"}
    assert (await _claim(desk, slots={"a": 5, "b": 5, "c": 5}, free=1)).backlog == {"a"}


# --- floors


async def test_below_the_floor_nothing_is_looked_for(desk: Desk) -> None:
    old, young = await desk.add_all(_late(10), _late(1))
    above = {"webhook": NOW - 5 * SECOND}
    for window in (None, _window(UUID(int=1))):
        claimed = await _claim(desk, window=window, floors=above, free=1)
        assert [ticket.id for ticket in claimed.tickets] == [young] * (window is None)
    assert [ticket.id for ticket in (await _claim(desk, window=None)).tickets] == [old]


async def test_the_sleep_looks_above_the_floor_too(desk: Desk) -> None:
    await desk.add_all(_late(10), {"wake_at": NOW + HOUR})
    floors = {"webhook": NOW}
    assert await desk.read(store.wakes.next_wake, ["webhook"], suspects=True, floors=floors) == NOW + HOUR
    assert await desk.read(store.wakes.next_wake, ["webhook"], suspects=True) == NOW - 10 * SECOND


async def test_a_claim_says_below_what_nothing_waits_any_more(desk: Desk) -> None:
    await desk.add_all(*(_late(number, queue=queue) for queue in ("a", "b") for number in (1, 2, 3)))
    claimed = await _claim(desk, slots={"a": 2, "b": 9, "c": 9, "d": 0})
    assert claimed.floors == {"a": NOW - 3 * SECOND, "b": NOW, "c": NOW}
    await desk.add_all(*(_late(number, queue="b") for number in (1, 2, 3)))
    assert (await _claim(desk, slots={"b": 9, "c": 9}, free=2)).floors == {"b": NOW - 3 * SECOND}


async def test_what_was_taken_by_turns_says_nothing_of_the_floor(desk: Desk) -> None:
    await desk.add_all(*(_late(number, tenant_id=BIG) for number in range(5)))
    claimed = await _claim(desk, free=2)
    assert claimed.floors == {}
    assert (await _claim(desk, now=NOW + timedelta(0))).floors == {"webhook": NOW}
