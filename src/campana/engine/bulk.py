"""Bulk: what was asked for many deliveries is done batch by batch, beside the sends and after them."""

import logging
from uuid import UUID

from campana import store
from campana.engine.wakeup import Wakeup
from campana.errors import UnavailableError
from campana.store.database import Database
from campana.telemetry import Telemetry
from campana.world import World

PAUSE = 0.01
"""Seconds between batches, so that whoever waits for the database gets it."""


class Bulk:
    """Moves operations on, each in its turn; how far they are is in their rows, so nothing here must survive."""

    def __init__(self, *, world: World, database: Database, telemetry: Telemetry, wakeup: Wakeup) -> None:
        """Begin with the first one."""
        self._world = world
        self._database = database
        self._telemetry = telemetry
        self._wakeup = wakeup
        self._last: UUID | None = None

    async def step(self) -> bool:
        """Do one batch of the next operation; False if there is none, or another engine is at it."""
        it = await self._database.read(store.bulk.running, after=self._last)
        self._last = it
        return it is not None and await self._advance(it)

    async def run(self) -> None:
        """Do batches until there is nothing to do."""
        while await self.step():
            await self._world.clock.sleep(PAUSE)

    async def _advance(self, it: UUID) -> bool:
        now = self._world.clock.now()
        try:
            came = await self._database.write(store.bulk.advance, it, now=now)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - one operation that can't go on must not hold up the others
            self._telemetry.emit(logging.ERROR, "operation.failed", operation_id=str(it), error=repr(error)[:500])
            await self._database.write(store.bulk.fail, it, error=repr(error), now=now)
            return True
        if came is None:
            return False
        if came.done:
            self._wakeup.ring(now)
        if came.is_finished:
            self._telemetry.emit(logging.INFO, "operation.finished", operation_id=str(it))
        return True
