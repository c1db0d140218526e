"""The attempt that is durable before its first byte: only where claim, lease, switches and tenant still allow it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain import switches
from campana.domain.deliveries import State
from campana.store.attempts import Intent
from campana.store.schema import attempts
from tests.engine.builders import suspend
from tests.store import builders
from tests.store.builders import HOUR, ME, NOW, SECOND, TENANT, YOU
from tests.store.desk import Desk, hands, until_blocked

HELD: Mapping[str, Any] = {"state": State.PROCESSING, "fence": 3, "wake_at": NOW + 60 * SECOND}


def intent(delivery_id: UUID, **others: Any) -> Intent:
    said: dict[str, Any] = {
        "tenant_id": TENANT,
        "fence": 3,
        "generation": 1,
        "number": 1,
        "key_number": 1,
        "worker": ME,
        "guards": "switch",
        "started_at": NOW,
        "until": NOW + 30 * SECOND,
        "scopes": switches.above(tenant_id=TENANT, project_id=builders.PROJECT, channel="webhook"),
        **others,
    }
    return Intent(delivery_id=delivery_id, **said)


async def test_an_intent_is_an_attempt_without_an_outcome(desk: Desk) -> None:
    one = await desk.add(**HELD)
    assert await desk.write(store.attempts.intend, intent(one))
    (row,) = await desk.rows(attempts)
    assert (row.delivery_id, row.fence, row.outcome, row.finished_at, row.worker) == (one, 3, None, None, ME)


async def test_an_intent_whose_commit_was_not_answered_is_written_once(desk: Desk) -> None:
    one = await desk.add(**HELD)
    assert [await desk.write(store.attempts.intend, intent(one)) for _ in range(2)] == [True, True]
    assert len(await desk.rows(attempts)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"fence": 4},
        {"state": State.SCHEDULED},
        {"state": State.CANCELLED},
        {"cancel_requested": True},
        {"wake_at": NOW + 30 * SECOND},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_nothing_is_intended_on_a_row_that_differs(desk: Desk, other: Mapping[str, Any]) -> None:
    one = await desk.add(**{**HELD, **other})
    assert not await desk.write(store.attempts.intend, intent(one))
    assert await desk.rows(attempts) == []


@pytest.mark.parametrize("number", range(len(intent(UUID(int=5)).scopes)))
async def test_nothing_is_intended_below_a_thrown_switch(desk: Desk, number: int) -> None:
    one = await desk.add(**HELD)
    scope = intent(one).scopes[number]
    await desk.write(store.switches.throw, scope, off=True, reason="", actor="test", now=NOW)
    assert not await desk.write(store.attempts.intend, intent(one))
    await desk.write(store.switches.throw, scope, off=False, reason="", actor="test", now=NOW)
    assert await desk.write(store.attempts.intend, intent(one))


async def test_nothing_is_intended_for_a_suspended_tenant(desk: Desk) -> None:
    one = await desk.add(**HELD)
    await desk.write(suspend, TENANT, now=NOW, suspended=True)
    assert not await desk.write(store.attempts.intend, intent(one))


async def test_another_workers_attempt_under_this_fence_is_not_mine(desk: Desk) -> None:
    one = await desk.add(**HELD)
    assert await desk.write(store.attempts.intend, intent(one))
    assert not await desk.write(store.attempts.intend, replace(intent(one), worker=YOU))


async def test_an_intent_that_meets_the_end_of_its_lease_waits_and_is_refused(desk: Desk) -> None:
    one = await desk.add(**HELD)
    async with hands(desk.url, 1) as (reaper,):
        now, judge = NOW + HOUR, builders.settlement
        await reaper.do(
            store.settlements.reclaim, lambda row, _: judge(row.id, fence=row.fence), ["webhook"], now=now, limit=9, sparing=None
        )
        intending = asyncio.create_task(desk.write(store.attempts.intend, intent(one)))
        await until_blocked(desk.url)
        await reaper.commit()
    assert not await intending
