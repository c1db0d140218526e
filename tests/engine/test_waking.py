"""When deliveries leave: at their instant, never before it, and as many as there is room for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from campana.domain import outcomes, retries
from campana.domain.deliveries import State
from campana.engine.options import Options
from campana.testing.channel import Act, ScriptedChannel, deliver, refuse
from tests.engine.builders import SECOND, Bench, idle, round_of, running

SHORTLY = timedelta(milliseconds=2)
"""What an exact wake-up may be late: the shortest sleep and the turns of the loop."""


async def test_a_delivery_that_is_due_is_sent_and_completed(bench: Bench) -> None:
    one, engine = await bench.add(), bench.engine()
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.attempt_count, row.fence, row.wake_at) == (State.COMPLETED, 1, 1, None)
    assert [attempt.outcome for attempt in await bench.attempts(one)] == ["delivered"]
    assert len(bench.channel.receiver.arrivals) == 1


async def test_nothing_is_claimed_a_microsecond_early(bench: Bench) -> None:
    one, engine = await bench.add(after=timedelta(seconds=1, microseconds=1)), bench.engine()
    await round_of(engine)
    await bench.sleep(1)
    await round_of(engine)
    assert await bench.states(one) == [State.SCHEDULED]
    await bench.sleep(0.000001)
    engine.wakeup.ring(bench.clock.now())
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]


@pytest.mark.parametrize("wait", [0.3, 1.0, 1.7, 12.345678])
async def test_a_sleeping_engine_wakes_at_the_instant(bench: Bench, wait: float) -> None:
    due = timedelta(seconds=wait)
    await bench.add(after=due)
    began = bench.now
    async with running(bench.engine()):
        await bench.sleep(wait + 2)
    (arrival,) = bench.channel.receiver.arrivals
    assert due <= arrival.at - began <= due + SHORTLY


async def test_new_earlier_work_wakes_at_its_own_instant_not_with_the_tick(bench: Bench) -> None:
    engine, began = bench.engine(), bench.now
    await bench.add(1, after=10 * SECOND)
    async with running(engine):
        await bench.sleep(0.35)
        await bench.add(2, after=0.1 * SECOND)
        engine.wakeup.ring(bench.now + 0.1 * SECOND)
        await bench.sleep(0.5)
    (arrival,) = bench.channel.receiver.arrivals
    assert 0.45 * SECOND <= arrival.at - began <= 0.45 * SECOND + SHORTLY


async def test_without_a_ring_the_tick_finds_new_work(bench: Bench) -> None:
    began = bench.now
    async with running(bench.engine()):
        await bench.sleep(0.35)
        await bench.add(1)
        await bench.sleep(2)
    (arrival,) = bench.channel.receiver.arrivals
    assert arrival.at - began <= 1.1 * SECOND


async def test_a_retry_leaves_at_its_instant(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [refuse()])
    one = await bench.add(retry=retries.Policy(base=timedelta(seconds=7, milliseconds=300)))
    async with running(bench.engine()):
        await bench.sleep(1)
        wake_at = (await bench.row(one)).wake_at
        await bench.sleep(10)
    first, second = bench.channel.receiver.arrivals
    assert 7.3 * SECOND <= second.at - first.at <= 7.4 * SECOND
    assert wake_at <= second.at <= wake_at + SHORTLY
    assert await bench.states(one) == [State.COMPLETED]


async def test_a_receiver_that_asks_for_later_gets_it(bench: Bench) -> None:
    later = outcomes.Failed(error="429", retry_after=timedelta(minutes=5))
    bench.channel = ScriptedChannel(bench.clock, [refuse(later)])
    one, began = await bench.add(), bench.now
    async with running(bench.engine()):
        await bench.sleep(310)
    assert bench.channel.receiver.arrivals[1].at - began >= timedelta(minutes=5)
    assert await bench.states(one) == [State.COMPLETED]


async def test_a_queue_gets_no_more_than_its_free_slots(bench: Bench) -> None:
    slow = ScriptedChannel(bench.clock, lambda _: deliver(answering=5))
    engine = bench.engine(channels={"webhook": slow}, queues={"webhook": 3})
    ids = [await bench.add(number) for number in range(5)]
    await engine.tick_once()
    await engine.pump_once()
    await bench.sleep(1)
    assert sorted(await bench.states(*ids)) == [State.SCHEDULED] * 2 + [State.PROCESSING] * 3
    assert len(slow.receiver.arrivals) == 3
    await idle(engine)
    await round_of(engine)
    assert await bench.states(*ids) == [State.COMPLETED] * 5


async def test_all_queues_together_get_no_more_than_the_engine_has_room_for(bench: Bench) -> None:
    slow = {name: ScriptedChannel(bench.clock, lambda _: deliver(answering=5), name=name) for name in ("webhook", "log")}
    engine = bench.engine(channels=slow, options=Options(in_flight=3))
    ids = [await bench.add(n, queue=queue, channel=queue) for n, queue in enumerate(("webhook", "log") * 4)]
    await engine.tick_once()
    await engine.pump_once()
    assert (await bench.states(*ids)).count(State.PROCESSING) == 3
    await idle(engine)


async def test_queues_take_turns_for_the_last_slot(bench: Bench) -> None:
    both = {name: ScriptedChannel(bench.clock, name=name) for name in ("webhook", "log")}
    engine = bench.engine(channels=both, options=Options(in_flight=1))
    for number, queue in enumerate(("webhook", "log") * 3):
        await bench.add(number, queue=queue, channel=queue)
    for _ in range(4):
        engine.wakeup.ring(bench.now)
        await round_of(engine)
    assert [len(channel.receiver.arrivals) for channel in both.values()] == [2, 2]


async def test_a_queue_that_nobody_serves_is_left_alone(bench: Bench) -> None:
    one, other = await bench.add(1, queue="python:absent", channel="python"), await bench.add(2)
    async with running(bench.engine()):
        await bench.sleep(5)
    row = await bench.row(one)
    assert (State(row.state), row.fence, row.attempt_count) == (State.SCHEDULED, 0, 0)
    assert await bench.states(other) == [State.COMPLETED]


async def test_one_slow_delivery_blocks_no_other(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [Act(outcome=outcomes.Delivered(), applies=True, answering=25)])
    slow = await bench.add(0)
    async with running(bench.engine()):
        await bench.sleep(0.5)
        others = [await bench.add(number) for number in range(1, 8)]
        await bench.sleep(2)
        assert await bench.states(*others) == [State.COMPLETED] * 7
        assert await bench.states(slow) == [State.PROCESSING]


async def test_a_freed_slot_is_filled_at_once(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=0.25))
    began = bench.now
    for number in range(6):
        await bench.add(number)
    async with running(bench.engine(queues={"webhook": 1})):
        await bench.sleep(3)
    waits = [(arrival.at - began) / SECOND for arrival in bench.channel.receiver.arrivals]
    assert waits == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1.25], abs=0.03)


async def test_an_idle_engine_asks_the_database_little(bench: Bench) -> None:
    engine = bench.engine()
    async with running(engine):
        await bench.sleep(12.5)  # not in the very moment in which they ask
        before = bench.telemetry.counts.copy()
        await bench.sleep(10)
        calls = bench.telemetry.counts - before
    asked = {name: number for name, number in calls.items() if name.startswith("store.")}
    assert asked == {"store.tick": 10, "store.due": 1}
