"""The safe hold: when it is engaged, and what it leaves alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.domain.switches import SAFE_HOLD
from tests.store.builders import HOUR, ME, MINUTE, SECOND, YOU
from tests.store.desk import Desk

# A server goes by its own clock, so the past is counted from the real present.
NOW = datetime.now(UTC).replace(microsecond=0)
CALL: dict[str, Any] = {"queue": "voice", "channel": "voice", "wake_at": NOW - 9 * HOUR}


async def _survey(desk: Desk, *, asked: bool = False) -> str | None:
    return await desk.write(store.safety.survey, ME, now=NOW, asked=asked)


async def _seen(desk: Desk, ago: timedelta) -> None:
    said: dict[str, Any] = {"started_at": NOW - ago, "free": 1, "version": "1"}
    await desk.write(store.engines.tick, YOU, ["voice"], now=NOW - ago, **said)


async def _is_held(desk: Desk) -> bool:
    return SAFE_HOLD in await desk.read(store.switches.off)


async def test_after_an_hours_silence_with_a_call_overdue_calls_are_held_and_it_is_said_why(desk: Desk) -> None:
    await _seen(desk, 2 * HOUR)
    await desk.add(**CALL)
    why = await _survey(desk)
    assert why is not None
    assert "no engine was there since" in why
    switch = await desk.read(store.switches.get, SAFE_HOLD)
    assert switch is not None
    assert (switch.off, switch.reason, switch.actor, switch.changed_at) == (True, why, f"engine:{ME}", NOW)
    assert await _survey(desk) is None, "it is engaged once"


@pytest.mark.parametrize(
    "row",
    [
        {**CALL, "channel": "sms", "queue": "sms"},
        {**CALL, "queue": "a name of the user's"},
        {**CALL, "state": State.PENDING_RETRY},
        {**CALL, "crash_count": 2},
        {**CALL, "state": State.PROCESSING},
        {**CALL, "state": State.IN_PROGRESS},
    ],
    ids=["a message", "in a named queue", "a retry", "a suspect", "claimed", "in progress"],
)
async def test_whatever_can_not_be_taken_back_counts(desk: Desk, row: dict[str, Any]) -> None:
    await _seen(desk, 2 * HOUR)
    await desk.add(**row)
    assert await _survey(desk) is not None


@pytest.mark.parametrize(
    "row",
    [
        {**CALL, "wake_at": NOW + HOUR},
        {**CALL, "channel": "webhook", "queue": "webhook"},
        {**CALL, "channel": "python", "queue": "python:a"},
        {**CALL, "state": State.COMPLETED, "wake_at": None},
        {**CALL, "state": State.PROCESSING, "channel": "webhook", "queue": "webhook"},
    ],
    ids=["not due", "a webhook", "a function", "ended", "a claimed webhook"],
)
async def test_what_can_be_repeated_or_is_not_due_holds_nothing(desk: Desk, row: dict[str, Any]) -> None:
    await _seen(desk, 2 * HOUR)
    await desk.add(**row)
    assert await _survey(desk) is None
    assert not await _is_held(desk)


async def test_a_first_start_and_a_short_silence_hold_nothing(desk: Desk) -> None:
    await desk.add(**CALL)
    assert await _survey(desk) is None
    await _seen(desk, HOUR / 2)
    assert await _survey(desk) is None


async def test_an_engine_that_left_in_good_order_counts_like_one_that_died(desk: Desk) -> None:
    await _seen(desk, 2 * HOUR)
    await desk.write(store.engines.leave, YOU, now=NOW - 2 * HOUR)
    await desk.write(store.engines.prune, now=NOW + 9 * HOUR)
    await desk.add(**CALL)
    assert await _survey(desk) is not None


async def test_who_released_it_has_looked_and_is_not_asked_again(desk: Desk) -> None:
    await _seen(desk, 2 * HOUR)
    await desk.add(**CALL)
    await desk.write(store.switches.throw, SAFE_HOLD, off=False, reason="", actor="ann", now=NOW - MINUTE)
    assert await _survey(desk) is None


async def test_it_is_engaged_where_it_is_asked_for(desk: Desk) -> None:
    assert await _survey(desk, asked=True) == "asked for at the start"
    assert await _is_held(desk)


async def test_after_a_jump_an_engines_leases_last_and_others_are_left_alone(desk: Desk) -> None:
    def claimed(**said: Any) -> dict[str, Any]:
        return {"state": State.PROCESSING, "lease_owner": ME, "wake_at": NOW - HOUR, "run_until": NOW - HOUR, **said}

    until = NOW + MINUTE
    mine, longer = await desk.add(**claimed()), await desk.add(**claimed(wake_at=until + SECOND, run_until=until + HOUR))
    theirs, waiting = await desk.add(**claimed(lease_owner=YOU)), await desk.add(wake_at=NOW)
    kept = [await desk.row(one) for one in (longer, theirs, waiting)]
    for _ in range(2):
        await desk.write(store.claims.regain, me=ME, until=until)
    row = await desk.row(mine)
    assert (row.wake_at, row.run_until) == (until, until)
    assert [await desk.row(one) for one in (longer, theirs, waiting)] == kept
