"""When the engine looks again: the next instant that it knows of, or as soon as somebody rings."""

import asyncio
from datetime import datetime

from campana.domain.instants import LAST
from campana.world import Clock

SHORTEST = 0.0005


class Wakeup:
    """Sleeps exactly until the next due instant; new earlier work ends the sleep."""

    def __init__(self, clock: Clock) -> None:
        """Know of nothing yet."""
        self._clock = clock
        self._rung = asyncio.Event()
        self.next_send = LAST
        self.next_timer = LAST

    def ring(self, at: datetime) -> None:
        """Say that something waits to be sent at this instant; safe to call for what is already known."""
        if at < self.next_send:
            self.next_send = at
            self._rung.set()

    def ring_timer(self, at: datetime) -> None:
        """Say that a lease, a callback or a look-up ends at this instant."""
        if at < self.next_timer:
            self.next_timer = at
            self._rung.set()

    def nudge(self) -> None:
        """End the sleep without new work: slots are free, or the engine stops."""
        self._rung.set()

    async def wait(self, longest: float, *, sends: bool) -> None:
        """Sleep until the next timer, or the next send if `sends`, or a ring, or so many seconds."""
        if not self._rung.is_set():
            known = min(self.next_timer, self.next_send) if sends else self.next_timer
            away = (known - self._clock.now()).total_seconds()
            await self._sleep(max(min(away, longest), SHORTEST))
        self._rung.clear()

    async def wait_patiently(self, seconds: float) -> None:
        """Sleep so long, whatever is due, unless somebody rings or nudges from now on."""
        self._rung.clear()
        await self._sleep(seconds)
        self._rung.clear()

    async def _sleep(self, seconds: float) -> None:
        handle = asyncio.get_running_loop().call_later(seconds, self._rung.set)
        try:
            await self._rung.wait()
        finally:
            handle.cancel()
