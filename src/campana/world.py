"""The only door for time, chance and identity. Everything else is handed one of these, so that a run can be repeated."""

import asyncio
import hashlib
import os
import random
import secrets
import time
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from campana.domain import instants


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now(self) -> datetime:
        """Return the present instant as the database sees it."""

    def steady(self) -> float:
        """Return seconds that never step and go on while the machine sleeps; only differences mean anything."""

    def wall(self) -> datetime:
        """Return this machine's own idea of the present, unadjusted."""

    def heed(self, told: datetime, asked: float, answered: float) -> float:
        """Learn from the database's time, asked for and answered at these steady seconds; return by how much it has jumped."""

    def parted(self) -> float:
        """Return by how many seconds wall and steady time have parted; only differences mean anything."""

    async def sleep(self, seconds: float) -> None:
        """Return after that long."""


class Chance(Protocol):
    """Dice and names."""

    def fraction(self) -> float:
        """Return a number in [0, 1)."""

    def token(self, size: int) -> bytes:
        """Return bytes that nobody can guess."""

    def uuid7(self, at: datetime) -> UUID:
        """Return an id that sorts after every earlier one of this process."""


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SAMPLES = 8
_LONGEST_ROUND_TRIP = 0.1
JUMP = 1.0
"""Seconds by which a clock must part from steady time within one tick to have jumped: slewing is slower by far."""


def _parted(known: tuple[float, float], sample: tuple[float, float]) -> float:
    """Return by how much the database's clock has jumped between two trips, if it surely has: each leaves its length open."""
    by = sample[1] - known[1]
    return by if by - known[0] > JUMP or -by - sample[0] > JUMP else 0.0


class SystemClock:
    """Boot time plus an offset to the database's clock: hosts with wrong clocks agree, and suspended ones notice."""

    def __init__(self) -> None:
        """Start with this machine's wall clock; the first tick corrects it."""
        self._samples: list[tuple[float, float]] = []
        self._offset = time.time() - self.steady()

    @property
    def offset(self) -> float:
        """Seconds by which the database's clock is ahead of this machine's."""
        return self._offset - self.parted()

    def now(self) -> datetime:
        """Return the present instant as the database sees it, cut to the microsecond: rounded up it would be early."""
        return instants.EPOCH + timedelta(microseconds=int((self.steady() + self._offset) * 1e6))

    def steady(self) -> float:
        """Return seconds since boot, suspended time included."""
        return time.clock_gettime(_BOOTTIME)

    def wall(self) -> datetime:
        """Return this machine's wall clock."""
        return instants.EPOCH + timedelta(seconds=time.time())

    def parted(self) -> float:
        """Return how far wall time is ahead of steady time."""
        return time.time() - self.steady()

    def heed(self, told: datetime, asked: float, answered: float) -> float:
        """Take the offset from the shortest of the last round trips; long ones are refused if they say less than what is known.

        The database told its time at some moment of the trip. Taken for the last one, it is never ahead: nothing goes early.
        After a jump the older ones say nothing any more: it is heeded at once, and returned in seconds.
        """
        sample = (answered - asked, (told - instants.EPOCH).total_seconds() - answered)
        known = min(self._samples, default=sample)
        if sample[0] > max(_LONGEST_ROUND_TRIP, known[0]):
            return 0.0
        by = _parted(known, sample)
        self._samples = [sample] if by else [*self._samples[-_SAMPLES + 1 :], sample]
        self._offset = min(self._samples)[1]
        return by

    async def sleep(self, seconds: float) -> None:
        """Return after that long."""
        await asyncio.sleep(seconds)


class SystemChance:
    """The operating system's randomness; ids are UUIDv7, monotonic within the process."""

    def __init__(self) -> None:
        """Seed the dice; tokens and ids never come from them."""
        self._dice = random.Random()  # noqa: S311 - jitter is no secret
        self._last = 0

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return self._dice.random()

    def token(self, size: int) -> bytes:
        """Return bytes that nobody can guess."""
        return secrets.token_bytes(size)

    def uuid7(self, at: datetime) -> UUID:
        """Return a UUIDv7: milliseconds, then 12 bits of their fraction that only rise, then chance."""
        ticks = max(instants.to_micros(at) * 4_096 // 1_000, self._last + 1)
        self._last = ticks
        return uuid7(ticks, int.from_bytes(os.urandom(8)))


def uuid7(ticks: int, noise: int) -> UUID:
    """Lay out a UUIDv7 from 1/4096 milliseconds since 1970 and 62 bits of noise."""
    head = (ticks >> 12) << 16 | 0x7000 | (ticks & 0xFFF)
    return UUID(int=head << 64 | 0x8 << 60 | noise & (1 << 62) - 1)


class World:
    """Clock and chance together, as they are handed around."""

    __slots__ = ("chance", "clock")

    def __init__(self, clock: Clock, chance: Chance) -> None:
        """Keep both."""
        self.clock = clock
        self.chance = chance

    def new_id(self) -> UUID:
        """Return a fresh id that sorts by creation."""
        return self.chance.uuid7(self.clock.now())


class _Then:
    """A clock that has stopped at an instant; everything else goes on."""

    def __init__(self, clock: Clock, at: datetime) -> None:
        self._clock = clock
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def now(self) -> datetime:
        return self._at


class _Again:
    """Names that come in the same order each time, from a seed that nobody else knows; dice are thrown anew."""

    def __init__(self, chance: Chance, seed: bytes, first: UUID) -> None:
        self._chance = chance
        self._seed = seed
        self._ticks = first.int >> 80 << 12 | first.int >> 64 & 0xFFF
        self._count = 0

    def fraction(self) -> float:
        return self._chance.fraction()

    def token(self, size: int) -> bytes:
        self._count += 1
        return hashlib.shake_256(b"token" + self._count.to_bytes(8) + self._seed).digest(size)

    def uuid7(self, at: datetime) -> UUID:
        del at
        self._count += 1
        noise = hashlib.sha256(b"id" + self._count.to_bytes(8) + self._seed).digest()[:8]
        return uuid7(self._ticks + self._count, int.from_bytes(noise))


def again(world: World, *, at: datetime, seed: bytes, first: UUID) -> World:
    """Return a world in which it is always this instant, and whose names come from a seed: what is done in it twice is the same.

    Ids follow `first`, as if they had been made right after it.
    """
    clock: Any = _Then(world.clock, at)
    return World(clock, _Again(world.chance, seed, first))


def real() -> World:
    """Return the world as it is."""
    return World(SystemClock(), SystemChance())
