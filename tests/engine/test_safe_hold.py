"""Calls and messages after a restore, a long stop, a jump of the clock; and the environment's stop of all calls."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from campana import store
from campana.domain import switches
from campana.domain.deliveries import State
from campana.engine.engine import Engine
from campana.engine.options import Options
from campana.store.claims import Wish
from campana.testing.channel import ScriptedChannel, deliver
from campana.testing.clock import VirtualClock
from tests.engine.builders import SECOND, Bench, ServerRunner, away, idle, round_of, running

HOUR = timedelta(hours=1)


class Channels(dict[str, ScriptedChannel]):
    """Calls, messages and webhooks, which share one clock."""

    def __init__(self, bench: Bench) -> None:
        super().__init__({name: ScriptedChannel(bench.clock, name=name) for name in ("voice", "sms", "webhook")})

    @property
    def arrivals(self) -> dict[str, int]:
        return {name: len(one.receiver.arrivals) for name, one in self.items()}


def engine_of(bench: Bench, channels: Channels, options: Options = Options()) -> Engine:  # noqa: B008 - it is frozen
    return bench.engine(channels=channels, options=options)


async def add_one_each(bench: Bench, after: timedelta = timedelta(0)) -> None:
    for number, name in enumerate(("voice", "sms", "webhook")):
        await bench.add(number, channel=name, queue=name, after=after)


async def test_after_a_long_stop_calls_and_messages_wait_for_a_person_and_the_rest_goes(bench: Bench) -> None:
    channels = Channels(bench)
    async with running(engine_of(bench, channels)):
        await bench.sleep(1)
    await add_one_each(bench, after=HOUR)
    await bench.sleep(7_300)
    async with running(engine_of(bench, channels)):
        await bench.sleep(5)
        assert channels.arrivals == {"voice": 0, "sms": 0, "webhook": 1}
        await bench.throw(switches.SAFE_HOLD, off=False)
        await bench.sleep(5)
        assert channels.arrivals == {"voice": 1, "sms": 1, "webhook": 1}


async def test_a_second_engine_finds_the_hold_of_the_first(bench: Bench) -> None:
    channels = Channels(bench)
    async with running(engine_of(bench, channels)):
        await bench.sleep(1)
    await add_one_each(bench, after=HOUR)
    await bench.sleep(7_300)
    async with running(engine_of(bench, channels), engine_of(bench, channels)):
        await bench.sleep(5)
    assert channels.arrivals == {"voice": 0, "sms": 0, "webhook": 1}


async def test_a_short_stop_and_a_first_start_hold_nothing(bench: Bench) -> None:
    channels = Channels(bench)
    await add_one_each(bench)
    for _ in range(2):
        async with running(engine_of(bench, channels)):
            await bench.sleep(1)
        await bench.sleep(3_000)
    assert set(channels.arrivals.values()) == {1}


async def test_an_engine_that_was_cut_off_for_hours_holds_calls_when_it_comes_back(bench: Bench) -> None:
    channels = Channels(bench)
    async with running(engine_of(bench, channels)):
        await bench.sleep(1)
        await add_one_each(bench, after=HOUR)
        bench.runner.broken = away
        await bench.sleep(7_300)
        bench.runner.broken = lambda: None
        await bench.sleep(10)
    assert channels.arrivals == {"voice": 0, "sms": 0, "webhook": 1}


async def test_it_can_be_asked_for_at_the_start_and_is_asked_for_once(bench: Bench) -> None:
    channels = Channels(bench)
    await add_one_each(bench)
    engine = engine_of(bench, channels, Options(hold=True))
    await round_of(engine)
    assert channels.arrivals == {"voice": 0, "sms": 0, "webhook": 1}
    await bench.throw(switches.SAFE_HOLD, off=False)
    await engine.tick_once()
    await engine.release_once()
    await bench.sleep(0.1)
    await round_of(engine)
    assert channels.arrivals == {"voice": 1, "sms": 1, "webhook": 1}


async def test_the_environments_stop_holds_calls_whatever_the_switches_say(bench: Bench) -> None:
    channels = Channels(bench)
    await add_one_each(bench)
    engine = engine_of(bench, channels, Options(closed=frozenset({switches.DISABLED_CALLS})))
    for scope in (switches.DISABLED_CALLS, switches.everywhere("voice"), switches.ALL):
        await bench.throw(scope, off=False)
        await round_of(engine)
        assert await engine.release_once() == 0
    assert channels.arrivals == {"voice": 0, "sms": 1, "webhook": 1}
    other = engine_of(bench, channels)
    await other.tick_once()
    assert await other.release_once() == 1, "where it is not set, calls go"
    await round_of(other)
    assert channels.arrivals["voice"] == 1


async def test_where_the_switches_can_not_be_read_nothing_leaves(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(connection: object) -> None:
        raise away()

    engine, one = bench.engine(), await bench.add()
    await engine.tick_once()
    await bench.throw(switches.everywhere("log"))
    monkeypatch.setattr(store.engines, "board", unreadable)
    async with running(engine):
        await bench.sleep(10)
    assert bench.channel.receiver.arrivals == []
    assert await bench.states(one) == [State.SCHEDULED]


# --- jumps of the time that decides


def on_a_file(bench: Bench) -> tuple[VirtualClock, ServerRunner]:
    """A machine whose own clock is all there is."""
    return VirtualClock(asyncio.get_running_loop()), ServerRunner(bench.inner, bench.clock, has_clock=False)


@pytest.mark.parametrize("by", [2, -2, 3_000, -3_000])
async def test_a_jump_of_the_time_costs_a_pause_and_ends_nothing_that_is_under_way(bench: Bench, by: int) -> None:
    clock, runner = on_a_file(bench)
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=10))
    one, told = await bench.add(), bench.telemetry.counts
    async with running(bench.engine(clock=clock, runner=runner, owns_file=True)):
        await bench.sleep(2.5)
        clock.step(by * SECOND)
        await bench.sleep(20)
    (attempt,) = await bench.attempts(one)
    assert (attempt.outcome, attempt.late) == ("delivered", False)
    assert await bench.states(one) == [State.COMPLETED]
    assert told["clock.jumped"] == 1


async def test_after_a_large_jump_nothing_leaves_until_the_new_time_is_confirmed(bench: Bench) -> None:
    clock, runner = on_a_file(bench)
    one = await bench.add(after=HOUR)
    async with running(bench.engine(clock=clock, runner=runner, owns_file=True)):
        await bench.sleep(2.5)
        clock.step(HOUR)
        await bench.sleep(5)
        assert bench.channel.receiver.arrivals == []
        assert await bench.states(one) == [State.SCHEDULED]
        await bench.sleep(3)
        assert await bench.states(one) == [State.COMPLETED]


async def test_a_jump_that_is_taken_back_sends_nothing_early(bench: Bench) -> None:
    clock, runner = on_a_file(bench)
    one = await bench.add(after=HOUR)
    async with running(bench.engine(clock=clock, runner=runner, owns_file=True)):
        await bench.sleep(2.5)
        clock.step(HOUR)
        await bench.sleep(4)
        clock.step(-HOUR)
        await bench.sleep(60)
    assert await bench.states(one) == [State.SCHEDULED]
    assert (await bench.row(one)).fence == 0


async def test_a_jump_over_hours_holds_the_calls_that_look_overdue(bench: Bench) -> None:
    clock, runner = on_a_file(bench)
    channels = Channels(bench)
    await add_one_each(bench, after=HOUR)
    async with running(bench.engine(channels=channels, clock=clock, runner=runner, owns_file=True)):
        await bench.sleep(2.5)
        clock.step(2 * HOUR)
        await bench.sleep(30)
    assert channels.arrivals == {"voice": 0, "sms": 0, "webhook": 1}


async def test_after_a_jump_of_the_databases_time_others_leases_are_watched_anew(bench: Bench) -> None:
    engine = bench.engine()
    for _ in range(62):
        await engine.tick_once()
        await bench.sleep(1)
    assert engine.tick.has_watched_a_lease()
    true = bench.clock.true
    bench.clock.true = lambda: true() + 40 * SECOND  # type: ignore[method-assign]  # a failover to a host that is ahead
    await engine.tick_once()
    assert not engine.tick.has_watched_a_lease()
    assert not engine.tick.is_fresh()


async def test_a_wall_clock_that_parts_from_steady_time_voids_authority_until_the_next_tick(bench: Bench) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(connecting=0.5))
    engine, one = bench.engine(clock=clock), await bench.add()
    await engine.tick_once()
    await engine.pump_once()
    await bench.sleep(0.2)
    clock.step(1.5 * SECOND)
    assert not engine.tick.is_fresh()
    await idle(engine)
    assert bench.channel.receiver.arrivals == []
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]


async def test_after_the_clock_was_put_back_leases_have_their_length(bench: Bench) -> None:
    clock, runner = on_a_file(bench)
    engine = bench.engine(clock=clock, runner=runner)
    await engine.tick_once()

    def wish() -> Wish:
        return engine.claimer.wish({}, free=1, suspects=0, board=engine.tick.board)

    wish()
    clock.step(-HOUR)
    await engine.tick_once()
    assert wish().lease_until - clock.now() == Options().lease


async def test_due_work_that_nobody_serves_is_told(bench: Bench) -> None:
    await bench.add(queue="python:gone", channel="python")
    async with running(bench.engine()):
        await bench.sleep(31)
        assert bench.telemetry.counts["queue.unserved"] == 1
