"""A clock for `campana.world` that follows the event loop's time, and can be wrong as a machine's clock can be."""

import asyncio
from datetime import UTC, datetime, timedelta

from campana.domain import instants
from campana.world import SystemClock

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""When second zero of a virtual loop is, unless a test says otherwise."""


class VirtualClock(SystemClock):
    """One machine's clock in virtual time; it learns from the database as a real one does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, start: datetime = START, wrong: timedelta = timedelta(0)) -> None:
        """Begin at `start`; this machine's wall clock is `wrong` by so much."""
        self._loop = loop
        self._start = start
        self._wrong = wrong
        super().__init__()
        self._offset = self.parted()

    def true(self) -> datetime:
        """Return what a clock would show that is never wrong."""
        return self._start + timedelta(seconds=self._loop.time())

    def steady(self) -> float:
        """Return the loop's seconds."""
        return self._loop.time()

    def wall(self) -> datetime:
        """Return this machine's wall clock."""
        return self.true() + self._wrong

    def parted(self) -> float:
        """Return how far wall time is ahead of the loop's."""
        return (self.wall() - instants.EPOCH) / timedelta(seconds=1) - self.steady()

    def step(self, by: timedelta) -> None:
        """Put the wall clock forward, or back; steady time knows nothing of it."""
        self._wrong += by
