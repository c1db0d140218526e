"""How an engine ends: what is under way is finished and settled, what was not sent goes back, nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from sqlalchemy import select

from campana.channels.base import Channel
from campana.channels.python import Delivery, Python
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import State
from campana.engine.options import Options
from campana.store import schema
from campana.testing.channel import ScriptedChannel, deliver
from tests.engine.builders import SECOND, Bench, away, running


async def stopped(bench: Bench) -> float:
    """Begin to stop after half a second; the seconds that it took."""
    engine = bench.engine()
    task = asyncio.create_task(engine.run())
    await bench.sleep(0.5)
    engine.stop()
    began = bench.clock.steady()
    await task
    assert engine._busy == {}
    return bench.clock.steady() - began


async def test_an_idle_engine_stops_at_once_and_writes_down_that_it_has_left(bench: Bench) -> None:
    assert await stopped(bench) < 0.1
    (row,) = await bench.database.read(lambda c: c.execute(select(schema.engines)).all())
    assert row.left_at == bench.now


async def test_what_is_in_flight_is_finished_and_settled(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=4))
    ids = [await bench.add(number) for number in range(10)]
    assert await stopped(bench) == pytest.approx(3.5, abs=0.1)
    assert await bench.states(*ids) == [State.COMPLETED] * 10


async def test_what_was_claimed_and_not_sent_goes_back_and_burns_nothing(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(connecting=1.5))
    ids = [await bench.add(number) for number in range(10)]
    await stopped(bench)
    rows = await bench.rows(ids)
    assert [State(row.state) for row in rows] == [State.SCHEDULED] * 10
    assert {(row.attempt_count, row.crash_count, row.lease_owner) for row in rows} == {(0, 0, None)}
    assert bench.channel.receiver.arrivals == []


async def test_what_does_not_end_within_the_grace_period_is_left_to_its_lease(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=29.9))
    options = Options(grace=3 * SECOND)
    one = await bench.add()
    engine = bench.engine(options=options)
    task = asyncio.create_task(engine.run())
    await bench.sleep(0.5)
    engine.stop()
    began = bench.clock.steady()
    await task
    assert bench.clock.steady() - began == pytest.approx(3, abs=0.1)
    assert await bench.states(one) == [State.PROCESSING]


async def test_a_group_that_is_being_written_when_the_engine_stops_is_waited_for(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=0.48))
    one = await bench.add()
    engine = bench.engine()
    task = asyncio.create_task(engine.run())
    await bench.sleep(0.4)

    async def slow() -> None:
        await bench.sleep(2)

    bench.runner.before.append(slow)
    while not engine.settler._writing:
        await bench.sleep(0.001)
    engine.stop()
    began = bench.clock.steady()
    await task
    assert bench.clock.steady() - began == pytest.approx(2, abs=0.1)
    assert await bench.states(one) == [State.COMPLETED]


async def test_an_engine_that_stops_while_the_database_is_away_ends_soon_after_its_grace(bench: Bench) -> None:
    options = Options(grace=3 * SECOND)
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=1))
    await bench.add()
    engine = bench.engine(options=options)
    task = asyncio.create_task(engine.run())
    await bench.sleep(0.5)
    bench.runner.broken = away
    engine.stop()
    began = bench.clock.steady()
    await task
    assert bench.clock.steady() - began < 15
    bench.runner.broken = lambda: None
    # As a process would: what was being written when it was cut off comes to its end.
    await engine._database.close()


async def test_an_engine_that_is_cancelled_leaves_no_task_behind_and_its_work_to_the_lease(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=20))
    one = await bench.add()
    engine = bench.engine()
    task = asyncio.create_task(engine.run())
    await bench.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine._busy == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await bench.states(one) == [State.PROCESSING]


async def test_a_bug_in_a_loop_ends_the_engine_loudly(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = bench.engine()

    async def broken() -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(engine, "renew_once", broken)
    with pytest.raises(KeyError, match="a bug"):
        await engine.run()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_bug_while_settling_ends_the_engine_loudly(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = bench.engine()
    await bench.add()

    async def broken() -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(engine.settler, "step", broken)
    with pytest.raises(KeyError, match="a bug"):
        await engine.run()


async def test_a_bug_in_one_delivery_is_told_and_the_others_go_on(bench: Bench) -> None:
    bad, good = await bench.add(1), await bench.add(2)
    await bench.change(bad, policies="{}")
    told: list[str] = []
    bench.telemetry.listen(lambda name, _: told.append(name))
    async with running(bench.engine()):
        await bench.sleep(1)
        assert await bench.states(bad, good) == [State.PROCESSING, State.COMPLETED]
        assert "delivery.bug" in told
        more = await bench.add(3)
        await bench.sleep(70)
        assert await bench.states(more) == [State.COMPLETED]
    row = await bench.row(bad)
    assert (State(row.state), row.reason) == (State.DEAD_LETTER, "unreadable")


async def test_stopping_before_the_first_tick_is_answered_ends_too(bench: Bench) -> None:
    bench.runner.broken = away
    engine = bench.engine()
    task = asyncio.create_task(engine.run())
    await bench.sleep(0.1)
    engine.stop()
    await task
    bench.runner.broken = lambda: None


async def test_a_handler_that_does_not_heed_its_cancellation_holds_up_neither_its_row_nor_the_stop(bench: Bench) -> None:
    end = asyncio.Event()

    async def stubborn(_: Delivery) -> None:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    channels: dict[str, Channel] = {"webhook": bench.channel, "python": Python({"stubborn": stubborn})}
    options = Options(lease=6 * SECOND, renewal=2 * SECOND, run_limit=20 * SECOND, grace=SECOND)
    one = await bench.add(1, channel="python", queue="python", target='{"handler": "stubborn"}', on_ambiguous=OnAmbiguous.HOLD)
    engine = bench.engine(channels=channels, options=options)
    task = asyncio.create_task(engine.run())
    await bench.sleep(22)
    row = await bench.row(one)
    assert (State(row.state), row.reason) == (State.DEAD_LETTER, "ambiguous")
    other = await bench.add(2)
    await bench.sleep(1.5)
    assert await bench.states(other) == [State.COMPLETED]
    engine.stop()
    began = bench.clock.steady()
    await task
    assert bench.clock.steady() - began < 5
    end.set()
    await bench.sleep(0)


async def test_a_handler_that_blocks_everything_for_longer_than_a_lease_is_told_and_nothing_is_done_twice(bench: Bench) -> None:
    loop = asyncio.get_running_loop()

    async def block(_: Delivery) -> None:
        loop._seconds += 130  # type: ignore[attr-defined]  # as long as no other callback can run

    channels: dict[str, Channel] = {"webhook": bench.channel, "python": Python({"block": block})}
    bench.channel._choose = lambda parcel: deliver(connecting=5 if parcel.delivery_id.int % 2 else 0)
    one = await bench.add(1, channel="python", queue="python", target='{"handler": "block"}', on_ambiguous=OnAmbiguous.HOLD)
    ids = [one, *[await bench.add(number, on_ambiguous=OnAmbiguous.HOLD) for number in range(2, 6)]]
    told: list[str] = []
    bench.telemetry.listen(lambda name, _: told.append(name))
    async with running(bench.engine(channels=channels)):
        await bench.sleep(300)
    assert await bench.states(*ids) == [State.COMPLETED] * 5
    assert set(bench.channel.receiver.effects.values()) == {1}
    assert "engine.held_up" in told
