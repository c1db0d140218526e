"""What can't be repeated: its attempt is durable before its first byte, and without that nothing leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from campana import store
from campana.channels.base import Parcel
from campana.domain import outcomes, switches
from campana.domain.ambiguity import Contract, OnAmbiguous
from campana.domain.deliveries import State
from campana.testing.channel import Act, ScriptedChannel, apply_then_drop, deliver, refuse
from tests.engine.builders import OPTIONS, RETRY, SECOND, TENANT, Bench, away, idle, round_of, running
from tests.engine.test_losing import claim_and_die, die, successor

HOLD = Contract(repeatable=False, on_ambiguous=OnAmbiguous.HOLD)


def calls(bench: Bench, *acts: Act, contract: Contract = HOLD) -> ScriptedChannel:
    bench.channel = ScriptedChannel(bench.clock, list(acts), contract=contract)
    return bench.channel


async def test_the_attempts_row_is_there_before_the_first_byte(bench: Bench) -> None:
    channel, one = calls(bench), await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    seen: list[list[object]] = []
    inner = channel.receiver.take

    def take(parcel: Parcel, **said: object) -> None:
        rows = bench.inner._connection.exec_driver_sql("select outcome, number, key_number, finished_at from attempts")
        seen.append([tuple(row) for row in rows])
        inner(parcel, **said)  # type: ignore[arg-type]  # passed on as it came

    channel.receiver.take = take  # type: ignore[method-assign]  # to look at the very moment of the write
    await round_of(bench.engine())
    assert seen == [[(None, 1, 1, None)]]
    (attempt,) = await bench.attempts(one)
    assert (attempt.outcome, attempt.number, attempt.guards) == ("delivered", 1, "switch,suspension,expiry,rate,breaker,key")
    assert attempt.finished_at >= attempt.started_at
    assert await bench.states(one) == [State.COMPLETED]


async def test_a_worker_that_dies_before_the_intent_has_sent_nothing(bench: Bench) -> None:
    channel = calls(bench, deliver(connecting=5))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    await claim_and_die(bench)
    engine = await successor(bench)
    row = await bench.row(one)
    assert (State(row.state), row.ambiguous_attempts, row.crash_count) == (State.SCHEDULED, 0, 1)
    assert await bench.attempts(one) == []
    assert [verdict.verdict for verdict in await bench.verdicts(one)] == ["lost"]
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]
    assert len(channel.receiver.arrivals) == 1


async def test_a_worker_that_dies_before_its_intent_is_not_taken_for_an_earlier_one(bench: Bench) -> None:
    calls(bench, refuse(), deliver(connecting=5))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    await round_of(bench.engine())
    await bench.sleep(60)
    await claim_and_die(bench)
    await successor(bench)
    row = await bench.row(one)
    assert (State(row.state), row.ambiguous_attempts, row.attempt_count) == (State.PENDING_RETRY, 0, 1)
    assert [attempt.outcome for attempt in await bench.attempts(one)] == ["failed"]


async def test_a_worker_that_dies_after_the_intent_may_have_sent_it(bench: Bench) -> None:
    channel = calls(bench, deliver(answering=5))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    await claim_and_die(bench)
    await successor(bench)
    row = await bench.row(one)
    assert (State(row.state), row.reason, row.ambiguous_attempts) == (State.DEAD_LETTER, "ambiguous", 1)
    (attempt,) = await bench.attempts(one)
    assert (attempt.outcome, attempt.ambiguous, attempt.number) == ("ambiguous", True, 1)
    assert len(channel.receiver.arrivals) == 1


async def test_what_honours_a_key_is_repeated_under_it_while_it_does(bench: Bench) -> None:
    contract = Contract(repeatable=False, on_ambiguous=OnAmbiguous.RETRY, key_lifetime=timedelta(seconds=100))
    channel = calls(bench, apply_then_drop(), apply_then_drop(), contract=contract)
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    assert (await bench.row(one)).key_at is not None
    await bench.sleep(60)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.reason, row.ambiguous_attempts) == (State.DEAD_LETTER, "ambiguous", 2)
    assert len({arrival.parcel.idempotency_key for arrival in channel.receiver.arrivals}) == 1


async def test_what_waited_until_its_key_was_forgotten_is_not_repeated(bench: Bench) -> None:
    contract = Contract(repeatable=False, on_ambiguous=OnAmbiguous.RETRY, key_lifetime=timedelta(seconds=90))
    channel = calls(bench, apply_then_drop(), contract=contract)
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    await bench.throw(switches.ALL)
    await bench.sleep(80)
    await bench.throw(switches.ALL, off=False)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.reason, row.ambiguous_attempts) == (State.DEAD_LETTER, "ambiguous", 1)
    assert [verdict.verdict for verdict in await bench.verdicts(one)] == ["doubt"]
    assert len(channel.receiver.arrivals) == 1


async def test_a_key_that_is_forgotten_while_it_connects_is_not_sent_again(bench: Bench) -> None:
    contract = Contract(repeatable=False, on_ambiguous=OnAmbiguous.RETRY, key_lifetime=timedelta(seconds=90))
    channel = calls(bench, apply_then_drop(), deliver(connecting=1), contract=contract)
    engine, one = bench.engine(), await bench.add(retry=replace(RETRY, base=59.5 * SECOND))
    await round_of(engine)
    await bench.sleep(59.5)
    await round_of(engine)
    assert (await bench.states(one), len(channel.receiver.arrivals)) == ([State.DEAD_LETTER], 1)


async def test_a_known_failure_ends_the_keys_life(bench: Bench) -> None:
    contract = Contract(repeatable=False, on_ambiguous=OnAmbiguous.RETRY, key_lifetime=timedelta(seconds=90))
    calls(bench, refuse(), contract=contract)
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    row = await bench.row(one)
    assert (row.key_at, row.key_number) == (None, 2)


@pytest.mark.parametrize("stop", ["switch", "suspension", "cancel"])
async def test_a_stop_that_is_durable_before_the_intent_holds_though_no_tick_has_seen_it(bench: Bench, stop: str) -> None:
    channel = calls(bench, deliver(connecting=0.5))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    engine = bench.engine()
    await engine.tick_once()
    await engine.pump_once()
    if stop == "switch":
        await bench.throw(switches.within(TENANT, "channel", "webhook"))
    elif stop == "suspension":
        await bench.suspend()
    else:
        await bench.database.write(store.deliveries.cancel, TENANT, one, now=bench.now)
    await idle(engine)
    assert channel.receiver.arrivals == []
    assert await bench.attempts(one) == []
    assert await bench.states(one) == [State.CANCELLED if stop == "cancel" else State.SCHEDULED]


async def test_without_a_database_nothing_leaves_and_what_was_intended_is_taken_back(bench: Bench) -> None:
    channel = calls(bench, deliver(connecting=0.1))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    engine = bench.engine()
    await engine.tick_once()
    await engine.pump_once()
    bench.runner.broken = away
    await asyncio.wait(list(engine._busy.values()))
    bench.runner.broken = lambda: None
    await idle(engine)
    assert channel.receiver.arrivals == []
    assert (await bench.states(one), await bench.attempts(one)) == ([State.SCHEDULED], [])


async def test_authority_that_ends_while_the_intent_is_written_takes_it_back(bench: Bench) -> None:
    channel = calls(bench, deliver(connecting=0.1))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    engine = bench.engine()
    await engine.tick_once()
    await engine.pump_once()

    async def hang() -> None:
        await bench.sleep(2.5)

    bench.runner.before.append(hang)
    await idle(engine)
    assert channel.receiver.arrivals == []
    assert (await bench.states(one), await bench.attempts(one)) == ([State.SCHEDULED], [])


async def test_an_attempt_that_would_outlive_its_lease_is_given_less_time(bench: Bench) -> None:
    channel = calls(bench)
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD, target='{"timeout": "10m"}')
    await round_of(bench.engine())
    (arrival,) = channel.receiver.arrivals
    assert arrival.parcel.timeout == OPTIONS.lease.total_seconds() / 2
    assert await bench.states(one) == [State.COMPLETED]


async def test_a_zombie_that_wakes_up_after_its_lease_sends_nothing(bench: Bench) -> None:
    channel = calls(bench, deliver(connecting=30))
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    first = bench.engine(options=replace(OPTIONS, lease=10 * SECOND))
    await first.tick_once()
    await first.pump_once()
    second = bench.engine(options=replace(OPTIONS, lease=10 * SECOND), queues={"webhook": 1})
    async with running(second):
        await bench.sleep(40)
    await idle(first)
    assert await bench.states(one) == [State.COMPLETED]
    assert len(channel.receiver.arrivals) == 1
    await die(first)


async def test_a_late_result_of_a_lost_intent_is_evidence_and_nothing_more(bench: Bench) -> None:
    answer = outcomes.Answer(code=201, body="ringing")
    act = Act(outcome=outcomes.Delivered(answer=answer), applies=True, answering=25)
    calls(bench, act)
    one = await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    slow = bench.engine()
    await slow.tick_once()
    await slow.pump_once()
    await bench.sleep(0.1)
    await bench.change(one, wake_at=bench.now)
    await bench.engine().timers.step(may_end_others=True)
    assert await bench.states(one) == [State.DEAD_LETTER]
    await idle(slow)
    (attempt,) = await bench.attempts(one)
    assert await bench.states(one) == [State.DEAD_LETTER]
    assert (attempt.outcome, attempt.late, attempt.reason, attempt.response_body) == (
        "ambiguous", True, "late: delivered", "ringing",
    )  # fmt: skip
