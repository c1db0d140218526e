"""How the judge is wired: each outcome leaves the row in its state, at its next instant, under its next key."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from campana import store
from campana.channels.base import Parcel, Permit
from campana.domain import outcomes, retries
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import State
from campana.domain.outcomes import Outcome
from campana.engine.options import Options
from campana.testing.channel import REPEATABLE, ScriptedChannel, apply_then_drop, deliver, drop_before_apply, refuse
from campana.testing.clock import START
from tests.engine.builders import SECOND, TENANT, Bench, idle, round_of

MINUTE = timedelta(minutes=1)
WAITS, ENDS = State.PENDING_RETRY, None
LATER = START + timedelta(hours=2)
CASES: dict[str, tuple[Outcome, State, timedelta | None, int]] = {
    "delivered": (outcomes.Delivered(), State.COMPLETED, ENDS, 1),
    "accepted": (outcomes.Accepted(until=LATER), State.IN_PROGRESS, timedelta(hours=2), 1),
    "failed": (outcomes.Failed(error="no"), WAITS, MINUTE, 2),
    "permanent": (outcomes.Failed(error="gone", permanent=True), State.DEAD_LETTER, ENDS, 2),
    "retry after": (outcomes.Failed(error="busy", retry_after=5 * MINUTE), WAITS, 5 * MINUTE, 2),
    "timed out": (outcomes.TimedOut(error="no connection"), WAITS, MINUTE, 2),
    "ambiguous": (outcomes.Ambiguous(error="reset"), WAITS, MINUTE, 1),
    "server error": (outcomes.Failed(error="503", ambiguous=True), WAITS, MINUTE, 2),
    "no answer": (outcomes.NoAnswer(), WAITS, MINUTE, 2),
    "busy": (outcomes.Busy(), WAITS, MINUTE, 2),
    "voicemail": (outcomes.Voicemail(), WAITS, MINUTE, 2),
    "declined": (outcomes.Declined(), State.DECLINED, ENDS, 2),
    "rescheduled": (outcomes.Rescheduled(at=LATER), WAITS, timedelta(hours=2), 2),
}


@pytest.mark.parametrize("case", CASES)
async def test_each_outcome_leads_to_its_state_instant_and_key(bench: Bench, case: str) -> None:
    outcome, state, wait, key = CASES[case]
    bench.channel = ScriptedChannel(bench.clock, [refuse(outcome)])
    engine, one = bench.engine(), await bench.add(retry=retries.Policy(base=MINUTE))
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.key_number, row.attempt_count) == (state, key, 1)
    assert row.wake_at == (None if wait is ENDS else START + wait)
    assert (row.finished_at is None) == (wait is not None)
    assert row.ambiguous_attempts == outcomes.is_ambiguous(outcome)
    (attempt,) = await bench.attempts(one)
    assert (attempt.outcome, attempt.number, attempt.key_number, attempt.late) == (outcomes.name(outcome), 1, 1, False)
    assert attempt.worker == engine.id
    assert attempt.guards == "switch,suspension,expiry,rate,breaker,key"


@pytest.mark.parametrize(("act", "same"), [(apply_then_drop(), True), (drop_before_apply(), True), (refuse(), False)])
async def test_the_key_stays_after_an_unknown_end_and_changes_after_a_known_failure(
    bench: Bench, act: object, same: bool
) -> None:
    acts = iter([act, deliver()])
    bench.channel = ScriptedChannel(bench.clock, lambda _: next(acts))  # type: ignore[arg-type,return-value]  # parametrised
    engine, one = bench.engine(), await bench.add()
    await round_of(engine)
    await bench.sleep(60)
    await round_of(engine)
    first, second = bench.channel.receiver.arrivals
    assert (first.parcel.idempotency_key == second.parcel.idempotency_key) is same
    assert first.parcel.delivery_key == second.parcel.delivery_key
    assert [first.parcel.number, second.parcel.number] == [1, 2]
    assert (replace(second.parcel, number=1) == first.parcel) is same, "to the last byte"
    assert await bench.states(one) == [State.COMPLETED]


async def test_the_last_attempt_buries(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: refuse())
    engine, one = bench.engine(), await bench.add(retry=retries.Policy(max_attempts=2, base=SECOND))
    for _ in range(3):
        await round_of(engine)
        await bench.sleep(1)
    row = await bench.row(one)
    assert (State(row.state), row.reason, row.attempt_count) == (State.DEAD_LETTER, "exhausted", 2)
    assert len(bench.channel.receiver.arrivals) == 2


async def test_under_hold_an_unknown_end_is_not_repeated(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [apply_then_drop()])
    engine, one = bench.engine(), await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.reason, row.ambiguous_attempts) == (State.DEAD_LETTER, "ambiguous", 1)
    assert row.finished_at - START < SECOND
    for _ in range(24):
        await bench.sleep(3_600)
        await round_of(engine)
    assert len(bench.channel.receiver.arrivals) == 1


async def test_those_that_fail_in_one_instant_come_back_spread_over_the_jitter(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: refuse())
    engine = bench.engine(options=Options(in_flight=300, batch=300))
    ids = [await bench.add(number, retry=retries.Policy(base=MINUTE, jitter=1.0)) for number in range(300)]
    await round_of(engine)
    waits = [(row.wake_at - bench.now).total_seconds() for row in await bench.rows(ids)]
    assert 0 < min(waits) < max(waits) <= 120
    assert max(Counter(int(wait // 10) for wait in waits).values()) < 2 * 300 / 12


async def test_a_channel_that_raises_is_an_unknown_end_and_harms_no_neighbour(bench: Bench) -> None:
    class Broken:
        name = "broken"
        contract = REPEATABLE

        async def send(self, parcel: Parcel, permit: Permit) -> Outcome:
            await permit()
            raise KeyError("a bug")

        async def close(self) -> None:
            """Nothing."""

    engine = bench.engine(channels={"webhook": bench.channel, "log": Broken()})
    bad, good = await bench.add(1, queue="log", channel="log"), await bench.add(2)
    await round_of(engine)
    assert await bench.states(bad, good) == [State.PENDING_RETRY, State.COMPLETED]
    (attempt,) = await bench.attempts(bad)
    assert attempt.outcome == "ambiguous"
    assert "KeyError" in attempt.error


async def test_a_cancel_asked_for_under_way_lets_the_outcome_stand_and_no_retry_follow(bench: Bench) -> None:
    acts = iter([refuse(answering=1), deliver(answering=1)])
    bench.channel = ScriptedChannel(bench.clock, lambda _: next(acts))
    engine = bench.engine()
    ids = [await bench.add(number, after=number * timedelta(microseconds=1)) for number in range(2)]
    await bench.sleep(0.1)
    await engine.tick_once()
    await engine.pump_once()
    for one in ids:
        await bench.database.write(store.deliveries.cancel, TENANT, one, now=bench.now)
    await idle(engine)
    assert await bench.states(*ids) == [State.CANCELLED, State.COMPLETED]


async def test_silence_after_an_accepted_attempt_is_judged_when_its_time_is_up(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [refuse(outcomes.Accepted(until=START + 10 * MINUTE))])
    engine, one = bench.engine(), await bench.add(retry=retries.Policy(base=MINUTE))
    await round_of(engine)
    await bench.sleep(599)
    await round_of(engine)
    assert await bench.states(one) == [State.IN_PROGRESS]
    await bench.sleep(1)
    await round_of(engine)
    row = await bench.row(one)
    assert (State(row.state), row.attempt_count, row.ambiguous_attempts) == (State.PENDING_RETRY, 1, 1)
    assert row.wake_at == START + 11 * MINUTE
