"""Whatever a dead engine left behind, in whatever state, is found by one that lives, and comes to its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain.deliveries import CALLBACK, LIVE, LOOKUP, State
from campana.testing.clock import START
from tests.engine.builders import SECOND, TENANT, Bench, running

DEAD = UUID(int=404)
"""An engine of which no row is left."""
HOUR = timedelta(hours=1)
PAST = START - HOUR
FAR = START + 10 * HOUR
HELD: dict[str, Any] = {"state": State.PROCESSING, "lease_owner": DEAD, "wake_at": PAST, "run_until": PAST}
LEFT: dict[str, tuple[dict[str, Any], State]] = {
    "waiting": ({"state": State.SCHEDULED, "wake_at": PAST}, State.COMPLETED),
    "waiting, a suspect": ({"state": State.SCHEDULED, "wake_at": PAST, "crash_count": 2}, State.COMPLETED),
    "a suspect that had started": ({**HELD, "crash_count": 2, "fence": 3, "suspect_fence": 3}, State.COMPLETED),
    "parked by a switch that was lifted": (
        {"state": State.SCHEDULED, "wake_at": FAR, "held_by": f"tenant:{TENANT}"},
        State.COMPLETED,
    ),
    "parked behind a lane that nobody holds": (
        {"state": State.SCHEDULED, "wake_at": FAR, "lane_key": "lane:a", "held_by": "lane:a"},
        State.COMPLETED,
    ),
    "parked before a resource that nobody uses": (
        {"state": State.SCHEDULED, "wake_at": FAR, "resource": "slots:r", "held_by": "slots:r"},
        State.COMPLETED,
    ),
    "between two attempts": ({"state": State.PENDING_RETRY, "wake_at": PAST, "attempt_count": 1}, State.COMPLETED),
    "between two attempts, parked": (
        {"state": State.PENDING_RETRY, "wake_at": FAR, "attempt_count": 1, "held_by": "all"},
        State.COMPLETED,
    ),
    "claimed": (HELD, State.COMPLETED),
    "claimed, its last attempt": ({**HELD, "attempt_count": 2}, State.COMPLETED),
    "claimed, and a cancel was asked for": ({**HELD, "cancel_requested": True}, State.CANCELLED),
    "claimed before there was a limit": ({**HELD, "run_until": None}, State.COMPLETED),
    "claimed, under a lease that still lasts": ({**HELD, "wake_at": START + 90 * SECOND, "run_until": FAR}, State.COMPLETED),
    "waiting for a callback": (
        {"state": State.IN_PROGRESS, "wake_at": PAST, "awaiting": CALLBACK, "attempt_count": 1},
        State.COMPLETED,
    ),
    "waiting for a look-up that nobody can make": (
        {"state": State.IN_PROGRESS, "wake_at": PAST, "awaiting": LOOKUP, "awaiting_since": START - 26 * HOUR},
        State.DEAD_LETTER,
    ),
}


def test_every_live_state_is_among_what_is_left_behind() -> None:
    assert {row["state"] for row, _ in LEFT.values()} == set(LIVE)


@pytest.mark.parametrize("case", LEFT)
async def test_what_the_dead_left_behind_comes_to_its_end(bench: Bench, case: str) -> None:
    columns, end = LEFT[case]
    one = await bench.add()
    await bench.change(one, **columns)
    await bench.database.write(store.lanes.provide, "slots:r", 1)
    async with running(bench.engine()):
        await bench.sleep(300)
        assert await bench.states(one) == [end]
    assert len(bench.channel.receiver.arrivals) == (end is State.COMPLETED)


async def test_one_that_can_not_be_read_keeps_no_other_from_its_end(bench: Bench) -> None:
    ids = [await bench.add(number) for number in range(3)]
    for one in ids:
        await bench.change(one, **HELD)
    await bench.change(ids[1], policies="{}")
    engine = bench.engine(owns_file=True)
    await engine.start()
    await engine.timers.step(may_end_others=True)
    assert await bench.states(*ids) == [State.SCHEDULED, State.DEAD_LETTER, State.SCHEDULED]
