"""Look-ups: a provider that can be asked is asked before anything is repeated, by one engine at a time, also while sends rest."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.channels.base import Parcel
from campana.domain import lookups, outcomes, retries, switches
from campana.domain.ambiguity import Contract, OnAmbiguous
from campana.domain.deliveries import State
from campana.engine.engine import Engine
from campana.testing.channel import Act, ScriptedChannel, apply_then_drop, deliver, drop_before_apply, refuse
from tests.engine.builders import SECOND, Bench, round_of, running
from tests.engine.test_losing import claim_and_die, successor

VISIBLE = 20 * SECOND
CONTRACT = Contract(repeatable=False, on_ambiguous=OnAmbiguous.RECONCILE, lookup_after=VISIBLE)
RECONCILE = OnAmbiguous.RECONCILE
Answers = list[lookups.Answer]


def asked(bench: Bench, *acts: Act, answers: Answers | None = None) -> ScriptedChannel:
    said = iter(answers or [])
    answer = (lambda _: next(said)) if answers is not None else None
    bench.channel = ScriptedChannel(bench.clock, list(acts), contract=CONTRACT, answer=answer)
    return bench.channel


async def look(engine: Engine) -> None:
    """What is due to be looked up has been, and is settled."""
    await engine.lookups.step()
    while engine.lookups.under_way:
        await asyncio.wait(list(engine.lookups.under_way))
    await engine.settle_once()


async def ambiguous(bench: Bench, **said: Any) -> tuple[Engine, UUID]:
    """A delivery whose first attempt is open, and whose provider may be asked now."""
    engine, one = bench.engine(), await bench.add(on_ambiguous=RECONCILE, **said)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.awaiting, row.ambiguous_attempts) == (State.IN_PROGRESS, "lookup", 1)
    await bench.sleep((row.wake_at - bench.now).total_seconds())
    return engine, one


async def test_nobody_is_asked_before_the_request_is_over_and_visible(bench: Bench) -> None:
    channel = asked(bench, apply_then_drop(answering=1))
    engine, one = bench.engine(), await bench.add(on_ambiguous=RECONCILE)
    await round_of(engine)
    arrival = channel.receiver.arrivals[0]
    assert (await bench.row(one)).wake_at == arrival.at + timedelta(seconds=arrival.parcel.timeout) + VISIBLE


async def test_what_is_found_is_adopted_and_not_sent_again(bench: Bench) -> None:
    channel = asked(bench, apply_then_drop())
    engine, one = await ambiguous(bench)
    await look(engine)
    row = await bench.row(one)
    assert (State(row.state), row.ambiguous_attempts, row.attempt_count) == (State.COMPLETED, 1, 1)
    assert len(channel.receiver.arrivals) == 1
    assert [(v.verdict, v.reason) for v in await bench.verdicts(one)] == [("lookup", "found: delivered")]


async def test_only_absence_is_repeated_under_the_same_key(bench: Bench) -> None:
    channel = asked(bench, drop_before_apply())
    engine, one = await ambiguous(bench)
    await look(engine)
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]
    first, second = channel.receiver.arrivals
    assert first.parcel.idempotency_key == second.parcel.idempotency_key
    assert channel.receiver.effects.total() == 1


async def test_a_look_up_costs_no_attempt(bench: Bench) -> None:
    channel = asked(bench, drop_before_apply(), drop_before_apply())
    engine, one = await ambiguous(bench, retry=retries.Policy(max_attempts=2))
    await look(engine)
    assert await bench.states(one) == [State.PENDING_RETRY]
    await round_of(engine)
    await bench.sleep(((await bench.row(one)).wake_at - bench.now).total_seconds())
    await look(engine)
    row = await bench.row(one)
    assert (State(row.state), row.reason, len(channel.receiver.arrivals)) == (State.DEAD_LETTER, "exhausted", 2)


async def test_a_failed_look_up_is_no_absence(bench: Bench) -> None:
    channel = asked(bench, apply_then_drop(), answers=[lookups.Unsure(error="503")] * 200)
    engine, one = await ambiguous(bench)
    began = bench.now
    while (row := await bench.row(one)).wake_at is not None:
        await bench.sleep(max(0.0, (row.wake_at - bench.now).total_seconds()))
        await look(engine)
    assert (State(row.state), row.reason) == (State.DEAD_LETTER, "ambiguous")
    assert timedelta(hours=24) <= bench.now - began <= timedelta(hours=25)
    assert len(channel.receiver.arrivals) == 1


async def test_a_channel_that_raises_while_it_looks_up_decides_nothing(bench: Bench) -> None:
    def broken(_: Parcel) -> lookups.Answer:
        raise ZeroDivisionError

    bench.channel = ScriptedChannel(bench.clock, [apply_then_drop()], contract=CONTRACT, answer=broken)
    engine, one = await ambiguous(bench)
    await look(engine)
    row = await bench.row(one)
    assert (State(row.state), row.awaiting) == (State.IN_PROGRESS, "lookup")


async def test_a_look_up_without_an_answer_decides_nothing(bench: Bench) -> None:
    class Silent(ScriptedChannel):
        async def lookup(self, parcel: Parcel) -> lookups.Answer:
            await bench.sleep(3_600)
            return await super().lookup(parcel)

    bench.channel = Silent(bench.clock, [drop_before_apply()], contract=CONTRACT)
    engine, one = await ambiguous(bench)
    await look(engine)
    row = await bench.row(one)
    assert (State(row.state), row.awaiting) == (State.IN_PROGRESS, "lookup")
    assert [verdict.reason for verdict in await bench.verdicts(one)] == ["unsure: no answer within 30 s"]


async def test_a_found_failure_is_retried_under_a_new_key(bench: Bench) -> None:
    answers: Answers = [lookups.Found(outcome=outcomes.Busy())]
    channel = asked(bench, apply_then_drop(), answers=answers)
    engine, one = await ambiguous(bench)
    await look(engine)
    row = await bench.row(one)
    assert (State(row.state), row.last_error) == (State.PENDING_RETRY, "busy")
    await bench.sleep((row.wake_at - bench.now).total_seconds())
    await round_of(engine)
    first, second = channel.receiver.arrivals
    assert first.parcel.idempotency_key != second.parcel.idempotency_key


async def test_what_is_accepted_and_silent_is_looked_up(bench: Bench) -> None:
    accepted = outcomes.Accepted(until=bench.now + 60 * SECOND)
    asked(bench, refuse(accepted), answers=[lookups.Going(until=bench.now + 500 * SECOND), lookups.Absent()])
    engine, one = bench.engine(), await bench.add(on_ambiguous=RECONCILE, retry=retries.Policy(max_attempts=1))
    await round_of(engine)
    await bench.sleep(60)
    await engine.timers.step(may_end_others=True)
    row = await bench.row(one)
    assert (row.awaiting, row.wake_at, row.ambiguous_attempts) == ("lookup", bench.now + VISIBLE, 1)
    assert [(a.outcome, a.ambiguous, a.reason) for a in await bench.attempts(one)] == [("accepted", True, "no callback in time")]
    await bench.sleep(20)
    await look(engine)
    assert (await bench.row(one)).wake_at == accepted.until + 440 * SECOND
    await bench.sleep(430)
    await look(engine)
    assert (await bench.row(one)).reason == "exhausted"


async def test_a_lost_worker_that_had_an_intent_is_looked_up(bench: Bench) -> None:
    channel = asked(bench, deliver(answering=5))
    one = await bench.add(on_ambiguous=RECONCILE, retry=retries.Policy(max_attempts=1))
    await claim_and_die(bench)
    engine = await successor(bench)
    row = await bench.row(one)
    assert (State(row.state), row.awaiting, row.ambiguous_attempts, row.attempt_count) == (State.IN_PROGRESS, "lookup", 1, 0)
    await bench.sleep(VISIBLE.total_seconds())
    await look(engine)
    assert await bench.states(one) == [State.COMPLETED]
    assert len(channel.receiver.arrivals) == 1


async def test_look_ups_go_on_while_sends_rest_and_nothing_is_sent_again(bench: Bench) -> None:
    channel = asked(bench, drop_before_apply())
    engine, one = await ambiguous(bench)
    await bench.throw(switches.ALL)
    async with running(engine):
        await bench.sleep(30)
        row = await bench.row(one)
        assert (State(row.state), row.attempt_count) == (State.PENDING_RETRY, 1)
        assert len(channel.receiver.arrivals) == 1
        await bench.throw(switches.ALL, off=False)
        await bench.sleep(10)
    assert await bench.states(one) == [State.COMPLETED]


async def test_a_cancel_that_is_requested_meanwhile_stops_the_repeat_and_not_what_was_found(bench: Bench) -> None:
    asked(bench, apply_then_drop(), drop_before_apply())
    placed = await bench.add(number=2, on_ambiguous=RECONCILE)
    engine, unplaced = await ambiguous(bench)
    for one in (placed, unplaced):
        await bench.change(one, cancel_requested=True)
    await look(engine)
    assert await bench.states(placed, unplaced) == [State.COMPLETED, State.CANCELLED]


async def test_two_engines_ask_about_one_delivery_once(bench: Bench) -> None:
    asked(bench, apply_then_drop(), answers=[lookups.Absent()])
    engine, one = await ambiguous(bench)
    other = bench.engine()
    await asyncio.gather(look(engine), look(other))
    assert await bench.states(one) == [State.PENDING_RETRY]
    assert (await bench.row(one)).fence == 2


async def test_a_look_up_that_froze_comes_late_and_changes_nothing(bench: Bench) -> None:
    asked(bench, drop_before_apply())
    engine, one = await ambiguous(bench)
    until = bench.now + 60 * SECOND
    (frozen,) = await bench.database.write(store.lookups.take, ["webhook"], now=bench.now, until=until, limit=9)
    await bench.sleep(60)
    await look(engine)
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]
    engine.settler.add(engine.lookups._judge(frozen, lookups.Absent()))
    await engine.settle_once()
    assert await bench.states(one) == [State.COMPLETED]


@pytest.mark.parametrize(("hours", "state"), [(24, State.IN_PROGRESS), (26, State.DEAD_LETTER)])
async def test_what_nobody_can_ask_about_is_a_persons_after_a_day(bench: Bench, hours: int, state: State) -> None:
    asked(bench, apply_then_drop())
    _, one = await ambiguous(bench)
    deaf = bench.engine(channels={"webhook": ScriptedChannel(bench.clock)})
    await bench.sleep(hours * 3600)
    async with running(deaf):
        await bench.sleep(5)
    assert await bench.states(one) == [state]
