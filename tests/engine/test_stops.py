"""What keeps a delivery from leaving: guards before the send, and the last look at its very edge."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from campana.domain import switches
from campana.domain.deliveries import State
from campana.engine.options import Options
from campana.testing.channel import ScriptedChannel, deliver
from tests.engine.builders import PROJECT, SECOND, TENANT, Bench, idle, round_of, running

OTHER = UUID(int=9)
SCOPES = {
    "channel everywhere": switches.everywhere("webhook"),
    "tenant": switches.tenant(TENANT),
    "the tenant's channel": switches.within(TENANT, "channel", "webhook"),
    "project": switches.within(TENANT, "project", PROJECT),
}


async def slowly(bench: Bench, seconds: float) -> ScriptedChannel:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(connecting=seconds))
    return bench.channel


async def assert_given_back(bench: Bench, one: UUID) -> None:
    row = await bench.row(one)
    assert (State(row.state), row.attempt_count, row.held_by, row.lease_owner) == (State.SCHEDULED, 0, None, None)
    assert await bench.attempts(one) == []
    assert [verdict.reason for verdict in await bench.verdicts(one)] == ["released"]
    assert bench.channel.receiver.arrivals == []


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
async def test_a_switch_parks_what_stands_under_it_and_lifting_it_lets_it_go(bench: Bench, scope: str) -> None:
    engine, one = bench.engine(), await bench.add()
    await bench.throw(scope)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.held_by, row.attempt_count) == (State.SCHEDULED, scope, 0)
    assert row.wake_at == bench.now + timedelta(hours=24)
    await round_of(engine)
    assert (await bench.row(one)).fence == 1, "parked once, not again and again"
    await bench.throw(scope, off=False)
    await engine.tick_once()
    assert await engine.release_once() == 1
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]


async def test_the_switch_over_everything_stops_claiming_and_lifting_it_resumes(bench: Bench) -> None:
    engine, one = bench.engine(), await bench.add()
    await bench.throw(switches.ALL)
    await round_of(engine)
    assert (await bench.row(one)).fence == 0
    await bench.throw(switches.ALL, off=False)
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]


async def test_a_switch_of_another_tenant_stops_nothing_here(bench: Bench) -> None:
    engine, one = bench.engine(), await bench.add()
    await bench.throw(switches.tenant(OTHER))
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]


async def test_a_suspended_tenants_deliveries_wait_and_others_go(bench: Bench) -> None:
    engine, mine, theirs = bench.engine(), await bench.add(1), await bench.add(2, tenant_id=OTHER)
    await bench.suspend()
    await round_of(engine)
    assert await bench.states(mine, theirs) == [State.SCHEDULED, State.COMPLETED]
    assert (await bench.row(mine)).held_by == f"suspended:{TENANT}"
    assert await engine.release_once() == 0
    await bench.suspend(suspended=False)
    await engine.tick_once()
    assert await engine.release_once() == 1
    await round_of(engine)
    assert await bench.states(mine) == [State.COMPLETED]


async def test_what_is_released_is_spread_and_none_of_it_is_early(bench: Bench) -> None:
    scope, began = SCOPES["tenant"], bench.now
    await bench.throw(scope)
    ids = [await bench.add(number) for number in range(10)]
    async with running(bench.engine()):
        await bench.sleep(2.5)
        await bench.throw(scope, off=False)
        await bench.sleep(10)
    assert await bench.states(*ids) == [State.COMPLETED] * 10
    waits = [(arrival.at - began) / SECOND - 4 for arrival in bench.channel.receiver.arrivals]
    assert waits == pytest.approx([n / 100 for n in range(10)], abs=0.005)


async def test_a_closed_scope_is_not_released_and_an_engine_that_knows_nothing_releases_nothing(bench: Bench) -> None:
    await bench.throw(SCOPES["tenant"])
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    assert await engine.release_once() == 0
    await bench.throw(SCOPES["tenant"], off=False)
    assert await bench.engine().release_once() == 0
    assert (await bench.row(one)).held_by == SCOPES["tenant"]


async def test_what_is_past_its_expiry_is_skipped_and_burns_no_attempt(bench: Bench) -> None:
    engine, one = bench.engine(), await bench.add(expires_at=bench.now + SECOND)
    await bench.sleep(1)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.reason, row.attempt_count) == (State.SKIPPED, "expired", 0)
    assert bench.channel.receiver.arrivals == []


async def test_what_is_parked_ends_at_its_expiry_though_the_switch_stays(bench: Bench) -> None:
    await bench.throw(SCOPES["tenant"])
    one = await bench.add(expires_at=bench.now + 30 * SECOND)
    async with running(bench.engine()):
        await bench.sleep(29)
        assert await bench.states(one) == [State.SCHEDULED]
        await bench.sleep(1.1)
    assert await bench.states(one) == [State.SKIPPED]


# --- the edge: everything between the guards and the write


async def test_nothing_leaves_after_the_lease_is_over(bench: Bench) -> None:
    await slowly(bench, 3)
    engine, one = bench.engine(options=Options(lease=2 * SECOND)), await bench.add()
    await engine.tick_once()
    await engine.pump_once()
    await bench.sleep(2.5)
    await engine.tick_once()
    await idle(engine)
    await assert_given_back(bench, one)


async def test_nothing_leaves_on_a_stale_tick(bench: Bench) -> None:
    await slowly(bench, 1.95)
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    await assert_given_back(bench, one)


async def test_what_a_tick_brought_is_as_old_as_its_question(bench: Bench) -> None:
    engine = bench.engine()

    async def hang() -> None:
        await bench.sleep(2)

    await engine.tick_once()
    bench.runner.before.append(hang)
    await engine.tick_once()
    assert not engine.tick.is_fresh()


async def test_what_connects_while_the_tick_is_fresh_leaves(bench: Bench) -> None:
    await slowly(bench, 1.8)
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]


async def test_nothing_leaves_once_the_engine_stops(bench: Bench) -> None:
    await slowly(bench, 1)
    engine, one = bench.engine(), await bench.add()
    await engine.tick_once()
    await engine.pump_once()
    engine.stop()
    await idle(engine)
    await assert_given_back(bench, one)


@pytest.mark.parametrize("scope", [*SCOPES.values(), switches.ALL], ids=[*SCOPES, "all"])
async def test_a_switch_thrown_between_guard_and_write_holds(bench: Bench, scope: str) -> None:
    await slowly(bench, 1)
    engine, one = bench.engine(), await bench.add()
    await engine.tick_once()
    await engine.pump_once()
    await bench.throw(scope)
    await engine.tick_once()
    await idle(engine)
    row = await bench.row(one)
    assert (State(row.state), row.held_by, row.attempt_count) == (State.SCHEDULED, scope, 0)
    assert bench.channel.receiver.arrivals == []


async def test_a_switch_that_no_tick_has_brought_yet_holds_within_two_seconds(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(connecting=0.7))
    thrown = bench.now + 10 * SECOND
    for number in range(200):
        await bench.add(number, after=number * 0.1 * SECOND)
    async with running(bench.engine()):
        await bench.sleep(10)
        await bench.throw(SCOPES["tenant"])
        await bench.sleep(12)
    assert 90 < len(bench.channel.receiver.arrivals) < 120
    assert max(arrival.at for arrival in bench.channel.receiver.arrivals) < thrown + 2 * SECOND


async def test_a_delivery_that_expires_while_it_connects_does_not_leave(bench: Bench) -> None:
    await slowly(bench, 1)
    engine, one = bench.engine(), await bench.add(expires_at=bench.now + 0.5 * SECOND)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.reason, row.attempt_count) == (State.SKIPPED, "expired", 0)
    assert bench.channel.receiver.arrivals == []


async def test_a_claim_whose_round_trip_took_over_a_third_of_the_lease_is_void(bench: Bench) -> None:
    engine, one = bench.engine(options=Options(lease=3 * SECOND)), await bench.add()
    await engine.tick_once()

    async def slow() -> None:
        await bench.sleep(1.01)

    bench.runner.before.append(slow)  # of next_timer's reader, were there one
    bench.runner.before.append(slow)
    engine.wakeup.ring(bench.now)
    await engine.pump_once()
    bench.runner.before.clear()
    await idle(engine)
    await assert_given_back(bench, one)
    assert engine._telemetry.counts["claim.void"] == 1


async def test_a_send_that_was_held_up_is_claimed_again_and_keeps_its_number(bench: Bench) -> None:
    acts = iter([deliver(connecting=1.95), deliver()])
    bench.channel = ScriptedChannel(bench.clock, lambda _: next(acts))
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.attempt_count, row.fence) == (State.COMPLETED, 1, 2)
    assert [attempt.number for attempt in await bench.attempts(one)] == [1]
