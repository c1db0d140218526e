"""What becomes of deliveries whose worker is lost: who may end a lease, who is a suspect, and who is innocent."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import State
from campana.domain.tickets import ALONE, SUSPICIOUS
from campana.engine.engine import Engine
from campana.engine.options import Options
from campana.engine.quarantine import COMPANY
from campana.testing.channel import Receiver, ScriptedChannel, deliver
from tests.engine.builders import OPTIONS, SECOND, Bench, idle, round_of, running

LEASE = OPTIONS.lease


async def die(engine: Engine) -> None:
    """The engine is gone in the midst of its work, and has written nothing more."""
    tasks = list(engine._busy.values())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def claim_and_die(bench: Bench) -> None:
    engine = bench.engine(owns_file=True)
    await engine.start()
    await engine.pump_once()
    await bench.sleep(0.1)
    await engine.settle_once()
    await die(engine)


async def successor(bench: Bench) -> Engine:
    """An engine that has taken over the file, and ended what its dead predecessor held."""
    engine = bench.engine(owns_file=True)
    await engine.start()
    await engine.timers.step(may_end_others=True)
    return engine


async def test_a_lost_delivery_is_due_again_at_once_and_counts_as_no_attempt(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=5)])
    one = await bench.add()
    await claim_and_die(bench)
    engine = await successor(bench)
    row = await bench.row(one)
    assert (State(row.state), row.attempt_count, row.crash_count, row.proven_crashes) == (State.SCHEDULED, 0, 1, 0)
    assert row.wake_at == bench.now
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]
    first, second = bench.channel.receiver.arrivals
    assert first.parcel.idempotency_key == second.parcel.idempotency_key
    assert [(a.outcome, a.number) for a in await bench.attempts(one)] == [("ambiguous", 1), ("delivered", 1)]


async def test_under_hold_a_lost_delivery_is_not_repeated(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=5)], receiver=Receiver())
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    await claim_and_die(bench)
    await round_of(await successor(bench))
    row = await bench.row(one)
    assert (State(row.state), row.reason) == (State.DEAD_LETTER, "ambiguous")
    assert len(bench.channel.receiver.arrivals) == 1


async def test_three_proven_deaths_make_a_crash_loop_and_the_neighbours_are_innocent(bench: Bench) -> None:
    poison = UUID(int=1_000)
    bench.channel = ScriptedChannel(bench.clock, lambda p: deliver(answering=9 if p.delivery_id == poison else 0))
    ids = [await bench.add(number) for number in range(6)]
    assert ids[0] == poison
    deaths = []
    for _ in range(6):
        await claim_and_die(bench)
        await successor(bench)
        row = await bench.row(poison)
        deaths.append((row.crash_count, row.proven_crashes))
        await bench.sleep(1_000)
    assert deaths == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3)]
    row = await bench.row(poison)
    assert (State(row.state), row.reason, row.attempt_count) == (State.DEAD_LETTER, "crash_loop", 0)
    async with running(bench.engine(owns_file=True)):
        await bench.sleep(5)
    assert await bench.states(*ids[1:]) == [State.COMPLETED] * 5


async def test_suspects_go_a_few_together_and_those_whose_company_died_alone(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=1))
    suspects = [await bench.add(number) for number in range(COMPANY + 2)]
    loners = [await bench.add(100 + number, after=timedelta(seconds=-1)) for number in range(2)]
    for one in suspects:
        await bench.change(one, crash_count=SUSPICIOUS)
    for one in loners:
        await bench.change(one, crash_count=ALONE)
    async with running(bench.engine()):
        await bench.sleep(20)
    assert set(await bench.states(*suspects, *loners)) == {State.COMPLETED}
    began = {
        a.parcel.delivery_id: (a.at - bench.channel.receiver.arrivals[0].at) / SECOND for a in bench.channel.receiver.arrivals
    }
    for alone in loners:
        assert [one for one in began if one != alone and abs(began[one] - began[alone]) < 0.99] == []
    together = Counter(round(began[one], 1) for one in suspects)
    assert max(together.values()) in {COMPANY - 2, COMPANY - 1, COMPANY}


async def test_those_that_go_alone_go_one_at_a_time_beside_the_innocent(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=1))
    ids = [await bench.add(number) for number in range(4)]
    for one in ids:
        await bench.change(one, crash_count=ALONE)
    innocent = [await bench.add(10 + number) for number in range(3)]
    engine = bench.engine()
    async with running(engine):
        await bench.sleep(0.5)
        assert len([a for a in bench.channel.receiver.arrivals if a.parcel.delivery_id in ids]) == 1
        assert (await bench.states(*innocent)).count(State.PROCESSING) == 3
        await bench.sleep(4)
        assert await bench.states(*ids, *innocent) == [State.COMPLETED] * 7
    instants = sorted(a.at for a in bench.channel.receiver.arrivals if a.parcel.delivery_id in ids)
    assert all(later - earlier >= SECOND for earlier, later in pairwise(instants))


async def test_a_suspect_whose_claim_is_lost_meanwhile_is_not_sent(bench: Bench) -> None:
    one = await bench.add()
    await bench.change(one, crash_count=ALONE)
    engine = bench.engine()
    await engine.tick_once()
    engine.wakeup.ring(bench.now)
    await engine._claim()
    await bench.change(one, fence=7)
    await idle(engine)
    assert bench.channel.receiver.arrivals == []


async def test_an_engine_ends_its_own_lost_lease(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=5)])
    engine, one = bench.engine(), await bench.add()
    await engine.tick_once()
    await engine._claim()
    await bench.sleep(0.1)
    await die(engine)
    await bench.sleep(LEASE.total_seconds())
    await engine.tick_once()
    await engine.pump_once()
    assert (await bench.row(one)).crash_count == 1
    await idle(engine)


async def test_others_leases_are_ended_only_after_a_whole_lease_was_watched_without_a_gap(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=5)])
    dead, one = bench.engine(), await bench.add()
    await dead.tick_once()
    await dead._claim()
    await bench.sleep(0.1)
    await die(dead)
    await bench.sleep(LEASE.total_seconds())
    watcher = bench.engine()

    async def watch(seconds: int) -> None:
        for _ in range(seconds):
            await watcher.tick_once()
            await watcher.pump_once()
            await bench.sleep(1)

    await watch(59)
    assert (await bench.row(one)).lease_owner == dead.id
    await bench.sleep(6)  # a gap: whatever was watched before counts for nothing
    await watch(60)
    assert (await bench.row(one)).lease_owner == dead.id
    await watch(2)
    await idle(watcher)
    assert await bench.states(one) == [State.COMPLETED]


async def test_on_a_file_of_its_own_an_engine_ends_what_the_dead_owner_held_at_its_start(bench: Bench) -> None:
    one = await bench.add()
    await claim_and_die(bench)
    began = bench.now
    async with running(bench.engine(owns_file=True)):
        await bench.sleep(1)
        assert await bench.states(one) == [State.COMPLETED]
    assert bench.channel.receiver.arrivals[-1].at - began < SECOND


async def test_what_is_still_under_way_keeps_its_lease_and_no_longer_than_the_run_limit(bench: Bench) -> None:
    options = Options(lease=6 * SECOND, renewal=2 * SECOND, run_limit=20 * SECOND, send_timeout=timedelta(minutes=15))
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=19)])
    one = await bench.add(1)
    async with running(bench.engine(options=options)):
        await bench.sleep(18.5)
        assert await bench.states(one) == [State.PROCESSING]
        assert (await bench.row(one)).wake_at <= bench.now + 1.6 * SECOND
        await bench.sleep(1)
        assert await bench.states(one) == [State.COMPLETED]
    assert (await bench.row(one)).crash_count == 0


async def test_a_send_ends_with_the_run_limit_whatever_its_target_says(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=10_000)])
    options = Options(lease=6 * SECOND, renewal=2 * SECOND, run_limit=20 * SECOND, grace=SECOND)
    one = await bench.add(1, target='{"timeout": "15m"}')
    async with running(bench.engine(options=options)):
        await bench.sleep(30)
        assert (await bench.row(one)).ambiguous_attempts == 1


async def test_renewal_prolongs_only_what_is_mine(bench: Bench) -> None:
    options = Options(lease=6 * SECOND)
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=4))
    mine, theirs = bench.engine(options=options), bench.engine(options=options)
    one = await bench.add(1)
    await mine.tick_once()
    await mine.pump_once()
    before = (await bench.row(one)).wake_at
    await bench.sleep(3)
    await theirs.renew_once()
    assert (await bench.row(one)).wake_at == before
    await mine.renew_once()
    assert (await bench.row(one)).wake_at == bench.now + 6 * SECOND
    await idle(mine)


async def test_a_question_that_hung_for_a_whole_lease_has_watched_nothing(bench: Bench) -> None:
    engine = bench.engine()

    async def hang() -> None:
        await bench.sleep(LEASE.total_seconds() + 1)

    bench.runner.before.append(hang)
    await engine.tick_once()
    assert not engine.tick.has_watched_a_lease()


async def test_an_engine_that_was_frozen_has_watched_nothing_until_it_has_watched_again(bench: Bench) -> None:
    engine = bench.engine()
    for _ in range(62):
        await engine.tick_once()
        await bench.sleep(1)
    assert engine.tick.has_watched_a_lease()
    await bench.sleep(10)
    assert not engine.tick.has_watched_a_lease()
    await engine.tick_once()
    assert not engine.tick.has_watched_a_lease()


async def test_what_an_engine_claimed_and_let_fall_is_ended_by_its_lease_however_busy_it_is(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=19))
    dropped = await bench.add(1)
    await bench.change(dropped, policies="{}")
    for number in range(2, 12):
        await bench.add(number, after=number * 5 * SECOND)
    async with running(bench.engine()):
        await bench.sleep(LEASE.total_seconds() - 1)
        assert await bench.states(dropped) == [State.PROCESSING]
        await bench.sleep(3)
        assert await bench.states(dropped) == [State.DEAD_LETTER]


async def test_what_ended_and_is_not_written_yet_keeps_its_lease(bench: Bench) -> None:
    engine, one = bench.engine(), await bench.add()
    await engine.tick_once()
    await engine.pump_once()
    await asyncio.wait(list(engine._busy.values()))
    assert engine.settler.unsettled == 1
    await bench.sleep(30)
    await engine.renew_once()
    assert (await bench.row(one)).wake_at == bench.now + LEASE
    await idle(engine)


async def test_an_engine_that_stood_still_for_longer_than_its_lease_ends_nothing_that_it_still_carries(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=100))
    options = Options(send_timeout=timedelta(minutes=5))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    engine = bench.engine(options=options)
    await engine.tick_once()
    await engine.pump_once()
    await bench.sleep(LEASE.total_seconds() + 5)
    await engine.tick_once()
    await engine.pump_once()
    assert await bench.states(one) == [State.PROCESSING]
    await idle(engine)
    assert await bench.states(one) == [State.COMPLETED]
    assert len(bench.channel.receiver.arrivals) == 1
