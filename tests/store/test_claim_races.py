"""Two claimers, one transaction held open while the other one works: scripted, not flooded."""

import asyncio
from uuid import UUID

from campana import store
from campana.domain import deliveries as model
from campana.domain.deliveries import State
from tests.store import builders
from tests.store.builders import ME, NOW, SECOND, YOU, wish
from tests.store.desk import Desk, hands, is_file


async def test_a_second_claimer_passes_over_what_the_first_has_locked(desk: Desk) -> None:
    rows = [{"wake_at": NOW - (10 - number) * SECOND} for number in range(6)]
    made = await desk.add_all(*rows)
    async with hands(desk.url, 1) as (first,):
        mine = await first.do(store.claims.claim, wish(free=2, me=ME))
        claiming = asyncio.create_task(desk.database.claim(wish(free=2, me=YOU)))
        # A server's second claimer does not wait for the first; on a file it comes after it. Neither sees the other's rows.
        yours = None if is_file(desk.url) else await claiming
        await first.commit()
        yours = yours or await claiming
    assert [ticket.id for ticket in mine.tickets] == made[:2]
    assert [ticket.id for ticket in yours.tickets] == made[2:4]
    assert [(await desk.row(one)).lease_owner for one in made] == [ME, ME, YOU, YOU, None, None]
    assert [(await desk.row(one)).fence for one in made] == [1, 1, 1, 1, 0, 0]


async def test_a_second_claimer_passes_over_a_suspect_that_the_first_has_locked(desk: Desk) -> None:
    await desk.add(crash_count=1)
    async with hands(desk.url, 1) as (first,):
        assert (await first.do(store.claims.claim, wish())).tickets
        claiming = asyncio.create_task(desk.database.claim(wish(me=YOU)))
        yours = None if is_file(desk.url) else await claiming
        await first.commit()
        yours = yours or await claiming
    assert yours.tickets == []


async def test_what_a_claimer_let_go_is_there_for_the_next(desk: Desk) -> None:
    it = await desk.add()
    async with hands(desk.url, 1) as (first,):
        await first.do(store.claims.claim, wish())
        await first.rollback()
    (ticket,) = (await desk.database.claim(wish(me=YOU))).tickets
    assert (ticket.id, ticket.fence) == (it, 1)


async def test_a_claim_passes_over_rows_that_are_being_settled(desk: Desk) -> None:
    busy = await desk.add(state=State.PROCESSING)
    waiting = await desk.add()
    async with hands(desk.url, 1) as (settler,):
        back = builders.withheld(busy, transition=model.Returned(at=NOW, reason="released"))
        await settler.do(store.settlements.apply, [back], now=NOW)
        claiming = asyncio.create_task(desk.database.claim(wish(me=YOU)))
        claimed = None if is_file(desk.url) else await claiming
        await settler.commit()
        claimed = claimed or await claiming
    taken = {ticket.id for ticket in claimed.tickets}
    assert taken == ({waiting, busy} if is_file(desk.url) else {waiting})


async def test_many_claimers_at_once_share_everything_out_and_nothing_twice(desk: Desk) -> None:
    made = await desk.add_all(*({"queue": queue} for queue in ("a", "b") for _ in range(60)))
    taken: list[tuple[object, int]] = []

    async def claim(number: int) -> None:
        me = UUID(int=100 + number)
        while (claimed := await desk.database.claim(wish(slots={"a": 7, "b": 5}, free=9, me=me))).tickets:
            taken.extend((ticket.id, ticket.fence) for ticket in claimed.tickets)

    await asyncio.gather(*(claim(number) for number in range(4)))
    assert sorted(taken, key=str) == sorted(((one, 1) for one in made), key=str)
