"""How outcomes become durable: in groups, in spite of one that the database refuses, in spite of a database that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from campana import store
from campana.domain import deliveries as model
from campana.domain import outcomes, retries
from campana.domain.deliveries import State
from campana.domain.outcomes import Answer
from campana.domain.tickets import Settlement
from campana.engine.options import Options
from campana.errors import UnavailableError
from campana.store.database import CommitLostError, Unit, Urgency
from campana.store.settlements import Applied
from campana.testing.channel import ScriptedChannel, deliver, refuse
from tests.engine.builders import SECOND, Bench, ServerRunner, away, idle, round_of, running


async def test_what_ends_together_shares_one_transaction(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=0.5))
    ids = [await bench.add(number) for number in range(50)]
    async with running(bench.engine()):
        await bench.sleep(1)
        assert await bench.states(*ids) == [State.COMPLETED] * 50
        assert bench.telemetry.counts["store.apply"] == 1


async def test_a_group_is_no_larger_than_asked(bench: Bench) -> None:
    engine = bench.engine(options=Options(group=4))
    ids = [await bench.add(number) for number in range(10)]
    await round_of(engine)
    assert await bench.states(*ids) == [State.COMPLETED] * 10
    assert bench.telemetry.counts["store.apply"] == 3


async def test_a_refused_outcome_is_found_and_settled_bare_and_its_neighbours_keep_theirs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store.settlements.apply
    groups: list[int] = []

    def apply(connection: Connection, group: Sequence[Settlement], **said: Any) -> Applied:
        groups.append(len(group))
        if any(one.attempt and one.attempt.outcome.answer.body == "poison" for one in group):
            raise ValueError("a string literal cannot contain NUL")
        return real(connection, group, **said)

    monkeypatch.setattr(store.settlements, "apply", apply)
    answers = iter([Answer(code=200, body="poison" if number == 5 else "fine") for number in range(8)])
    bench.channel = ScriptedChannel(bench.clock, lambda _: refuse(outcomes.Delivered(answer=next(answers)), answering=0.1))
    ids = [await bench.add(number) for number in range(8)]
    engine = bench.engine()
    await engine.tick_once()
    await engine.pump_once()
    await asyncio.wait(list(engine._busy.values()))
    await engine.settle_once()
    assert await bench.states(*ids) == [State.COMPLETED] * 8
    assert sorted(groups) == [1, 1, 1, 2, 2, 4, 4, 8], "halved to the bad one, which was tried whole and then bare"
    bodies = [(await bench.attempts(one))[0].response_body for one in ids]
    assert sorted(bodies, key=str) == sorted(["fine"] * 7 + [None], key=str)
    assert bench.telemetry.counts["settle.refused"] == 1


async def test_what_is_refused_even_bare_is_dropped_and_ended_by_its_lease(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(connection: Connection, group: Sequence[Settlement], **said: Any) -> Applied:
        raise ValueError("no")

    engine, one = bench.engine(), await bench.add()
    with monkeypatch.context() as patch:
        patch.setattr(store.settlements, "apply", apply)
        await round_of(engine)
    assert engine.settler.unsettled == 0
    await bench.sleep(60)
    await round_of(engine)
    assert (await bench.row(one)).crash_count == 1


async def test_while_the_database_is_away_outcomes_are_kept_and_nothing_is_claimed(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=0.5))
    engine, one = bench.engine(), await bench.add(1)
    await engine.tick_once()
    await engine.pump_once()
    bench.runner.broken = away
    await asyncio.wait(list(engine._busy.values()))
    assert await engine.settle_once() is False
    assert engine.settler.unsettled == 1
    assert not engine.can_claim
    with pytest.raises(UnavailableError):
        await engine.tick_once()
    bench.runner.broken = lambda: None
    two = await bench.add(2)
    assert await engine.settle_once() is True
    await round_of(engine)
    assert await bench.states(one, two) == [State.COMPLETED] * 2
    assert len(bench.channel.receiver.arrivals) == 2


async def test_a_running_engine_survives_an_absence_longer_than_the_lease(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: deliver(answering=2))
    ids = [await bench.add(number, after=number * SECOND) for number in range(20)]
    async with running(bench.engine(options=Options(lease=6 * SECOND, renewal=2 * SECOND))):
        await bench.sleep(3)
        bench.runner.broken = away
        await bench.sleep(30)
        bench.runner.broken = lambda: None
        await bench.sleep(40)
    assert await bench.states(*ids) == [State.COMPLETED] * 20
    assert set(bench.channel.receiver.effects.values()) == {1}, "what was known before the absence was not done again"


async def test_a_commit_whose_answer_was_lost_is_read_back(bench: Bench) -> None:
    class Forgetful(ServerRunner):
        lost = 0

        async def write(self, unit: Unit, urgency: Urgency) -> Any:
            result = await super().write(unit, urgency)
            self.lost += 1
            if self.lost % 2:
                raise CommitLostError
            return result

    ids = [await bench.add(number) for number in range(5)]
    engine = bench.engine(runner=Forgetful(bench.inner, bench.clock))
    await round_of(engine)
    assert await bench.states(*ids) == [State.COMPLETED] * 5
    assert [row.fence for row in await bench.rows(ids)] == [1] * 5
    assert set(bench.channel.receiver.effects.values()) == {1}
    assert bench.telemetry.counts["store.commit_lost"] >= 3


async def test_a_settlement_that_lost_its_claim_changes_nothing_and_is_kept_as_evidence(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=0.5), refuse(outcomes.Failed(error="no", permanent=True))])
    slow, fast = bench.engine(), bench.engine()
    one = await bench.add()
    await slow.tick_once()
    await slow.pump_once()
    await asyncio.wait(list(slow._busy.values()))
    assert slow.settler.unsettled == 1
    await bench.change(one, state=int(State.PENDING_RETRY), wake_at=bench.now, lease_owner=None)
    await round_of(fast)
    before = await bench.row(one)
    assert State(before.state) is State.DEAD_LETTER
    await slow.settle_once()
    assert slow.settler.unsettled == 0
    assert await bench.row(one) == before
    assert [(a.fence, a.outcome, a.late) for a in await bench.attempts(one)] == [(1, "delivered", True), (2, "failed", False)]


async def test_a_result_after_the_lease_was_ended_stands_beside_the_lost_attempt(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [deliver(answering=0.5)])
    slow, other = bench.engine(), bench.engine(owns_file=True)
    one = await bench.add()
    await slow.tick_once()
    await slow.pump_once()
    await asyncio.wait(list(slow._busy.values()))
    await bench.sleep(60)
    await other.tick_once()
    assert await other.timers.step(may_end_others=True) is False
    before = await bench.row(one)
    assert (State(before.state), before.crash_count, before.ambiguous_attempts) == (State.SCHEDULED, 1, 1)
    await slow.settle_once()
    assert await bench.row(one) == before
    (attempt,) = await bench.attempts(one)
    assert (attempt.outcome, attempt.late, attempt.reason) == ("ambiguous", True, "late: delivered")


async def test_too_many_outcomes_in_memory_stop_claiming(bench: Bench) -> None:
    engine, one = bench.engine(), await bench.add()
    await engine.tick_once()
    kept = Settlement(delivery_id=one, tenant_id=one, fence=9, generation=1, transition=model.Completed())
    for _ in range(2_000):
        engine.settler.add(kept)
    assert not engine.can_claim
    await engine.pump_once()
    assert (await bench.row(one)).fence == 0
    await idle(engine)
    assert engine.can_claim


async def test_a_retry_that_becomes_durable_rings(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [refuse()])
    engine = bench.engine()
    await bench.add()
    await round_of(engine)
    assert engine.wakeup.next_send == bench.now + timedelta(seconds=60)


async def test_a_settlement_that_is_read_back_after_the_row_was_claimed_again_is_no_error(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [refuse(answering=0.1), deliver(answering=0.1)])
    slow, fast = bench.engine(), bench.engine()
    one = await bench.add(retry=retries.Policy(base=timedelta(microseconds=1)))
    await slow.tick_once()
    await slow.pump_once()
    await asyncio.wait(list(slow._busy.values()))
    group = list(slow.settler._waiting)
    await bench.database.write(store.settlements.apply, group, now=bench.now)
    await bench.sleep(0.1)
    await fast.tick_once()
    await fast.pump_once()
    assert await bench.states(one) == [State.PROCESSING]
    assert await slow.settle_once() is True
    await idle(fast)
    assert await bench.states(one) == [State.COMPLETED]
