"""Runs store functions: each in one transaction, timed, again when what failed is transient, shielded from cancellation.

Every function that writes is repeatable: run again with the same arguments it changes nothing more and returns the same
answer. So a COMMIT whose answer was lost is read back by running the function again, which first meets its own effect.
The claim alone could not know, since a second one would take other rows: there `landed` looks for the effect of the first.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from campana.errors import UnavailableError
from campana.store import claims
from campana.store.dialects import Dialect
from campana.telemetry import Telemetry
from campana.world import World

P = ParamSpec("P")
T = TypeVar("T")
Unit = Callable[[Connection], Any]


class Urgency(IntEnum):
    """Who goes first where there is one writer."""

    SETTLE = 0
    CLAIM = 1
    INTAKE = 2


class CommitLostError(Exception):
    """The COMMIT was sent and its answer never came: the transaction may be durable, or gone."""


class Runner(Protocol):
    """One transaction at a time per call, on one kind of database."""

    dialect: Dialect

    async def write(self, unit: Unit, urgency: Urgency) -> Any:
        """Run the unit in a transaction of its own, or in a savepoint of a shared one, and commit it."""

    async def read(self, unit: Unit) -> Any:
        """Run the unit on a connection that can't write."""

    async def close(self) -> None:
        """Give everything back."""


ATTEMPTS = 8
FIRST_WAIT = 0.01
LONGEST_WAIT = 1.0


class Database:
    """The one way to the data: `await database.write(store.deliveries.create, rows)`."""

    def __init__(self, runner: Runner, world: World, telemetry: Telemetry) -> None:
        """Keep the runner; it has made its connections, or makes them when they are needed."""
        self.dialect = runner.dialect
        self._runner = runner
        self._world = world
        self._telemetry = telemetry
        self._under_way: set[asyncio.Future[Any]] = set()

    async def write(
        self,
        function: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store function that writes, at intake's urgency."""
        return await self.urgently(Urgency.INTAKE, function, *args, **kwargs)

    async def urgently(
        self,
        urgency: Urgency,
        function: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store function that writes, before those that are less urgent."""

        def unit(connection: Connection) -> T:
            return function(connection, *args, **kwargs)

        written: T = await self._shielded(self._write(function.__name__, unit, urgency, landed=None))
        return written

    async def claim(self, wish: claims.Wish) -> claims.Claimed:
        """Claim; after a lost COMMIT look first whether that claim had landed, since a second one would take other rows."""

        def unit(connection: Connection) -> claims.Claimed:
            return claims.claim(connection, wish)

        def landed(connection: Connection) -> claims.Claimed | None:
            return claims.landed(connection, wish)

        claimed: claims.Claimed = await self._shielded(self._write("claim", unit, Urgency.CLAIM, landed=landed))
        return claimed

    async def read(self, function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a store function that only reads."""

        def unit(connection: Connection) -> T:
            return function(connection, *args, **kwargs)

        found: T = await self._shielded(self._again(function.__name__, lambda: self._runner.read(unit)))
        return found

    async def close(self) -> None:
        """Wait for what is under way, then give the connections back."""
        while self._under_way:
            await asyncio.wait(self._under_way)
        await self._runner.close()

    async def _shielded(self, work: Awaitable[Any]) -> Any:
        # A cancelled caller must not tear a transaction: it goes on, and its connection comes back whole.
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()

    async def _write(self, name: str, unit: Unit, urgency: Urgency, *, landed: Unit | None) -> Any:
        lost = False

        async def once() -> Any:
            nonlocal lost
            if lost and landed is not None:
                found = await self._runner.write(landed, urgency)
                if found is not None:
                    return found
                lost = False
            try:
                return await self._runner.write(unit, urgency)
            except CommitLostError:
                lost = True
                self._telemetry.commit_lost(name)
                raise

        return await self._again(name, once)

    async def _again(self, name: str, once: Callable[[], Awaitable[Any]]) -> Any:
        wait, began = FIRST_WAIT, self._world.clock.steady()
        transient: BaseException | None = None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = await once()
            except CommitLostError as error:
                transient = error
            except Exception as error:
                if not (self.dialect.is_transient(error) or self.dialect.is_connection_lost(error)):
                    self._telemetry.store_call(name, self._world.clock.steady() - began, failed=True)
                    raise
                transient = error
            else:
                self._telemetry.store_call(name, self._world.clock.steady() - began, failed=False)
                return result
            self._telemetry.store_retry(name, attempt, transient)
            if attempt < ATTEMPTS:
                await self._world.clock.sleep(wait * (0.5 + self._world.chance.fraction()))
                wait = min(wait * 2, LONGEST_WAIT)
        self._telemetry.store_call(name, self._world.clock.steady() - began, failed=True)
        message = f"{name}: the database did not answer after {ATTEMPTS} tries ({transient})"
        raise UnavailableError(message) from transient
