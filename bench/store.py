"""What the store does without any sends: claims as an engine makes them, settles, ledger claims. Each prints one JSON object.

python -m bench.store waiting URL COUNT                so many rows, due tomorrow, stay behind
python -m bench.store bare-ledger URL KEYS BATCH       the same keys by the bare INSERT (PostgreSQL)
python -m bench.store claims URL WAITING ROUNDS        claims of 100 with so many rows due: median milliseconds, rows a second
python -m bench.store fairness URL DUE SMALL FAIR      a tenant's DUE rows before one each of SMALL tenants; FAIR is 0 or 1
python -m bench.store parking URL HELD ROUNDS          claims beside so many rows of a tenant that is switched off
python -m bench.store lanes URL CALLS PEOPLE           calls on a lane for each person, 4 at it; PEOPLE 0 means without lanes
python -m bench.store ledger URL KEYS BATCH            keys claimed by 8 at once, in batches of so many
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from statistics import median
from typing import Any
from uuid import UUID

from bench.multiply import multiply
from bench.product import PAYLOAD
from campana import store, world
from campana.domain import deliveries as model
from campana.domain import outcomes
from campana.domain.tickets import Attempt, NewDelivery, Settlement, Ticket, Withheld
from campana.engine.claim import Claimer
from campana.engine.options import Options
from campana.operations.deliveries import compact
from campana.store.database import Database, Urgency
from campana.store.engines import Board
from campana.store.ledger import Claim, Key
from campana.store.servers import ServerRunner
from campana.store.sqlite import FileRunner
from campana.telemetry import Telemetry

BATCH, WORKERS, TOGETHER = 100, 4, 8
BIG, OTHER = UUID(int=1), UUID(int=2)
ANSWER = outcomes.Delivered(answer=outcomes.Answer(code=200))


class Hand:
    """An engine's way to the store: it claims as one does, and settles at once."""

    def __init__(self, database: Database, earth: world.World, tenants: Iterable[UUID] = ()) -> None:
        self.me = earth.new_id()
        self.claims: list[float] = []
        self._database = database
        self._clock = earth.clock
        self._board = Board(off=frozenset(), suspended=frozenset(), tenants=tuple(sorted(tenants)))
        self._claimer = Claimer(me=self.me, world=earth, options=Options(), window=database.dialect.fair_window)

    async def claim(self) -> Sequence[Ticket]:
        """Return what one claim got, whose time is kept in milliseconds."""
        wish = self._claimer.wish({"webhook": BATCH}, free=BATCH, suspects=1, board=self._board)
        began = time.perf_counter()
        claimed = await self._database.claim(wish)
        self.claims.append(1000 * (time.perf_counter() - began))
        self._claimer.learn(claimed)
        return claimed.tickets

    async def settle(self, tickets: Sequence[Ticket], parked: UUID | None = None) -> None:
        """Write that all were delivered, those of one tenant that they are parked."""
        now = self._clock.now()
        group = [self._parked(one, now) if one.tenant_id == parked else self._delivered(one, now) for one in tickets]
        if group:
            await self._database.urgently(Urgency.SETTLE, store.settlements.apply, group, now=now)

    def _delivered(self, one: Ticket, now: datetime) -> Settlement:
        attempt = Attempt(
            outcome=ANSWER, number=one.number, key_number=one.key_number, started_at=now, finished_at=now, worker=self.me
        )
        return _settlement(one, model.Completed(), attempt=attempt)

    def _parked(self, one: Ticket, now: datetime) -> Settlement:
        held = model.Returned(at=now + model.PARKED, reason="switched_off", held_by=f"tenant:{one.tenant_id}")
        return _settlement(one, held, withheld=Withheld(at=now, guards="switch", verdict="hold"))


