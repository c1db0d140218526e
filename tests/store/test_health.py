"""What can be told from outside of how the work goes, on every database."""

from typing import Any

from campana import store
from campana.domain.deliveries import State
from tests.store.builders import HOUR, ME, NOW, SECOND, YOU
from tests.store.desk import Desk


async def _lives(desk: Desk, me: Any, queues: list[str], at: Any) -> None:
    await desk.write(store.engines.tick, me, queues, now=at, started_at=NOW, free=1, version="1")


async def test_an_empty_house_has_nobody_and_nothing(desk: Desk) -> None:
    seen = await desk.read(store.health.look, now=NOW)
    assert (seen.engines, seen.seen_at, seen.due, seen.unserved) == (0, None, {}, frozenset())


async def test_what_is_due_is_told_by_queue_with_its_first_instant(desk: Desk) -> None:
    await desk.add_all(
        {"wake_at": NOW - HOUR},
        {"wake_at": NOW},
        {"queue": "log", "wake_at": NOW + SECOND},
        {"queue": "python:a", "wake_at": NOW, "state": State.PENDING_RETRY},
        {"queue": "ended", "state": State.DEAD_LETTER},
    )
    await _lives(desk, ME, ["webhook", "log"], NOW)
    seen = await desk.read(store.health.look, now=NOW)
    assert (seen.engines, seen.seen_at) == (1, NOW)
    assert seen.due == {"webhook": NOW - HOUR, "python:a": NOW}
    assert seen.unserved == {"python:a"}


async def test_an_engine_that_left_or_fell_silent_serves_nothing(desk: Desk) -> None:
    await desk.add(wake_at=NOW)
    await _lives(desk, ME, ["webhook"], NOW)
    await _lives(desk, YOU, ["webhook"], NOW + HOUR)
    await desk.write(store.engines.leave, YOU, now=NOW + HOUR)
    seen = await desk.read(store.health.look, now=NOW + HOUR)
    assert (seen.engines, seen.seen_at, seen.unserved) == (0, NOW + HOUR, frozenset({"webhook"}))
