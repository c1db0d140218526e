"""Runs sweeps: those that are due, one after the other, each by one process at a time and a short transaction a page."""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from campana import store
from campana.errors import UnavailableError
from campana.store.database import Database
from campana.store.sweeps import SWEEPS, Sweep
from campana.telemetry import Telemetry
from campana.world import World

LOOK = timedelta(seconds=10)
LEASE = timedelta(seconds=60)
AGAIN = timedelta(minutes=5)
"""After a failure it is tried again so soon, or after its period if that is shorter."""
MOST_PAGES = 1_000
"""In one run; the next one goes on from there."""


class Sweeper:
    """One process's hand for sweeps."""

    def __init__(self, *, me: UUID, world: World, database: Database, telemetry: Telemetry, keep: timedelta) -> None:
        """Keep what ended for so long."""
        self._me = me
        self._world = world
        self._database = database
        self._telemetry = telemetry
        self._keep = keep

    async def step(self) -> int:
        """Run what is due and nobody else runs; return how many sweeps. One that fails does not stop the others."""
        names = await self._database.read(store.sweeps.due, list(SWEEPS), now=self._now)
        ran = [await self.sweep(name) for name in names]
        return len(ran) - ran.count(None)

    async def sweep(self, name: str, *, is_asked: bool = False) -> bool | None:
        """Run one sweep to its end and record it; False if it failed, None if it is not due or another one runs it."""
        fence = await self._database.write(store.sweeps.begin, name, self._me, now=self._now, length=LEASE, is_asked=is_asked)
        if fence is None:
            return None
        sweep, began = SWEEPS[name], self._world.clock.steady()
        try:
            rows = await self._pages(sweep, fence)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - a sweep that fails is recorded and told, and the others go on
            self._telemetry.emit(logging.ERROR, "sweep.failed", sweep=name, error=repr(error)[:500])
            await self._end(name, fence, next_at=self._now + min(sweep.period, AGAIN), error=repr(error))
            return False
        took = round(self._world.clock.steady() - began, 3)
        self._telemetry.emit(logging.INFO if rows else logging.DEBUG, "sweep.done", sweep=name, rows=rows, seconds=took)
        await self._end(name, fence, next_at=self._now + sweep.period)
        return True

    async def _pages(self, sweep: Sweep, fence: int) -> int:
        clock, rows = self._world.clock, 0
        for _ in range(MOST_PAGES):
            began = clock.steady()
            swept = await self._database.write(
                store.sweeps.turn, sweep.name, self._me, fence, now=self._now, length=LEASE, keep=self._keep
            )
            rows += swept.rows if swept is not None else 0
            if swept is None or not swept.more:
                break
            # As long at rest as at work: whoever has work to do for somebody goes first.
            await clock.sleep(clock.steady() - began)
        return rows

    async def _end(self, name: str, fence: int, *, next_at: datetime, error: str | None = None) -> None:
        write = self._database.write
        if not await write(store.sweeps.end, name, self._me, fence, now=self._now, next_at=next_at, error=error):
            self._telemetry.emit(logging.WARNING, "sweep.lost", sweep=name)

    @property
    def _now(self) -> datetime:
        return self._world.clock.now()

    async def run(self) -> None:
        """Step until cancelled."""
        while True:
            await self._world.clock.sleep(LOOK.total_seconds())
            try:
                await self.step()
            except UnavailableError as error:
                self._telemetry.emit(logging.ERROR, "engine.sweep_failed", error=str(error)[:300])
