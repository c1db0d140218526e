"""A receiver that is down, asks for patience, refuses or comes back: what its deliveries and everybody else's see of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from campana import store
from campana.channels.base import Parcel
from campana.domain import ambiguity, breakers, guards, outcomes, retries
from campana.domain.ambiguity import Trouble
from campana.domain.deliveries import State
from campana.engine import destinations
from campana.engine.options import Options
from campana.operations import explain
from campana.store import schema
from campana.telemetry import Telemetry
from campana.testing.channel import Act, ScriptedChannel, deliver, refuse
from tests.engine.builders import SECOND, TENANT, Bench, Silence, round_of, running

OTHER = UUID(int=3)
MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND
PATIENT = retries.Policy(max_attempts=50, base=30 * SECOND, cap=5 * MINUTE)
FIRST, LONGEST = breakers.DEFAULT.first, breakers.DEFAULT.longest


def refused() -> Act:
    return refuse(ambiguity.outcome_of(Trouble.NO_CONNECTION, "refused"))


def saying(code: int, *, retry_after: timedelta | None = None) -> Act:
    answer = outcomes.Answer(code=code)
    return refuse(outcomes.Failed(error=str(code), permanent=code == 404, retry_after=retry_after, answer=answer))


class Street:
    """Receivers by name, and what each of them does now."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.acts: dict[str, Act] = {}
        self.asked: Counter[str] = Counter()
        self.at: dict[str, list[float]] = {}
        bench.channel = ScriptedChannel(bench.clock, self.act, destination=self.destination)
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        bench.telemetry = Telemetry(Silence())
        bench.telemetry.listen(self.hear)

    def destination(self, target: Mapping[str, Any]) -> str | None:
        return target.get("at")

    def act(self, parcel: Parcel) -> Act:
        name = parcel.target["at"]
        self.asked[name] += 1
        self.at.setdefault(name, []).append(self.bench.clock.steady())
        return self.acts.get(name) or deliver()

    def hear(self, name: str, fields: Mapping[str, Any]) -> None:
        if name.startswith("breaker."):
            self.told.append((name, fields))

    async def add(self, number: int, name: str = "down", **said: Any) -> UUID:
        return await self.bench.add(number, target=f'{{"at":"{name}"}}', retry=said.pop("retry", PATIENT), **said)


@pytest.fixture
def street(bench: Bench) -> Street:
    return Street(bench)


async def ended(bench: Bench, ids: list[UUID]) -> bool:
    return set(await bench.states(*ids)) == {State.COMPLETED}


async def test_a_receiver_that_is_down_for_an_hour_is_asked_a_few_times_and_gets_everything_afterwards(
    bench: Bench, street: Street
) -> None:
    street.acts["down"] = refused()
    ids = [await street.add(number, after=number * 20 * SECOND) for number in range(150)]
    async with running(bench.engine()):
        await bench.sleep(3_600)
        # Five in a row, a probe after 10, 20, 40, 80 and 160 s, then one every five minutes and a little.
        assert breakers.DEFAULT.trip_after <= street.asked["down"] <= 25
        assert [name for name, _ in street.told] == ["breaker.tripped"]
        tries = [row.attempt_count for row in await bench.rows(ids)]
        assert sum(tries) == street.asked["down"]
        del street.acts["down"]
        await bench.sleep((LONGEST + destinations.COARSE) / SECOND + 60)
        assert await ended(bench, ids)
    assert [name for name, _ in street.told] == ["breaker.tripped", "breaker.closed"]


