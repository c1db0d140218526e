"""What engines write down is what explain reads: each reason that an engine has for not sending is told as it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain import outcomes, switches
from campana.domain.ambiguity import OnAmbiguous
from campana.operations import explain
from campana.operations.explain import Explanation
from campana.testing.channel import ScriptedChannel, apply_then_drop, deliver, refuse
from tests.engine.builders import SECOND, TENANT, Bench, idle, round_of

FOREVER = deliver(answering=20)


async def told(bench: Bench, it: UUID) -> Explanation:
    facts = await bench.database.read(store.explains.facts, TENANT, it, now=bench.now)
    assert facts is not None
    return explain.of(facts, bench.now)


async def kinds(bench: Bench, it: UUID) -> list[str]:
    return [one.kind for one in (await told(bench, it)).holds]


async def test_what_a_switch_parks(bench: Bench) -> None:
    engine, it = bench.engine(), await bench.add()
    await bench.throw(switches.everywhere("webhook"))
    await round_of(engine)
    said = await told(bench, it)
    assert [(one.kind, one.scope) for one in said.holds] == [("switch", "all/channel:webhook")]
    assert (said.story[1].kind, said.story[1].verdict, said.story[1].guards) == ("guard", "hold", ("switch",))
    await bench.throw(switches.everywhere("webhook"), off=False)
    assert await kinds(bench, it) == ["parked"]
    await engine.tick_once()
    await engine.release_once()
    assert await kinds(bench, it) == ["queue"]


async def test_what_a_suspension_parks(bench: Bench) -> None:
    engine, it = bench.engine(), await bench.add()
    await bench.suspend()
    await round_of(engine)
    assert await kinds(bench, it) == ["suspension"]


async def test_what_a_limit_puts_off(bench: Bench) -> None:
    await bench.database.write(store.limits.put, switches.everywhere("webhook"), interval=60 * SECOND, burst=1)
    engine = bench.engine()
    first, second = await bench.add(1), await bench.add(2)
    await round_of(engine)
    held = [one for it in (first, second) for one in (await told(bench, it)).holds]
    assert [(one.kind, one.until) for one in held] == [("limit", bench.now + 60 * SECOND)]


@pytest.mark.parametrize(("column", "kind"), [({"lane_key": "lane:a"}, "lane"), ({"resource": "slots:a"}, "slots")])
async def test_what_waits_for_another(bench: Bench, column: dict[str, Any], kind: str) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: FOREVER)
    await bench.database.write(store.lanes.provide, "slots:a", 1)
    engine = bench.engine()
    both = [await bench.add(number) for number in (1, 2)]
    for it in both:
        await bench.change(it, **column)
    await engine.tick_once()
    await engine.pump_once()
    said = [await told(bench, it) for it in both]
    assert sorted(one.status for one in said) == ["processing", "scheduled"]
    assert [one.kind for each in said for one in each.holds] == [kind]
    await idle(engine)


async def test_where_no_engine_serves_it(bench: Bench) -> None:
    it = await bench.add(queue="python:absent", channel="python")
    await round_of(bench.engine())
    assert await kinds(bench, it) == ["engine"]


async def test_what_failed_and_what_it_came_to(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, lambda _: refuse(outcomes.Failed(error="no")))
    engine, it = bench.engine(), await bench.add()
    await round_of(engine)
    assert await kinds(bench, it) == ["retry"]
    for seconds in (60, 120):
        await bench.sleep(seconds)
        await round_of(engine)
    said = await told(bench, it)
    assert (said.status, said.reason, said.following) == ("dead_letter", "exhausted", None)
    assert [line.number for line in said.story if line.kind == "attempt"] == [1, 2, 3]


async def test_what_a_person_must_decide(bench: Bench) -> None:
    bench.channel = ScriptedChannel(bench.clock, [apply_then_drop()])
    engine, it = bench.engine(), await bench.add(on_ambiguous=OnAmbiguous.HOLD)
    await round_of(engine)
    assert "Resolve it as `sent` or `not_sent`" in (await told(bench, it)).text


async def test_what_a_provider_has(bench: Bench) -> None:
    until = bench.now + 600 * SECOND
    bench.channel = ScriptedChannel(bench.clock, [refuse(outcomes.Accepted(until=until))])
    engine, it = bench.engine(), await bench.add()
    await round_of(engine)
    said = await told(bench, it)
    assert said.following is not None
    assert (said.status, said.following.what, said.following.at) == ("in_progress", "callback", until)


async def test_what_expired(bench: Bench) -> None:
    engine, it = bench.engine(), await bench.add(expires_at=bench.now + SECOND)
    await bench.sleep(2)
    said = await told(bench, it)
    assert said.following is not None
    assert said.following.what == "skip"
    await round_of(engine)
    assert ((await told(bench, it)).status, (await told(bench, it)).reason) == ("skipped", "expired")
