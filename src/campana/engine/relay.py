"""The one relay: it numbers events after their commit. Every engine has one; the lease's holder works, the others stand by."""

import logging
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from campana import store
from campana.errors import UnavailableError
from campana.store.database import Database
from campana.telemetry import Telemetry
from campana.world import World

LEASE = timedelta(seconds=10)
BATCH = 1_000
SOON, SELDOM = 0.1, 1.0
"""Seconds to the next step: where there was something there will be more."""


class Relay:
    """One process's relay."""

    def __init__(self, *, me: UUID, world: World, database: Database, telemetry: Telemetry) -> None:
        """Hold nothing yet."""
        self._me = me
        self._world = world
        self._database = database
        self._telemetry = telemetry

    async def step(self) -> int:
        """Number one batch, if there is one and no other relay; return how many events."""
        if not await self._database.read(store.relay.is_wanted, self._me, now=self._world.clock.now()):
            return 0
        now = self._world.clock.now()
        count = await self._database.write(store.relay.number, self._me, now=now, length=LEASE, limit=BATCH) or 0
        self._telemetry.counts["events.numbered"] += count
        return count

    async def run(self, is_behind: Callable[[], bool]) -> None:
        """Step until cancelled: at once after a full batch, soon after some; after none when the tick has seen any."""
        wait, count = SELDOM, 0
        while True:
            try:
                count = await self.step() if count or is_behind() else 0
            except UnavailableError as error:
                self._telemetry.emit(logging.ERROR, "engine.relay_failed", error=str(error)[:300])
                count = 0
            if count < BATCH:
                wait = SOON if count else min(wait * 2, SELDOM)
                await self._world.clock.sleep(wait)