def _settlement(one: Ticket, transition: model.Transition, **said: Any) -> Settlement:
    return Settlement(
        delivery_id=one.id,
        tenant_id=one.tenant_id,
        fence=one.fence,
        generation=one.generation,
        transition=transition,
        key_number=one.key_number,
        **said,
    )


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Database, world.World]]:
    """Open a store as an engine does."""
    earth, telemetry = world.real(), Telemetry()
    runner = FileRunner(url) if url.startswith("sqlite") else ServerRunner(url, size=TOGETHER)
    database = Database(runner, earth, telemetry)
    try:
        yield database, earth
    finally:
        await database.close()


def _row(earth: world.World, tenant: UUID, at: datetime, lane: str | None = None) -> NewDelivery:
    return NewDelivery(
        id=earth.new_id(),
        tenant_id=tenant,
        project_id=tenant,
        queue="webhook",
        channel="webhook",
        target='{"url":"http://127.0.0.1:1/"}',
        payload=compact(PAYLOAD),
        policies="{}",
        max_attempts=8,
        scheduled_for=at,
        due_at=at,
        created_at=at,
        lane_key=lane,
    )


async def _put(database: Database, rows: Sequence[NewDelivery]) -> None:
    for start in range(0, len(rows), 1_000):
        part = rows[start : start + 1_000]
        await database.write(store.deliveries.create, part, now=part[0].due_at)


async def _drain(hand: Hand, count: int) -> dict[UUID, float]:
    """Work through so many rows; return when each tenant was served first, in seconds."""
    first: dict[UUID, float] = {}
    began, done = time.perf_counter(), 0
    while done < count and (tickets := await hand.claim()):
        for one in tickets:
            first.setdefault(one.tenant_id, time.perf_counter() - began)
        await hand.settle(tickets)
        done += len(tickets)
    return first


async def claims(url: str, waiting: int, rounds: int) -> dict[str, float]:
    """Claim from a deep queue."""
    async with opened(url) as (database, earth):
        await _put(database, [_row(earth, BIG, earth.clock.now() - timedelta(hours=1))])
        await multiply(database, waiting)
        hand, began = Hand(database, earth, [BIG]), time.perf_counter()
        await _drain(hand, rounds * BATCH)
        return {"ms": median(hand.claims), "rate": rounds * BATCH / (time.perf_counter() - began)}


async def waiting(url: str, count: int) -> dict[str, float]:
    """Leave so many rows that are due tomorrow."""
    async with opened(url) as (database, earth):
        await _put(database, [_row(earth, BIG, earth.clock.now() + timedelta(days=1))])
        await multiply(database, count)
        return {"count": count}


async def fairness(url: str, due: int, small: int, fair: int) -> dict[str, float]:
    """Drain three times as many rows as there are small tenants, from behind one with far more."""
    async with opened(url) as (database, earth):
        await _put(database, [_row(earth, BIG, earth.clock.now() - timedelta(hours=1))])
        await multiply(database, due)
        others = [earth.new_id() for _ in range(small)]
        await _put(database, [_row(earth, other, earth.clock.now() - timedelta(minutes=1)) for other in others])
        hand, began = Hand(database, earth, [BIG, *others] if fair else ()), time.perf_counter()
        first = await _drain(hand, 3 * small)
        rate = 3 * small / (time.perf_counter() - began)
        served = [first[other] for other in others if other in first]
        return {"rate": rate, "served": len(served), "longest": max(served, default=0.0), "small": small}


async def parking(url: str, held: int, rounds: int) -> dict[str, float]:
    """Park what is switched off, then claim what is not; `again` counts rows that were claimed more than once."""
    async with opened(url) as (database, earth):
        if held:
            await _put(database, [_row(earth, BIG, earth.clock.now() - timedelta(hours=1))])
            await multiply(database, held)
        at = earth.clock.now() - timedelta(minutes=1)
        await _put(database, [_row(earth, OTHER, at) for _ in range(rounds * BATCH)])
        hand, seen, began = Hand(database, earth, [BIG, OTHER]), Counter[UUID](), time.perf_counter()
        while seen.total() < held:
            tickets = await hand.claim()
            seen.update(one.id for one in tickets if one.tenant_id == BIG)
            await hand.settle(tickets, parked=BIG)
        took = time.perf_counter() - began
        await _put(database, [_row(earth, OTHER, at) for _ in range(rounds * BATCH)])
        hand.claims.clear()
        await _drain(hand, rounds * BATCH)
        again = sum(1 for count in seen.values() if count > 1)
        return {"ms": median(hand.claims), "again": again, "rate": held / took if held else 0.0}


