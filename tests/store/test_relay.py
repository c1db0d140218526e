"""The relay: numbers without a gap, in the order of the commits, from one holder at a time."""

import asyncio
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, delete

from campana import store
from campana.store.events import NewEvent
from campana.store.schema import events, leases
from tests.store.builders import ME, NOW, OTHER_TENANT, SECOND, TENANT, YOU
from tests.store.desk import Desk, execute, hand, hands, until_blocked

LENGTH = 10 * SECOND


def _event(kind: str, tenant_id: UUID = TENANT) -> NewEvent:
    return NewEvent(tenant_id=tenant_id, kind=kind, at=NOW)


async def _write(desk: Desk, *kinds: str) -> None:
    await desk.write(store.events.write, [_event(kind) for kind in kinds])


async def _number(desk: Desk, me: UUID = ME, *, now: datetime = NOW, limit: int = 100) -> int | None:
    return await desk.write(store.relay.number, me, now=now, length=LENGTH, limit=limit)


async def _stream(desk: Desk) -> list[tuple[int, str]]:
    return sorted((row.number, row.kind) for row in await desk.rows(events) if row.number is not None)


async def test_events_are_numbered_from_one_in_their_order(desk: Desk) -> None:
    await _write(desk, "a", "b")
    await _write(desk, "c")
    assert await _number(desk) == 3
    assert await _stream(desk) == [(1, "a"), (2, "b"), (3, "c")]
    assert await _number(desk) == 0


async def test_a_batch_is_no_larger_than_its_limit_and_the_next_goes_on(desk: Desk) -> None:
    await _write(desk, *"abcde")
    assert [await _number(desk, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert await _stream(desk) == list(enumerate("abcde", 1))


async def test_numbers_go_on_when_everything_before_is_gone(desk: Desk) -> None:
    await _write(desk, "a", "b")
    await _number(desk)
    await desk.write(execute, delete(events))
    await _write(desk, "c")
    await _number(desk)
    assert await _stream(desk) == [(3, "c")]


async def test_gaps_among_the_ids_leave_none_among_the_numbers(desk: Desk) -> None:
    await _write(desk, *"abcdefg")

    def drop(connection: Connection) -> None:
        connection.execute(delete(events).where(events.c.kind.in_(["b", "c", "e"])))

    await desk.write(drop)
    assert await _number(desk) == 4
    assert await _stream(desk) == list(enumerate("adfg", 1))


async def test_what_commits_late_is_numbered_late_and_missed_by_nobody(server_desk: Desk) -> None:
    desk, late = server_desk, await hand(server_desk.url)
    await late.do(store.events.write, [_event("early id, late commit")])
    await _write(desk, "committed first")
    assert await _number(desk) == 1
    seen = await desk.read(store.events.after, TENANT, 0, limit=10)
    await late.commit()
    await late.close()
    assert await _number(desk) == 1
    more = await desk.read(store.events.after, TENANT, seen[-1].number, limit=10)
    assert [(row.number, row.kind) for row in (*seen, *more)] == [(1, "committed first"), (2, "early id, late commit")]
    assert more[0].id < seen[0].id


async def test_one_that_commits_between_two_others_is_not_numbered_with_them(server_desk: Desk) -> None:
    desk, late = server_desk, await hand(server_desk.url)
    await _write(desk, "a")
    await late.do(store.events.write, [_event("b")])
    await _write(desk, "c")
    relay = await hand(desk.url)
    assert await relay.do(store.relay.number, ME, now=NOW, length=LENGTH, limit=10) == 2
    await late.commit()
    await relay.commit()
    for one in (late, relay):
        await one.close()
    assert await _stream(desk) == [(1, "a"), (2, "c")]
    await _number(desk)
    assert await _stream(desk) == [(1, "a"), (2, "c"), (3, "b")]


async def test_of_two_relays_at_once_one_numbers(desk: Desk) -> None:
    await _write(desk, *"abc")
    async with hands(desk.url, 1) as (first,):
        assert await first.do(store.relay.number, ME, now=NOW, length=LENGTH, limit=2) == 2
        second = asyncio.create_task(_number(desk, YOU))
        await until_blocked(desk.url)
        await first.commit()
    assert await second is None
    assert await _stream(desk) == [(1, "a"), (2, "b")]


async def test_a_relay_frozen_in_mid_transaction_holds_up_its_successor_and_doubles_nothing(desk: Desk) -> None:
    await _write(desk, *"abc")
    async with hands(desk.url, 1) as (frozen,):
        assert await frozen.do(store.relay.number, ME, now=NOW, length=LENGTH, limit=2) == 2
        # By its own clock the lease has long ended: what counts is the row.
        successor = asyncio.create_task(_number(desk, YOU, now=NOW + 3 * LENGTH))
        await until_blocked(desk.url)
        await frozen.commit()
    assert await successor == 1
    assert await _stream(desk) == list(enumerate("abc", 1))


async def test_a_frozen_relay_that_wakes_up_numbers_nothing_any_more(desk: Desk) -> None:
    await _write(desk, "a")
    assert await _number(desk) == 1
    assert await _number(desk, YOU, now=NOW + 2 * LENGTH) == 0
    await _write(desk, "b")
    assert await _number(desk, now=NOW + 2 * LENGTH) is None
    assert await _number(desk, YOU, now=NOW + 2 * LENGTH) == 1
    assert await _stream(desk) == [(1, "a"), (2, "b")]
    (lease,) = await desk.rows(leases)
    assert (lease.holder, lease.fence, lease.cursor) == (YOU, 2, 2)


async def test_a_relay_is_wanted_where_something_waits_and_nobody_else_is_there(desk: Desk) -> None:
    async def wanted(me: UUID, now: datetime = NOW) -> bool:
        return await desk.read(store.relay.is_wanted, me, now=now)

    assert not await wanted(ME)
    await _write(desk, "a")
    assert await wanted(ME)
    await _number(desk)
    await _write(desk, "b")
    assert [await wanted(ME), await wanted(YOU), await wanted(YOU, NOW + 2 * LENGTH)] == [True, False, True]
    await desk.write(store.engines.leave, ME, now=NOW)
    assert await wanted(YOU)


async def test_a_reader_sees_its_own_tenants_events_past_its_number(desk: Desk) -> None:
    await desk.write(store.events.write, [_event("a"), _event("b", OTHER_TENANT), _event("c"), _event("d")])
    await _number(desk)
    await _write(desk, "not numbered yet")
    assert [row.kind for row in await desk.read(store.events.after, TENANT, 1, limit=10)] == ["c", "d"]
    assert [row.number for row in await desk.read(store.events.after, TENANT, 0, limit=2)] == [1, 3]
    assert [row.kind for row in await desk.read(store.events.after, OTHER_TENANT, 0, limit=10)] == ["b"]
