"""Virtual time itself: it passes by waiting, and only by waiting."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from campana.testing import loop as loops
from campana.testing.chance import SeededChance
from campana.testing.clock import START, VirtualClock
from campana.testing.loop import StuckError, VirtualLoop


async def test_a_day_passes_at_once() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    before = clock.now()
    await clock.sleep(86_400 * 3)
    assert (clock.now() - before).total_seconds() == 86_400 * 3


async def test_timers_come_in_the_order_of_their_instants() -> None:
    clock, seen = VirtualClock(asyncio.get_running_loop()), list[float]()

    async def wake(after: float) -> None:
        await clock.sleep(after)
        seen.append(clock.steady())

    await asyncio.gather(*(wake(after) for after in (3.0, 1.0, 2.0)))
    assert [round(at - seen[0], 6) for at in seen] == [0, 1, 2]


def test_waiting_for_what_never_comes_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match="nothing will ever"):
        loops.run(wait())


def test_running_in_a_circle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "TURNS", 100)

    async def spin() -> None:
        loop = asyncio.get_running_loop()
        while True:
            turned = loop.create_future()
            loop.call_soon(turned.set_result, None)
            await turned

    with pytest.raises(StuckError, match="no time has passed"):
        loops.run(spin())


async def test_there_are_no_threads() -> None:
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    with pytest.raises(StuckError, match="no threads"):
        await asyncio.to_thread(print)


async def test_a_step_of_the_wall_clock_moves_neither_steady_time_nor_now() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    steady, now, wall = clock.steady(), clock.now(), clock.wall()
    clock.step(timedelta(hours=1))
    assert (clock.steady(), clock.now()) == (steady, now)
    assert clock.wall() - wall == timedelta(hours=1)
    assert clock.offset == -3600


def test_the_same_seed_gives_the_same_ids_and_they_rise() -> None:
    one, two = SeededChance(7), SeededChance(7)
    ids = [one.uuid7(START) for _ in range(100)]
    assert ids == [two.uuid7(START) for _ in range(100)]
    assert ids == sorted(ids)
    assert one.fraction() == two.fraction()
    assert one.token(8) == two.token(8) != SeededChance(8).token(8)
