"""Lanes and slots: taken with the claim, given back with the end, and whoever waits wakes."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain import deliveries as model
from campana.domain.deliveries import PARKED, State
from campana.store import schema
from campana.store.claims import Claimed
from campana.store.lanes import Held
from tests.store import builders
from tests.store.builders import HOUR, LEASE, ME, NOW, SECOND, YOU, settlement, wish
from tests.store.desk import Desk, hands, is_file, until_blocked

LANE, OTHER = "lane:voice:ann", "lane:voice:bob"
CALLS = "slots:vapi"
LATER = NOW + 30 * SECOND


async def _claim(desk: Desk, **wanted: Any) -> Claimed:
    return await desk.database.claim(wish(**wanted))


def _late(number: int, **others: Any) -> dict[str, Any]:
    return {"wake_at": NOW - number * SECOND, "due_at": NOW - number * SECOND, "lane_key": LANE, **others}


async def _end(desk: Desk, it: UUID, transition: model.Transition, *, fence: int = 1, now: Any = LATER) -> None:
    await desk.write(store.settlements.apply, [settlement(it, fence=fence, transition=transition)], now=now)


async def _lanes(desk: Desk) -> dict[str, tuple[UUID, Any]]:
    return {row.lane_key: (row.delivery_id, row.until) for row in await desk.rows(schema.lanes)}


async def _slots(desk: Desk) -> list[UUID | None]:
    return [row.delivery_id for row in await desk.rows(schema.slots)]


# --- lanes


async def test_of_a_lane_the_longest_due_is_taken_and_the_others_are_parked_until_its_end(desk: Desk) -> None:
    second, first, third = await desk.add_all(_late(2), _late(3), _late(1, state=State.PENDING_RETRY, attempt_count=1))
    claimed = await _claim(desk)
    assert ([ticket.id for ticket in claimed.tickets], claimed.parked, claimed.following) == ([first], 2, NOW)
    assert await _lanes(desk) == {LANE: (first, NOW + LEASE)}
    for one, state in ((second, State.SCHEDULED), (third, State.PENDING_RETRY)):
        row = await desk.row(one)
        assert (row.state, row.wake_at, row.held_by) == (state, NOW + LEASE, LANE)
        assert (row.lease_owner, row.run_until, row.fence) == (None, None, 2 if state is State.PENDING_RETRY else 1)


async def test_what_waited_for_a_retry_still_does_when_it_is_parked_even_if_no_attempt_was_counted(desk: Desk) -> None:
    await desk.add_all(_late(3), _late(2, state=State.PENDING_RETRY, attempt_count=0))
    claimed = await _claim(desk)
    assert sorted(row.state for row in await desk.rows(schema.deliveries)) == [State.PROCESSING, State.PENDING_RETRY]
    assert [ticket.state for ticket in claimed.tickets] == [State.SCHEDULED]


async def test_different_lanes_and_rows_without_one_do_not_wait_for_each_other(desk: Desk) -> None:
    await desk.add_all(_late(1), _late(2, lane_key=OTHER), _late(3, lane_key=None), _late(4, lane_key="lane:voice:ANN"))
    claimed = await _claim(desk)
    assert (len(claimed.tickets), claimed.parked) == (4, 0)
    assert set(await _lanes(desk)) == {LANE, OTHER, "lane:voice:ANN"}


async def test_a_lane_that_is_taken_parks_whoever_comes_later(desk: Desk) -> None:
    holder = await desk.add(**_late(1))
    await _claim(desk)
    it = await desk.add(**_late(0))
    assert (await _claim(desk, me=YOU)).tickets == []
    assert (await desk.row(it)).held_by == LANE
    assert (await _lanes(desk))[LANE][0] == holder


async def test_against_a_holder_that_is_overdue_one_waits_a_moment_and_does_not_spin(desk: Desk) -> None:
    await desk.add(**_late(1))
    await _claim(desk)
    it = await desk.add(**_late(0))
    now = NOW + LEASE + HOUR
    await _claim(desk, me=YOU, now=now)
    assert (await desk.row(it)).wake_at == now + SECOND


ENDS: list[model.Transition] = [
    model.Completed(),
    model.Buried(reason="permanent"),
    model.Declined(),
    model.Skipped(reason="expired"),
    model.Cancelled(reason="cancelled"),
    model.Retried(at=NOW + HOUR),
    model.Returned(at=NOW + HOUR, reason="released"),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
async def test_whatever_ends_the_holder_frees_the_lane_and_wakes_the_next(desk: Desk, end: model.Transition) -> None:
    holder, second, third = await desk.add_all(_late(3), _late(2), _late(1))
    await _claim(desk)
    await _end(desk, holder, end)
    assert await _lanes(desk) == {}
    row = await desk.row(second)
    assert (row.held_by, row.wake_at, row.state) == (None, LATER, State.SCHEDULED)
    assert (await desk.row(third)).held_by == LANE


async def test_an_accepted_call_keeps_its_lane_and_moves_its_end(desk: Desk) -> None:
    holder, second = await desk.add_all(_late(3), _late(2))
    await _claim(desk)
    await _end(desk, holder, model.Awaiting(what="callback", until=NOW + HOUR))
    assert await _lanes(desk) == {LANE: (holder, NOW + HOUR)}
    assert (await desk.row(second)).held_by == LANE
    await _claim(desk, me=YOU, now=NOW + LEASE)
    assert (await desk.row(second)).wake_at == NOW + HOUR


async def test_the_timer_that_ends_the_holder_ends_the_lane(desk: Desk) -> None:
    _, second = await desk.add_all(_late(3), _late(2))
    await _claim(desk)

    def judge(row: store.settlements.Locked, _last: object) -> Any:
        return settlement(row.id, fence=row.fence, transition=model.Buried(reason="ambiguous"))

    await desk.write(store.settlements.reclaim, judge, ["webhook"], now=NOW + LEASE, limit=9, sparing=None)
    assert (await _lanes(desk), (await desk.row(second)).held_by) == ({}, None)


async def test_what_lost_its_claim_frees_nobodys_lane(desk: Desk) -> None:
    holder = await desk.add(**_late(3))
    await _claim(desk)
    await _end(desk, holder, model.Returned(at=NOW, reason="released"))
    await _claim(desk, me=YOU)
    await _end(desk, holder, model.Completed(), fence=1)
    assert await _lanes(desk) == {LANE: (holder, NOW + LEASE)}


async def test_whoever_waits_is_woken_by_the_longest_due_and_not_by_what_is_due_later(desk: Desk) -> None:
    holder = await desk.add(**_late(3))
    await _claim(desk)
    tomorrow = await desk.add(lane_key=LANE, wake_at=NOW + 24 * HOUR, due_at=NOW + 24 * HOUR)
    await _end(desk, holder, model.Completed())
    assert (await desk.row(tomorrow)).wake_at == NOW + 24 * HOUR


async def test_what_has_expired_needs_no_lane_to_be_told_so(desk: Desk) -> None:
    await desk.add(**_late(3))
    await _claim(desk)
    late, soon = await desk.add_all(_late(2, expires_at=NOW), _late(1, expires_at=NOW + SECOND))
    assert [ticket.id for ticket in (await _claim(desk)).tickets] == [late]
    assert (await desk.row(soon)).wake_at == NOW + SECOND


async def test_a_lane_is_given_back_though_one_that_went_without_it_ends_in_the_same_group(desk: Desk) -> None:
    holder, late = await desk.add_all(_late(3), _late(2, expires_at=NOW))
    await _claim(desk)
    skipped = model.Skipped(reason="expired")
    ends = [settlement(holder, transition=model.Completed()), builders.withheld(late, transition=skipped)]
    await desk.write(store.settlements.apply, ends, now=LATER)
    assert await _lanes(desk) == {}


async def test_what_expired_beside_a_holder_frees_nobodys_lane(desk: Desk) -> None:
    holder = await desk.add(**_late(3))
    await _claim(desk)
    expired = await desk.add(**_late(2, expires_at=NOW))
    await _claim(desk)
    await _end(desk, expired, model.Skipped(reason="expired"))
    assert await _lanes(desk) == {LANE: (holder, NOW + LEASE)}


async def test_a_renewed_lease_can_take_its_lane_along(desk: Desk) -> None:
    holder = await desk.add(**_late(3))
    await _claim(desk)
    held = Held(delivery_id=holder, lane_key=LANE, resource=None)
    stranger = Held(delivery_id=builders.new_id(), lane_key=LANE, resource=None)
    await desk.write(store.lanes.extend, [(held, NOW + HOUR), (stranger, NOW)])
    assert await _lanes(desk) == {LANE: (holder, NOW + HOUR)}


async def test_a_claim_that_meets_a_lane_being_given_back_does_not_miss_it(desk: Desk) -> None:
    """Either it sees the lane given back, or whoever gives it back sees the one that was parked."""
    holder = await desk.add(**_late(3))
    await _claim(desk)
    second = await desk.add(**_late(2))
    async with hands(desk.url, 1) as (first,):
        await first.do(store.settlements.apply, [settlement(holder)], now=LATER)
        claiming = asyncio.create_task(_claim(desk, me=YOU))
        await until_blocked(desk.url)
        await first.commit()
        claimed = await claiming
    row = await desk.row(second)
    assert row.held_by is None
    assert [ticket.id for ticket in claimed.tickets] == [second] or row.wake_at <= LATER + SECOND


async def test_a_settle_that_meets_a_claim_wakes_the_one_that_it_parked(server_desk: Desk) -> None:
    desk = server_desk
    holder = await desk.add(**_late(3))
    await _claim(desk)
    second = await desk.add(**_late(2))
    async with hands(desk.url, 1) as (first,):
        assert (await first.do(store.claims.claim, wish(me=YOU))).parked == 1
        ending = asyncio.create_task(_end(desk, holder, model.Completed()))
        await until_blocked(desk.url)
        await first.commit()
        await ending
    row = await desk.row(second)
    assert (row.held_by, row.wake_at) == (None, LATER)


async def test_two_claims_that_want_the_same_lanes_take_each_once(desk: Desk) -> None:
    keys = [f"lane:{number}" for number in range(5)]
    await desk.add_all(*(_late(9 - number, lane_key=key) for key in keys for number in range(2)))
    async with hands(desk.url, 1) as (first,):
        mine = await first.do(store.claims.claim, wish(free=5, me=ME))
        claiming = asyncio.create_task(_claim(desk, me=YOU))
        await until_blocked(desk.url)
        await first.commit()
        yours = await claiming
    taken = [ticket.lane_key for ticket in [*mine.tickets, *yours.tickets]]
    assert sorted(str(key) for key in taken) == keys
    assert is_file(desk.url) or mine.tickets


# --- slots


async def test_no_more_are_under_way_than_a_resource_has_places(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 2)
    made = await desk.add_all(*(_late(9 - number, lane_key=None, resource=CALLS) for number in range(5)))
    claimed = await _claim(desk)
    assert [ticket.id for ticket in claimed.tickets] == made[:2]
    assert set(await _slots(desk)) == set(made[:2])
    for one in made[2:]:
        row = await desk.row(one)
        assert (row.state, row.held_by, row.wake_at) == (State.SCHEDULED, CALLS, NOW + PARKED)


async def test_a_place_that_is_taken_is_not_given_again(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 1)
    first = await desk.add(**_late(2, lane_key=None, resource=CALLS))
    await _claim(desk)
    await desk.add(**_late(1, lane_key=None, resource=CALLS))
    assert (await _claim(desk, me=YOU)).tickets == []
    assert await _slots(desk) == [first]


async def test_a_place_given_back_wakes_one_who_waits_the_longest_due_first(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 1)
    first, second, third = await desk.add_all(*(_late(9 - number, lane_key=None, resource=CALLS) for number in range(3)))
    await _claim(desk)
    await _end(desk, first, model.Completed())
    assert await _slots(desk) == [None]
    assert [(await desk.row(one)).held_by for one in (second, third)] == [None, CALLS]
    assert (await desk.row(second)).wake_at == LATER


async def test_an_accepted_call_keeps_its_place(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 1)
    it = await desk.add(**_late(1, lane_key=None, resource=CALLS))
    await _claim(desk)
    await _end(desk, it, model.Awaiting(what="callback", until=NOW + HOUR))
    assert await _slots(desk) == [it]


async def test_without_a_place_a_lane_is_not_kept_from_others(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 0)
    bound, free = await desk.add_all(_late(2, resource=CALLS), _late(1))
    assert (await _claim(desk)).tickets == []
    assert (await desk.row(bound)).held_by == CALLS
    assert await _lanes(desk) == {}
    assert [ticket.id for ticket in (await _claim(desk, now=NOW + SECOND)).tickets] == [free]


async def test_a_resource_can_have_fewer_places_or_more(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 3)
    await desk.add_all(*(_late(number, lane_key=None, resource=CALLS) for number in range(2)))
    await _claim(desk)
    await desk.write(store.lanes.provide, CALLS, 1)
    assert (len(await _slots(desk)), await desk.read(store.lanes.free, CALLS)) == (2, 0)
    await desk.write(store.lanes.provide, CALLS, 4)
    assert await desk.read(store.lanes.free, CALLS) == 2


async def test_who_waits_for_a_place_is_found_by_comparing_too(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 2)
    made = await desk.add_all(*(_late(9 - number, lane_key=None, held_by=CALLS, wake_at=LATER) for number in range(3)))
    assert await desk.write(store.lanes.fill, [CALLS, "slots:none"], now=NOW) == 2
    assert [(await desk.row(one)).held_by for one in made] == [None, None, CALLS]


# --- the net


async def test_a_lane_or_place_without_a_live_holder_is_swept(desk: Desk) -> None:
    await desk.write(store.lanes.provide, CALLS, 3)
    live, gone = await desk.add_all(_late(1, resource=CALLS), _late(2, lane_key=OTHER, resource=CALLS))
    await _claim(desk)
    waits = await desk.add(**_late(0, lane_key=OTHER))
    await _claim(desk)
    await desk.write(_forget, gone)
    assert await desk.write(store.lanes.sweep, now=LATER) == 2
    assert set(await _lanes(desk)) == {LANE}
    assert sorted(map(str, await _slots(desk))) == sorted(map(str, [live, None, None]))
    assert (await desk.row(waits)).held_by is None
    assert await desk.write(store.lanes.sweep, now=LATER) == 0


async def test_who_waits_for_a_lane_that_nobody_holds_is_swept(desk: Desk) -> None:
    it = await desk.add(**_late(1, held_by=LANE, wake_at=NOW + HOUR))
    assert await desk.write(store.lanes.sweep, now=NOW) == 1
    assert (await desk.row(it)).wake_at == NOW


def _forget(connection: Any, it: UUID) -> None:
    ended = {"state": int(State.COMPLETED), "wake_at": None, "lease_owner": None}
    connection.execute(schema.deliveries.update().where(schema.deliveries.c.id == it).values(**ended))