async def lanes(url: str, calls: int, people: int) -> dict[str, float]:
    """Drain calls, of which each person gets one at a time; `overlaps` counts two at once."""
    async with opened(url) as (database, earth):
        at = earth.clock.now() - timedelta(minutes=1)
        keys = [f"lane:{number % people}" if people else None for number in range(calls)]
        await _put(database, [_row(earth, BIG, at, key) for key in keys])
        under_way, overlaps, done = set[str](), 0, 0

        async def work(hand: Hand) -> None:
            nonlocal overlaps, done
            while done < calls:
                tickets = await hand.claim()
                mine = {one.lane_key for one in tickets if one.lane_key}
                overlaps += len(mine & under_way) + len(tickets) * bool(people) - len(mine)
                under_way.update(mine)
                await asyncio.sleep(0 if tickets else 0.002)
                # Gone before it is written: the next one may have the lane as soon as the transaction is over.
                under_way.difference_update(mine)
                await hand.settle(tickets)
                done += len(tickets)

        began = time.perf_counter()
        await asyncio.gather(*(work(Hand(database, earth, [BIG])) for _ in range(WORKERS)))
        return {"rate": calls / (time.perf_counter() - began), "overlaps": overlaps}


def _keys(count: int, round_: str) -> list[Key]:
    return [
        Key(tenant_id=BIG, entity_type="order", entity_id=f"{round_}{n}", reminder_type="due", user_id="7") for n in range(count)
    ]


async def ledger(url: str, keys: int, batch: int) -> dict[str, float]:
    """Claim keys that nobody has, beside the bare INSERT of the same rows by as many connections (PostgreSQL)."""
    async with opened(url) as (database, earth):
        now = earth.clock.now()
        wanted = [Claim(token=earth.new_id(), key=key) for key in _keys(keys, "a")]
        parts = iter([wanted[start : start + batch] for start in range(0, keys, batch)])

        async def work() -> None:
            for part in parts:
                answers = await database.write(store.ledger.claim, part, now=now)
                assert all(one.first for one in answers)

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(TOGETHER)))
        return {"rate": keys / (time.perf_counter() - began)}


async def bare_ledger(url: str, keys: int, batch: int) -> dict[str, float]:
    """The INSERT ... ON CONFLICT of the same rows by as many connections, on PostgreSQL, with nothing around it."""
    import asyncpg

    pool = await asyncpg.create_pool(url.replace("+asyncpg", ""), min_size=TOGETHER, max_size=TOGETHER)
    earth = world.real()
    rows = [
        (earth.new_id(), BIG, one.entity_type, one.entity_id, one.reminder_type, one.user_id, 1, 1) for one in _keys(keys, "b")
    ]
    parts = iter([rows[start : start + batch] for start in range(0, keys, batch)])
    columns = "(id, tenant_id, entity_type, entity_id, reminder_type, user_id, claimed_at, sent_at)"
    values = (
        "select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])"
    )

    async def work() -> None:
        async with pool.acquire() as connection:
            for part in parts:
                await connection.execute(
                    f"insert into ledger {columns} {values} on conflict do nothing", *zip(*part, strict=True)
                )

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(TOGETHER)))
    rate = keys / (time.perf_counter() - began)
    await pool.close()
    return {"rate": rate}


COMMANDS: dict[str, Any] = {
    "waiting": waiting,
    "claims": claims,
    "fairness": fairness,
    "parking": parking,
    "lanes": lanes,
    "ledger": ledger,
    "bare-ledger": bare_ledger,
}


def _main(command: str, url: str, *numbers: str) -> None:
    try:
        import uvloop
    except ImportError:
        go: Any = asyncio.run
    else:
        go = uvloop.run
    print(json.dumps(go(COMMANDS[command](url, *map(int, numbers)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
