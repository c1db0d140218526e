"""Notices between processes on PostgreSQL: 'something is due before your next tick'. Losing one costs a tick, nothing else."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import asyncpg
from sqlalchemy import make_url

from campana.telemetry import Telemetry
from campana.world import World

CHANNEL = "campana_due"
SPACING = 0.02
HORIZON = timedelta(seconds=1)
"""What is due later than this is found by the tick in good time."""
AGAIN = 5.0
LISTENING = 10.0
"""Seconds after which a listener asks whether its line still stands."""
_LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)


class Notices:
    """One connection that speaks after commits, at most once in 20 ms, and listens for others."""

    def __init__(self, url: str, world: World, telemetry: Telemetry) -> None:
        """Connect when the first notice is to be sent or heard."""
        parsed = make_url(url).set(drivername="postgresql")
        self._url = parsed.render_as_string(hide_password=False)
        self._world = world
        self._telemetry = telemetry
        self._wanted = asyncio.Event()

    def ring(self, at: datetime) -> None:
        """Tell the other processes soon, if this is due before they look anyway."""
        if at <= self._world.clock.now() + HORIZON:
            self._wanted.set()

    async def speak(self) -> None:
        """Send what is rung, until cancelled."""
        await self._always(self._speak)

    async def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` for each notice and after each reconnection, until cancelled."""

        async def hear(connection: asyncpg.Connection) -> None:
            await connection.add_listener(CHANNEL, lambda *_: heard())
            heard()
            while True:
                # A line that was cut without a word looks like silence for hours.
                await self._world.clock.sleep(LISTENING)
                await connection.execute("select 1", timeout=AGAIN)

        await self._always(hear)

    async def _speak(self, connection: asyncpg.Connection) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await connection.execute(f"notify {CHANNEL}")
            except _LOST:
                self._wanted.set()
                raise
            await self._world.clock.sleep(SPACING)

    async def _always(self, talk: Callable[[asyncpg.Connection], object]) -> None:
        while True:
            connection = None
            try:
                connection = await asyncpg.connect(self._url, timeout=5, statement_cache_size=0)
                await talk(connection)  # type: ignore[misc]  # both are coroutine functions
            except _LOST as error:
                self._telemetry.emit(logging.WARNING, "notices.lost", error=str(error)[:200])
            finally:
                if connection is not None:
                    with contextlib.suppress(*_LOST):
                        await connection.close(timeout=1)
            await self._world.clock.sleep(AGAIN)