async def test_what_comes_back_is_not_overrun(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    ids = [await street.add(number) for number in range(400)]
    async with running(bench.engine()):
        await bench.sleep(5)
        street.acts["down"] = deliver(answering=0.1)
        before = len(street.at["down"])
        await bench.sleep(60)
        assert await ended(bench, ids)
    times = street.at["down"][before:]
    # The probe alone; and of those that are there after it one, and one more with each answer.
    probe, first = times[0], times[1]
    assert first - probe >= 0.1
    waves = Counter(int((at - first) / 0.099) for at in times[1:])
    assert [waves[0], waves[1]] <= [1, 2]
    assert sum(waves[number] for number in range(4)) <= 15
    assert max(waves.values()) <= 2 * Options().per_host


async def test_one_probe_goes_at_a_time_however_long_it_hangs(bench: Bench, street: Street) -> None:
    street.acts["down"] = deliver(answering=1_000)
    for number in range(60):
        await street.add(number)
    async with running(bench.engine()):
        await bench.sleep(900)
    send = Options().send_timeout / SECOND
    probes = street.at["down"][breakers.DEFAULT.trip_after :]
    assert len(probes) >= 4
    assert all(later - earlier >= send for earlier, later in itertools.pairwise(probes))


async def test_a_probe_that_finds_the_receiver_full_comes_back_soon_and_not_after_a_period(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    for number in range(10):
        await street.add(number)
    async with running(bench.engine(options=Options(per_host=2))):
        await bench.sleep(5)
        street.acts["down"] = deliver(answering=12)
        for number in range(20, 22):
            await street.add(number, tenant_id=OTHER)
        await bench.sleep(1)
        street.acts["down"] = deliver()
        # The first period ends at ten seconds, and the other tenant fills the receiver until seventeen.
        await bench.sleep(10)
        assert street.asked["down"] == breakers.DEFAULT.trip_after + 2
        await bench.sleep(3.5)
        assert street.asked["down"] > breakers.DEFAULT.trip_after + 2


async def test_each_waits_once_a_period_while_a_receiver_is_left_alone(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    ids = [await street.add(number) for number in range(60)]
    async with running(bench.engine(options=Options(crowd=10_000))):
        await bench.sleep(1_800)
    # Its own attempts aside, a row is looked at as often as there were periods: 10, 20, 40, 80, 160 s, and five of 300 s.
    for it in ids:
        put_off = [row for row in await bench.verdicts(it) if row.reason == guards.BREAKER_OPEN]
        assert len(put_off) <= 11


async def test_a_crowd_is_put_off_without_a_claim_of_each(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    ids = [await street.add(number) for number in range(600)]
    async with running(bench.engine()):
        await bench.sleep(5)
        rows = await bench.rows(ids)
        assert sum(row.fence == 0 for row in rows) > 300
        assert {row.reason for row in rows if row.fence == 0} == {guards.BREAKER_OPEN}
        assert all(row.wake_at > bench.now for row in rows)
        del street.acts["down"]
        await bench.sleep(120)
        assert await ended(bench, ids)


async def test_nobody_else_waits_for_it_neither_another_receiver_nor_another_tenant(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    for number in range(10):
        await street.add(number)
    engine = bench.engine()
    await round_of(engine)
    await round_of(engine)
    assert [name for name, _ in street.told] == ["breaker.tripped"]
    well, theirs = await street.add(11, "well"), await street.add(12, tenant_id=OTHER)
    street.acts["down"] = deliver()
    await round_of(engine)
    assert await bench.states(well, theirs) == [State.COMPLETED, State.COMPLETED]


@pytest.mark.parametrize("code", [400, 401, 404, 422, 301])
async def test_a_receiver_that_refuses_is_no_receiver_that_fails(bench: Bench, street: Street, code: int) -> None:
    street.acts["down"] = saying(code)
    engine = bench.engine()
    for number in range(30):
        await street.add(number)
        await round_of(engine)
    assert street.asked["down"] == 30
    assert street.told == []


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize(("asked", "until"), [(40 * SECOND, 40 * SECOND), (timedelta(days=3650), LONGEST)])
async def test_a_wish_for_patience_holds_for_all_of_the_receivers_deliveries_within_bounds(
    bench: Bench, street: Street, code: int, asked: timedelta, until: timedelta
) -> None:
    street.acts["down"] = saying(code, retry_after=asked)
    engine, _ = bench.engine(), await street.add(1)
    await round_of(engine)
    del street.acts["down"]
    it = await street.add(2)
    await round_of(engine)
    row = await bench.row(it)
    assert (row.attempt_count, row.reason) == (0, guards.RETRY_AFTER)
    assert until <= row.wake_at - bench.now <= until + destinations.COARSE
    await bench.sleep((row.wake_at - bench.now) / SECOND)
    await round_of(engine)
    assert await bench.states(it) == [State.COMPLETED]


async def test_what_waits_for_a_receiver_still_expires_on_time(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    for number in range(10):
        await street.add(number)
    async with running(bench.engine()):
        await bench.sleep(1)
        it = await street.add(11, expires_at=bench.now + 3 * SECOND)
        await bench.sleep(3.1)
        row = await bench.row(it)
        assert (State(row.state), row.reason, row.attempt_count) == (State.SKIPPED, "expired", 0)


async def test_a_probe_that_a_switch_stops_is_followed_by_another_one(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    ids = [await street.add(number) for number in range(10)]
    async with running(bench.engine()):
        await bench.sleep(5)
        street.acts["down"] = deliver(connecting=1.0)
        await bench.sleep(5.5)
        await bench.throw("all")
        await bench.sleep(3)
        await bench.throw("all", off=False)
        await bench.sleep(120)
        assert await ended(bench, ids)


async def test_who_owns_the_receiver_is_told_once_that_it_fails_and_once_that_it_is_back(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    for number in range(20):
        await street.add(number)
    async with running(bench.engine()):
        await bench.sleep(400)
        del street.acts["down"]
        await bench.sleep(400)
    names = [name for name, _ in street.told]
    assert names == ["breaker.tripped", "breaker.closed"]
    said = street.told[0][1]
    assert (said["destination"], said["tenant_id"], said["failures"]) == ("down", str(TENANT), "5")
    assert "refused" in said["error"]
    c = schema.events.c
    kinds = select(c.kind, c.tenant_id, c.number).where(c.delivery_id.is_(None)).order_by(c.number)
    rows = await bench.database.read(lambda connection: connection.execute(kinds).all())
    assert [(row.kind, row.tenant_id) for row in rows] == [(name, TENANT) for name in names]
    assert all(row.number is not None for row in rows)


async def test_explain_says_that_the_receiver_fails_and_until_when_it_waits(bench: Bench, street: Street) -> None:
    street.acts["down"] = refused()
    for number in range(10):
        await street.add(number)
    engine = bench.engine()
    await round_of(engine)
    it = await street.add(11)
    await round_of(engine)
    facts = await bench.database.read(store.explains.facts, TENANT, it, now=bench.now)
    assert facts is not None
    said = explain.of(facts, bench.now)
    assert [(one.kind, one.until) for one in said.holds] == [("breaker", facts.record.wake_at)]
    assert "keeps failing" in said.holds[0].text
    assert said.following is not None
    assert (said.following.what, said.following.at) == ("look", facts.record.wake_at)
    line = next(line for line in said.story if line.kind == "guard")
    assert (line.verdict, line.guards[-1]) == ("defer", "breaker")


async def test_what_is_known_of_receivers_stays_within_bounds(
    bench: Bench, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destinations, "MOST_KNOWN", 10)
    engine = bench.engine()
    for number in range(60):
        street.acts[f"receiver {number}"] = refused() if number % 2 else deliver()
        await street.add(number, f"receiver {number}")
    await round_of(engine)
    assert engine.destinations._known == sum(len(host.gates) for host in engine.destinations._hosts.values())
    for number in range(60, 80):
        await street.add(number, f"receiver {number}")
        await round_of(engine)
    assert engine.destinations._known <= 11


async def test_a_target_with_a_large_body_in_it_is_not_remembered(bench: Bench, street: Street) -> None:
    engine, sizes = bench.engine(), (10, 200_000)
    for number, size in enumerate(sizes):
        await bench.add(number, target=f'{{"at":"well","body":"{"x" * size}"}}')
    await round_of(engine)
    assert street.asked["well"] == len(sizes)
    assert engine.destinations._named.cache_info().currsize == 1
