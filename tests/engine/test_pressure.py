"""What holds when everything comes at once: switches that flip and a pool without a free connection."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta

import pytest

from campana.domain.ambiguity import Contract, OnAmbiguous
from campana.domain.deliveries import State
from campana.domain.switches import tenant
from campana.engine.options import Options
from campana.testing.channel import REPEATABLE, ScriptedChannel, deliver
from tests.engine.builders import SECOND, TENANT, Bench, ServerRunner, away, running

ONCE = Contract(repeatable=False, on_ambiguous=OnAmbiguous.HOLD)
FLIPS, WORK = 1_000, 600
BOUND = {True: 2 * SECOND, False: timedelta(0)}


async def flip(bench: Bench) -> list[tuple[datetime, datetime]]:
    """A tenant's switch thrown and lifted a thousand times; from when until when it was off, by the database's order."""
    dice, off, since = random.Random(5), [], bench.now
    for number in range(FLIPS):
        is_off = number % 2 == 0
        await bench.throw(tenant(TENANT), off=is_off)
        if is_off:
            since = bench.now
        else:
            off.append((since, bench.now))
        await bench.sleep(dice.choice((0.01, 0.1, 0.7, 2.5)))
    return off


@pytest.mark.parametrize("contract", [REPEATABLE, ONCE], ids=["repeatable", "once"])
async def test_a_switch_that_flips_a_thousand_times_under_load_loses_nothing_and_holds_while_it_is_off(
    bench: Bench, contract: Contract
) -> None:
    dice = random.Random(3)
    bench.channel = ScriptedChannel(
        bench.clock, lambda _: deliver(connecting=dice.random(), answering=dice.random()), contract=contract
    )
    ids = [await bench.add(number, after=number * SECOND, on_ambiguous=contract.on_ambiguous) for number in range(WORK)]
    async with running(bench.engine(), bench.engine()):
        off = await flip(bench)
        await bench.sleep(600)
    assert await bench.states(*ids) == [State.COMPLETED] * WORK
    assert set(bench.channel.receiver.effects.values()) == {1}
    assert len(bench.channel.receiver.arrivals) == WORK
    bound = BOUND[contract.repeatable]
    sent = [arrival.at for arrival in bench.channel.receiver.arrivals]
    assert [at for at in sent for since, until in off if since + bound < at < until] == []


async def test_leases_live_on_while_no_connection_for_the_work_is_free(bench: Bench) -> None:
    work = ServerRunner(bench.inner, bench.clock)
    options = Options(lease=6 * SECOND, renewal=2 * SECOND)
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=25)])
    mine, other = bench.engine(options=options, runner=work, pulse=bench.runner), bench.engine(options=options)
    one = await bench.add()
    async with running(mine):
        await bench.sleep(0.5)
        work.broken = away
        async with running(other):
            await bench.sleep(22)
            row = await bench.row(one)
            assert (State(row.state), row.fence, row.lease_owner) == (State.PROCESSING, 1, mine.id)
            work.broken = lambda: None
            await bench.sleep(20)
    assert await bench.states(one) == [State.COMPLETED]
    assert len(bench.channel.receiver.arrivals) == 1


async def test_what_has_ended_and_could_not_be_written_yet_is_not_sent_again_by_another(bench: Bench) -> None:
    work = ServerRunner(bench.inner, bench.clock)
    options = Options(lease=6 * SECOND, renewal=2 * SECOND)
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=2)])
    mine, other = bench.engine(options=options, runner=work, pulse=bench.runner), bench.engine(options=options)
    one = await bench.add()
    async with running(mine):
        await bench.sleep(0.5)
        work.broken = away
        async with running(other):
            await bench.sleep(30)
            assert (await bench.row(one)).lease_owner == mine.id
            work.broken = lambda: None
            await bench.sleep(5)
    assert await bench.states(one) == [State.COMPLETED]
    assert len(bench.channel.receiver.arrivals) == 1


async def test_leases_live_on_until_the_last_delivery_ends_while_the_engine_stops(bench: Bench) -> None:
    options = Options(lease=6 * SECOND, renewal=2 * SECOND, grace=60 * SECOND)
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=25)])
    leaving, one = bench.engine(options=options), await bench.add()
    task = asyncio.create_task(leaving.run())
    await bench.sleep(0.5)
    leaving.stop()
    async with running(bench.engine(options=options)):
        await bench.sleep(22)
        assert (await bench.row(one)).lease_owner == leaving.id
        await task
    assert await bench.states(one) == [State.COMPLETED]
    assert len(bench.channel.receiver.arrivals) == 1
