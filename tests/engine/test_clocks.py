"""Whose time counts: the database's. A host whose own clock is wrong by minutes sends neither early nor late."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from campana.domain.deliveries import State
from campana.testing.channel import ScriptedChannel, deliver
from campana.testing.clock import VirtualClock
from tests.engine.builders import SECOND, Bench, ServerRunner, running

MINUTES = timedelta(minutes=7)


@pytest.mark.parametrize("wrong", [MINUTES, -MINUTES], ids=["ahead", "behind"])
async def test_a_host_whose_clock_is_wrong_sends_at_the_databases_instant(bench: Bench, wrong: timedelta) -> None:
    clock = VirtualClock(asyncio.get_running_loop(), wrong=wrong)
    bench.channel = ScriptedChannel(bench.clock)
    began = bench.now
    one = await bench.add(after=5 * SECOND)
    async with running(bench.engine(clock=clock)):
        await bench.sleep(6)
    (arrival,) = bench.channel.receiver.arrivals
    assert 5 * SECOND <= arrival.at - began < 5.01 * SECOND
    assert await bench.states(one) == [State.COMPLETED]
    assert clock.offset == pytest.approx(-wrong.total_seconds())


@pytest.mark.parametrize("wrong", [MINUTES, -MINUTES], ids=["ahead", "behind"])
async def test_a_host_whose_clock_is_wrong_takes_leases_of_the_right_length(bench: Bench, wrong: timedelta) -> None:
    clock = VirtualClock(asyncio.get_running_loop(), wrong=wrong)
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=5))
    one = await bench.add()
    async with running(bench.engine(clock=clock)):
        await bench.sleep(1)
        row = await bench.row(one)
        assert abs((row.wake_at - bench.now) - timedelta(seconds=59)) < SECOND


@pytest.mark.parametrize("step", [MINUTES, -MINUTES], ids=["forward", "back"])
async def test_a_step_of_the_hosts_clock_changes_nothing(bench: Bench, step: timedelta) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=1))
    began = bench.now
    ids = [await bench.add(number, after=number * SECOND) for number in range(10)]
    async with running(bench.engine(clock=clock)):
        await bench.sleep(3.2)
        clock.step(step)
        await bench.sleep(10)
    assert await bench.states(*ids) == [State.COMPLETED] * 10
    waits = [(arrival.at - began) / SECOND for arrival in bench.channel.receiver.arrivals]
    assert waits == pytest.approx(range(10), abs=0.02)


async def test_slow_answers_say_little_about_the_time_and_are_not_heeded(bench: Bench) -> None:
    clock = bench.clock
    clock.heed(clock.true(), clock.steady(), clock.steady())
    now = clock.now()
    clock.heed(clock.true() + 60 * SECOND, clock.steady() - 0.5, clock.steady())
    assert clock.now() == now


async def test_on_a_file_a_tick_that_hung_does_not_shift_the_time(bench: Bench) -> None:
    async def hang() -> None:
        await bench.sleep(12)

    runner = ServerRunner(bench.inner, bench.clock, has_clock=False)
    runner.before.append(hang)
    engine = bench.engine(runner=runner, owns_file=True)
    await engine.tick_once()
    assert bench.clock.now() == bench.now
