"""Limits: what stands under one leaves at the instants that it hands out, each delivery at its own."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from campana import store
from campana.domain import switches
from campana.domain.deliveries import State
from campana.errors import UnavailableError
from tests.engine.builders import SECOND, TENANT, Bench, round_of, running


async def limit(bench: Bench, scope: str, interval: timedelta) -> None:
    await bench.database.write(store.limits.put, scope, interval=interval, burst=1)


async def arrivals(bench: Bench, count: int, seconds: float) -> list[float]:
    """When so many deliveries that are due now arrive, in seconds from now."""
    began = bench.now
    for number in range(count):
        await bench.add(number)
    async with running(bench.engine()):
        await bench.sleep(seconds)
    return [(arrival.at - began) / SECOND for arrival in bench.channel.receiver.arrivals]


async def test_what_is_due_at_once_leaves_at_the_limits_pace_and_each_takes_one_instant(bench: Bench) -> None:
    await limit(bench, switches.tenant(TENANT), SECOND)
    assert await arrivals(bench, 5, 10) == pytest.approx([0, 1, 2, 3, 4], abs=0.01)


async def test_under_two_limits_the_slower_one_says_the_pace(bench: Bench) -> None:
    await limit(bench, switches.everywhere("webhook"), SECOND)
    await limit(bench, switches.tenant(TENANT), 2 * SECOND)
    assert await arrivals(bench, 4, 10) == pytest.approx([0, 2, 4, 6], abs=0.01)


async def test_a_limit_of_another_tenant_slows_nothing_here(bench: Bench) -> None:
    await limit(bench, switches.tenant(UUID(int=9)), 2 * SECOND)
    assert await arrivals(bench, 4, 1) == pytest.approx([0, 0, 0, 0], abs=0.01)


async def test_while_a_limit_cant_be_asked_nothing_leaves_under_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await limit(bench, switches.tenant(TENANT), SECOND)
    engine, one = bench.engine(), await bench.add()

    def reserve(*_: object, **__: object) -> None:
        raise UnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(store.limits, "reserve", reserve)
        await round_of(engine)
    assert bench.channel.receiver.arrivals == []
    row = await bench.row(one)
    assert (State(row.state), row.attempt_count, row.reason) == (State.SCHEDULED, 0, "rate_limited")
    await bench.sleep(1)
    await round_of(engine)
    assert await bench.states(one) == [State.COMPLETED]
