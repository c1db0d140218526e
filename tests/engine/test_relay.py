"""The relay as engines run it."""

from campana import store
from campana.engine import relay
from campana.store.engines import Chores
from campana.testing.channel import ScriptedChannel, deliver
from tests.engine.builders import SECOND, TENANT, Bench, away, round_of, running


async def _kinds(bench: Bench) -> list[str]:
    return [row.kind for row in await bench.database.read(store.events.after, TENANT, 0, limit=1_000)]


async def test_a_step_numbers_what_happened_so_far(bench: Bench) -> None:
    engine = bench.engine()
    await bench.add()
    assert [await engine.relay.step(), await engine.relay.step()] == [1, 0]
    await round_of(engine)
    assert await engine.relay.step() == 1
    assert await _kinds(bench) == ["delivery.scheduled", "delivery.completed"]


async def test_a_running_engine_numbers_within_a_second_or_so(bench: Bench) -> None:
    async with running(bench.engine(), bench.engine()):
        await bench.sleep(3)
        await bench.add()
        await bench.sleep(1.2)
        assert await _kinds(bench) == ["delivery.scheduled", "delivery.completed"]


async def test_another_engine_takes_over_when_the_relay_leaves_and_when_it_falls_silent(bench: Bench) -> None:
    first, second = bench.engine(), bench.engine()
    await bench.add(1)
    assert [await first.relay.step(), await second.relay.step()] == [1, 0]
    await bench.add(2)
    assert await second.relay.step() == 0
    await bench.sleep(relay.LEASE / SECOND + 1)
    assert await second.relay.step() == 1
    await bench.add(3)
    assert await first.relay.step() == 0, "frozen for a while: it finds another holder there"
    async with running(second):
        await bench.sleep(2)
    await bench.add(4)
    assert await first.relay.step() == 1
    assert await _kinds(bench) == ["delivery.scheduled"] * 3 + ["delivery.completed"] * 3 + ["delivery.scheduled"]


async def test_a_backlog_is_numbered_batch_after_batch(bench: Bench) -> None:
    engine = bench.engine(channels={"webhook": ScriptedChannel(bench.clock, lambda _: deliver(answering=1_000))})
    new = [store.events.NewEvent(tenant_id=TENANT, kind="x", at=bench.now) for _ in range(2 * relay.BATCH + 1)]
    await bench.database.write(store.events.write, new)
    began = bench.now
    async with running(engine):
        await bench.sleep(0.5)
        assert bench.telemetry.counts["events.numbered"] == len(new)
    assert bench.now - began < 2 * SECOND


async def test_the_relay_goes_on_after_the_database_was_away(bench: Bench) -> None:
    engine = bench.engine()
    async with running(engine):
        await bench.sleep(2)
        bench.runner.broken = away
        engine.tick.chores = Chores(events=True)  # the last that it saw
        await bench.sleep(20)
        bench.runner.broken = lambda: None
        await bench.add()
        await bench.sleep(10)
    assert bench.telemetry.counts["engine.relay_failed"] > 0
    assert await _kinds(bench) == ["delivery.scheduled", "delivery.completed"]
