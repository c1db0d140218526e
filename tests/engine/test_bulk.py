"""Redriven letters on their second way, one by one and many at once, whatever happens to the engines that do it."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from campana import store
from campana.domain import outcomes
from campana.domain.acts import Act, Came, Deed
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import State
from campana.store import bulk
from campana.store.bulk import NewOperation
from campana.store.deliveries import Filter
from campana.testing.channel import ScriptedChannel, apply_then_drop, refuse
from campana.world import uuid7
from tests.engine.builders import TENANT, Bench, away, idle, round_of, running

PERMANENT = refuse(outcomes.Failed(error="gone", permanent=True))
LETTERS = Filter(states=frozenset({State.DEAD_LETTER}))


async def redrive(bench: Bench, it: UUID) -> Came:
    deed = Deed(act=Act.REDRIVE, actor="key:1")
    return (await bench.database.write(store.acts.perform, TENANT, [it], deed, now=bench.now))[it]


async def begin(bench: Bench, act: Act = Act.REDRIVE) -> UUID:
    it = uuid7(int(bench.now.timestamp() * 1_000) * 4_096, 1)
    new = NewOperation(id=it, tenant_id=TENANT, act=act, wanted=LETTERS, actor="key:1", created_at=bench.now)
    await bench.database.write(bulk.begin, new)
    return it


async def test_a_redriven_letter_has_its_whole_budget_and_new_attempt_keys(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [PERMANENT, refuse()])
    engine, it = bench.engine(), await bench.add()
    await round_of(engine)
    assert await redrive(bench, it) is Came.DONE
    await round_of(engine)
    row = await bench.row(it)
    assert (row.state, row.attempt_count, row.generation) == (State.PENDING_RETRY, 1, 2)
    await bench.sleep(60)
    await round_of(engine)
    assert (await bench.row(it)).state == State.COMPLETED
    parcels = [one.parcel for one in bench.channel.receiver.arrivals]
    assert [one.number for one in parcels] == [1, 1, 2]
    assert len({one.delivery_key for one in parcels}) == 1
    assert len({one.idempotency_key for one in parcels}) == 3
    assert [(one.generation, one.number) for one in await bench.attempts(it)] == [(1, 1), (2, 1), (2, 2)]


async def test_an_ambiguous_attempt_stays_on_record_when_its_letter_is_sent_anew(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [apply_then_drop()])
    engine, it = bench.engine(), await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    await round_of(engine)
    row = await bench.row(it)
    assert (row.state, row.reason) == (State.DEAD_LETTER, "ambiguous")
    not_sent = Deed(act=Act.NOT_SENT, actor="key:1")
    await bench.database.write(store.acts.perform, TENANT, [it], not_sent, now=bench.now)
    await round_of(engine)
    row = await bench.row(it)
    assert (row.state, row.generation, row.ambiguous_attempts) == (State.COMPLETED, 2, 1)
    assert [one.ambiguous for one in await bench.attempts(it)] == [True, False]


async def test_engines_do_what_was_asked_for_many_and_send_it(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [PERMANENT] * 5)
    letters = [await bench.add(number) for number in range(1, 6)]
    async with running(bench.engine(), bench.engine()):
        await bench.sleep(1)
        assert await bench.states(*letters) == [State.DEAD_LETTER] * 5
        it = await begin(bench)
        await bench.sleep(5)
    assert await bench.states(*letters) == [State.COMPLETED] * 5
    assert sorted(bench.channel.receiver.effects.values()) == [1] * 5
    row = await bench.database.read(bulk.get, TENANT, it)
    assert row is not None
    assert (row.status, row.done, row.failed) == ("finished", 5, 0)


async def test_an_engine_that_dies_in_the_middle_is_followed_by_another(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    letters = [await bench.add(number) for number in range(1, 6)]
    for one in letters:
        await bench.change(one, state=int(State.DEAD_LETTER), wake_at=None)
    it = await begin(bench, Act.DISCARD)
    assert await bench.engine().bulk.step()
    assert [one.name for one in await bench.states(*letters)] == ["CANCELLED"] * 2 + ["DEAD_LETTER"] * 3
    await bench.engine().bulk.run()
    assert await bench.states(*letters) == [State.CANCELLED] * 5
    row = await bench.database.read(bulk.get, TENANT, it)
    assert row is not None
    assert (row.status, row.done) == ("finished", 5)


async def test_a_database_that_is_away_ends_no_operation(bench: Bench) -> None:
    letter = await bench.add()
    await bench.change(letter, state=int(State.DEAD_LETTER), wake_at=None)
    it, engine = await begin(bench), bench.engine()
    async with running(engine):
        await bench.sleep(0.5)
        bench.runner.broken = away
        await bench.sleep(20)
        bench.runner.broken = lambda: None
        await bench.sleep(20)
    row = await bench.database.read(bulk.get, TENANT, it)
    assert row is not None
    assert (row.status, row.done) == ("finished", 1)


async def test_an_operation_that_can_not_go_on_is_ended_and_holds_up_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await bench.add()
    await bench.change(letter, state=int(State.DEAD_LETTER), wake_at=None)
    bad = NewOperation(id=uuid4(), tenant_id=TENANT, act=Act.SENT, wanted=LETTERS, actor="key:1", created_at=bench.now)
    await bench.database.write(bulk.begin, bad)
    good = await begin(bench, Act.DISCARD)
    really = bulk._load

    def broken(text: str) -> Filter:
        monkeypatch.setattr(bulk, "_load", really)
        raise ValueError(text)

    engine = bench.engine()
    engine.bulk._last = good
    monkeypatch.setattr(bulk, "_load", broken)
    await engine.bulk.run()
    rows = [await bench.database.read(bulk.get, TENANT, one) for one in (bad.id, good)]
    assert sorted(row.status for row in rows if row) == ["failed", "finished"]
    assert bench.telemetry.counts["operation.failed"] == 1


async def test_an_idle_engine_finds_nothing_to_do(bench: Bench) -> None:
    engine = bench.engine()
    assert not await engine.bulk.step()
    await idle(engine)
    assert bench.telemetry.counts["store.advance"] == 0
