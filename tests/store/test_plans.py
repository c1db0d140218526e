"""What a claim, a settle, a look-up and a list cost on a million rows, most of them due, with and without statistics."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, func, select

from campana import store
from campana.domain import deliveries as model
from campana.domain import outcomes
from campana.store.candidates import Terms, Window
from campana.store.deliveries import Filter
from campana.store.schema import deliveries
from tests.store import builders, million
from tests.store.builders import HOUR, LEASE, ME, NOW, TENANT, YOU, settlement, wish
from tests.store.desk import Hand, hands
from tests.store.million import cost, number_id

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MOST = {"sqlite": 200, "postgresql": 6_000, "mysql": 2_000}
"""For a hundred rows claimed or settled. A scan of what is due costs ten to a thousand times as much."""


@pytest.fixture(scope="module")
def loaded(migrated: str) -> str:
    """The URL of a database with a million rows and no statistics."""

    async def load() -> None:
        async with hands(migrated, 1) as (one,):
            await one.do(million.load)
            await one.commit()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, load()).result()
    return migrated


@pytest.fixture(params=["fresh", "none"])
async def big(request: pytest.FixtureRequest, loaded: str) -> AsyncIterator[Hand]:
    """A transaction that is rolled back, on a million rows: the statistics are fresh, or there are none."""
    async with hands(loaded, 1) as (one,):
        await one.do(million.analyze if request.param == "fresh" else million.forget)
        await one.commit()
    async with hands(loaded, 1) as (one,):
        yield one
        await one.rollback()


def _most(kind: str, share: float = 1) -> float:
    return MOST[kind] * share


async def _is_cheap(big: Hand, function: Callable[..., Any], *args: Any, share: float = 1, **kwargs: Any) -> Any:
    found = await cost(big, function, *args, **kwargs)
    kind = await big.do(lambda connection: connection.dialect.name)
    assert found.work <= _most(kind, share), f"{found.work}:\n{found.plan}"
    # An empty table beside it may be read as it is.
    assert "Seq Scan Relation Name=deliveries" not in found.plan
    return found.result


async def test_a_claim_of_a_hundred_reads_a_hundred(big: Hand) -> None:
    claimed = await _is_cheap(big, store.claims.claim, wish(slots={"webhook": 400, "log": 5}, free=100, suspects=0))
    assert len(claimed.tickets) == 100


async def test_a_fair_claim_probes_each_tenant_alone_though_statistics_know_but_one(big: Hand) -> None:
    tenants = (*(UUID(int=number) for number in range(100, 160)), TENANT)
    window = Window(tenants=tenants, share=8, priorities=(0, 1, 2))
    asked = wish(slots={"webhook": 100}, free=100, suspects=0, window=window, backlog=frozenset({"webhook"}))
    claimed = await _is_cheap(big, store.claims.claim, asked)
    assert len(claimed.tickets) == 100


async def test_a_claim_of_suspects_reads_them_alone(big: Hand) -> None:
    claimed = await _is_cheap(big, store.claims.claim, wish(slots={"webhook": 1}, suspects=1))
    assert [ticket.is_suspect for ticket in claimed.tickets].count(True) == 1


async def test_a_claim_that_finds_nothing_due_is_cheap(big: Hand) -> None:
    claimed = await _is_cheap(big, store.claims.claim, wish(now=NOW - HOUR), share=0.3)
    assert claimed.tickets == []


async def test_when_to_wake_is_one_probe_for_each_queue(big: Hand) -> None:
    found = await _is_cheap(big, store.wakes.next_wake, ("webhook", "log", "python:x"), suspects=True, share=0.05)
    assert found < NOW


async def test_a_claim_that_landed_is_found_by_its_lease(big: Hand) -> None:
    await big.do(store.claims.claim, wish(free=100, suspects=0))
    found = await _is_cheap(big, store.claims.landed, wish(), share=0.3)
    assert len(found.tickets) == 100
    assert await _is_cheap(big, store.claims.landed, wish(me=YOU), share=0.3) is None


async def test_the_next_timer_is_one_probe(big: Hand) -> None:
    assert await _is_cheap(big, store.wakes.next_timer, share=0.05) is None
    await big.do(store.claims.claim, wish(free=100))
    assert await _is_cheap(big, store.wakes.next_timer, share=0.05) == NOW + LEASE


def _judge(row: store.settlements.Locked, _last: Any) -> Any:
    lost = builders.attempt(outcome=outcomes.Ambiguous(error="lost"), worker=row.lease_owner)
    back = model.Returned(at=NOW, reason="worker_lost")
    return settlement(row.id, fence=row.fence, transition=back, tried=lost, deaths=model.Deaths(all=1))


async def test_ending_leases_reads_those_that_are_over(big: Hand) -> None:
    words: dict[str, Any] = {"now": NOW + LEASE, "limit": 200, "sparing": None}
    assert await _is_cheap(big, store.settlements.reclaim, _judge, ["webhook"], **words, share=0.1) == []
    await big.do(store.claims.claim, wish(free=50, suspects=0))
    assert len(await _is_cheap(big, store.settlements.reclaim, _judge, ["webhook"], **words)) == 50


async def test_a_group_is_settled_by_its_ids(big: Hand) -> None:
    claimed = await big.do(store.claims.claim, wish(free=100, suspects=0))
    group = [settlement(ticket.id, fence=ticket.fence) for ticket in claimed.tickets]
    assert len((await _is_cheap(big, store.settlements.apply, group, now=NOW)).settled) == 100


async def test_leases_are_renewed_by_the_timers(big: Hand) -> None:
    claimed = await big.do(store.claims.claim, wish(free=50, suspects=0))
    held = [ticket.id for ticket in claimed.tickets]
    await _is_cheap(big, store.claims.renew, me=ME, held=held, now=NOW + LEASE / 2, lease=LEASE)


async def test_leases_of_dead_engines_are_ended_by_the_timers(big: Hand) -> None:
    await big.do(store.claims.claim, wish(free=50, suspects=0, me=YOU))
    assert await _is_cheap(big, store.claims.expire_others, me=ME, now=NOW) == 50


def _wear(connection: Connection) -> None:
    """Five thousand rows were under way, and left their entries in the index of timers."""
    c = deliveries.c
    some = deliveries.update().where(c.id >= number_id(million.FUTURE), c.id < number_id(million.FUTURE + 5_000))
    for state in (1, 0):
        connection.execute(some.values(state=state))


async def test_a_suspects_start_and_a_cancel_touch_their_row_alone(big: Hand) -> None:
    it = number_id(5)
    await big.do(_wear)
    await big.do(_claim_by_hand, 5)
    assert await _is_cheap(big, store.claims.start_suspect, it, 0, share=0.05) is True
    await _is_cheap(big, store.deliveries.cancel, TENANT, it, now=NOW, share=0.05)
    await _is_cheap(big, store.deliveries.cancel, TENANT, number_id(6), now=NOW, share=0.05)


async def test_a_group_is_settled_by_its_ids_in_a_worn_table_too(big: Hand) -> None:
    claimed = await big.do(store.claims.claim, wish(free=20, suspects=0))
    await big.do(_wear)
    group = [settlement(ticket.id, fence=ticket.fence) for ticket in claimed.tickets]
    assert len((await _is_cheap(big, store.settlements.apply, group, now=NOW, share=0.3)).settled) == 20


@pytest.mark.parametrize("off", ["hashjoin", "mergejoin", "material", "memoize", "nestloop", "every"])
async def test_no_plan_makes_a_claim_take_more_than_was_asked_for(big: Hand, off: str) -> None:
    await big.do(_disable, off)
    claimed = await big.do(store.claims.claim, wish(slots={"webhook": 400, "log": 400}, free=100, suspects=5))
    assert [ticket.is_suspect for ticket in claimed.tickets].count(False) == 100
    # Of suspects a full claim takes one, so that a backlog does not starve them.
    assert len(claimed.tickets) == 101
    terms = Terms(me=ME, now=NOW, lease_until=NOW + LEASE, run_until=NOW + HOUR, floors={})
    assert len(await big.do(store.candidates.suspects, terms, ["webhook", "log"], 5)) == 5
    changed = await big.do(lambda c: c.execute(select(func.count()).where(deliveries.c.lease_owner == ME)).scalar_one())
    assert changed == 106


def _disable(connection: Connection, off: str) -> None:
    if connection.dialect.name != "postgresql":
        return
    every = ("hashjoin", "mergejoin", "material", "memoize")
    for name in every if off == "every" else (off,):
        connection.exec_driver_sql(f"set local enable_{name} = off")


async def test_the_newest_are_read_from_the_end(big: Hand) -> None:
    for before in (None, number_id(500_000)):
        found = await _is_cheap(big, store.deliveries.newest, TENANT, Filter(), before=before, limit=50, share=0.1)
        assert len(found) == 50


async def test_what_nobody_matches_is_looked_for_in_one_window_alone(big: Hand) -> None:
    for wanted in (Filter(recipient="nobody"), Filter(labels={"a": "b"}), Filter(provider_call_id="x", due_to=NOW)):
        asked = store.deliveries.Window(before=number_id(500_000), limit=50, size=1_000)
        # A thousand rows are read, for a page of fifty; a walk to the end would read five hundred times as many.
        seen = await _is_cheap(big, store.deliveries.window, TENANT, wanted, asked, share=1.5)
        assert (seen.records, seen.end) == ([], number_id(499_000))


async def test_a_key_is_looked_up_by_its_index(big: Hand) -> None:
    new = [builders.delivery(dedupe_key=f"key {number}") for number in (7, 940_000, 5_000_000)]
    made = await _is_cheap(big, store.deliveries.create, new, now=NOW, share=0.1)
    assert [one.deduplicated for one in made] == [True, True, False]
    found = await _is_cheap(big, store.deliveries.newest, TENANT, Filter(dedupe_key="key 7"), before=None, limit=50, share=0.1)
    assert [one.id for one in found] == [number_id(7)]


async def test_scopes_that_hold_anything_are_found_among_the_held(big: Hand) -> None:
    assert await _is_cheap(big, store.holds.scopes, share=0.5) == ["tenant:x"]


def _claim_by_hand(connection: Connection, number: int) -> None:
    table = deliveries
    connection.execute(table.update().where(table.c.id == number_id(number)).values(state=1, lease_owner=ME))
