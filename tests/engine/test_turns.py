"""Whose turn it is in an engine's claims, and from which instants on it looks."""

from __future__ import annotations

from uuid import UUID

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.engine.claim import FLOORLESS, REVERSED, Claimer
from campana.engine.options import Options
from campana.store.engines import Board
from campana.testing.chance import SeededChance
from campana.world import World
from tests.engine.builders import SECOND, TENANT, Bench, round_of

NARROW = Options(batch=4, in_flight=4)
NOBODY = Board(off=frozenset(), suspended=frozenset())


async def add_tenant(bench: Bench, tenant_id: UUID) -> None:
    await bench.database.write(store.tenants.ensure, f"tenant {tenant_id}", tenant_id=tenant_id, now=bench.now)


def claimer(bench: Bench) -> Claimer:
    return Claimer(me=UUID(int=9), world=World(bench.clock, SeededChance(1)), options=NARROW, window=64)


def served(bench: Bench) -> set[UUID]:
    return {arrival.parcel.tenant_id for arrival in bench.channel.receiver.arrivals}


async def test_behind_a_backlog_every_tenant_has_its_turn(bench: Bench) -> None:
    tenants = [UUID(int=number) for number in (11, 12, 13)]
    for place, tenant_id in enumerate(tenants):
        await add_tenant(bench, tenant_id)
        for number in range(30):
            await bench.add(100 * place + number, tenant_id=tenant_id)
    engine = bench.engine(options=NARROW)
    for _ in range(1 + len(tenants)):
        await round_of(engine)
    assert served(bench) == set(tenants)


async def test_behind_what_is_urgent_all_else_has_its_turn(bench: Bench) -> None:
    await add_tenant(bench, TENANT)
    for number in range(50):
        await bench.change(await bench.add(number), priority=0)
    patient = await bench.add(50)
    await bench.change(patient, priority=2)
    engine = bench.engine(options=NARROW)
    for _ in range(1 + REVERSED):
        await round_of(engine)
    assert await bench.states(patient) == [State.COMPLETED]


async def test_what_was_written_before_and_is_durable_after_a_claim_is_found_by_the_next_one(bench: Bench) -> None:
    engine, late = bench.engine(), await bench.add(after=60 * SECOND)
    await bench.add(2)
    await round_of(engine)
    await bench.change(late, wake_at=bench.now - 0.9 * SECOND)
    await round_of(engine)
    assert await bench.states(late) == [State.COMPLETED]


@pytest.mark.parametrize("below", [2, 3_600])
async def test_what_turns_up_far_below_the_floor_is_found_within_seconds(bench: Bench, below: int) -> None:
    engine, late = bench.engine(), await bench.add(after=60 * SECOND)
    await bench.add(2)
    await round_of(engine)
    await bench.change(late, wake_at=bench.now - below * SECOND)
    await bench.sleep(FLOORLESS)
    await round_of(engine)
    assert await bench.states(late) == [State.COMPLETED]


async def test_no_two_claims_share_a_leases_end_though_the_clock_steps_back(bench: Bench) -> None:
    mine, ends = claimer(bench), []
    for back in (0, 0, 1, 5):
        bench.clock.heed(bench.now - back * SECOND, bench.clock.steady(), bench.clock.steady())
        ends.append(mine.wish({"webhook": 4}, free=4, suspects=0, board=NOBODY).lease_until)
    assert len(set(ends)) == len(ends)
    assert ends == sorted(ends)
