"""A workbench for engines: a file, a clock, scripted channels, and engines that are cranked by hand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.exc import OperationalError

from campana import store
from campana.channels.base import Channel
from campana.domain import policies, retries
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import Policies, State
from campana.domain.tickets import NewDelivery
from campana.engine.engine import Engine
from campana.engine.options import Options
from campana.engine.secrets import Keyring
from campana.store import migrate, schema
from campana.store.database import Database, Runner, Unit, Urgency
from campana.store.engines import Pulse
from campana.telemetry import Telemetry
from campana.testing.chance import SeededChance
from campana.testing.channel import ScriptedChannel
from campana.testing.clock import VirtualClock
from campana.testing.runner import InlineRunner
from campana.world import World

TENANT, PROJECT = UUID(int=1), UUID(int=2)
SECOND = timedelta(seconds=1)
RETRY = retries.Policy(max_attempts=3, base=timedelta(seconds=60))
OPTIONS = Options()


class Silence:
    """A log that nobody reads."""

    def is_enabled_for(self, level: int) -> bool:
        return False

    def log(self, level: int, name: str, **fields: Any) -> None:
        """Nothing."""


def migrated(path: Path) -> Path:
    """The file, with the newest schema and nothing in it."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    asyncio.run(migrate.upgrade(f"sqlite:///{path}"))
    return path


class ServerRunner:
    """An inline runner that tells the time as a server would (if `has_clock`), and can be away."""

    dialect = InlineRunner.dialect

    def __init__(self, inner: Runner, clock: VirtualClock, *, has_clock: bool = True) -> None:
        self._inner = inner
        self._clock = clock
        self._has_clock = has_clock
        self.broken: Callable[[], BaseException | None] = lambda: None
        self.before: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Awaited once each, before the following calls."""

    async def write(self, unit: Unit, urgency: Urgency) -> Any:
        return await self._run(lambda: self._inner.write(unit, urgency))

    async def read(self, unit: Unit) -> Any:
        return await self._run(lambda: self._inner.read(unit))

    async def close(self) -> None:
        """The inner runner is the bench's."""

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if self.before:
            await self.before.pop(0)()
        if (error := self.broken()) is not None:
            raise error
        result = await work()
        return replace(result, database_now=self._clock.true()) if self._has_clock and isinstance(result, Pulse) else result


def new(
    number: int = 1,
    *,
    due_at: datetime,
    created_at: datetime | None = None,
    queue: str = "webhook",
    channel: str = "webhook",
    tenant_id: UUID = TENANT,
    project_id: UUID = PROJECT,
    retry: retries.Policy = RETRY,
    on_ambiguous: OnAmbiguous = OnAmbiguous.RETRY,
    expires_at: datetime | None = None,
    target: str = "{}",
    lane_key: str | None = None,
    resource: str | None = None,
) -> NewDelivery:
    return NewDelivery(
        id=UUID(int=1_000 + number),
        tenant_id=tenant_id,
        project_id=project_id,
        queue=queue,
        channel=channel,
        target=target,
        payload=b"{}",
        policies=policies.dump(Policies(retry=retry, on_ambiguous=on_ambiguous)),
        max_attempts=retry.max_attempts,
        scheduled_for=due_at,
        due_at=due_at,
        created_at=created_at or due_at,
        expires_at=expires_at,
        lane_key=lane_key,
        resource=resource,
    )


class Bench:
    """One file and its present; `engine()` makes an engine on it, `add()` a delivery, `row()` says what became of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.clock = VirtualClock(loop)
        self.inner = InlineRunner(url)
        self.database = Database(self.inner, World(self.clock, SeededChance("bench")), Telemetry(Silence()))
        self.telemetry = Telemetry(Silence())
        self.channel = ScriptedChannel(self.clock)
        self._made = 0
        self.runner = ServerRunner(self.inner, self.clock)

    @property
    def now(self) -> datetime:
        return self.clock.true()

    async def close(self) -> None:
        await self.database.close()

    def engine(
        self,
        *,
        channels: Mapping[str, Channel] | None = None,
        queues: Mapping[str, int] | None = None,
        options: Options = OPTIONS,
        owns_file: bool = False,
        clock: VirtualClock | None = None,
        telemetry: Telemetry | None = None,
        runner: Runner | None = None,
        pulse: Runner | None = None,
        keyring: Keyring | None = None,
    ) -> Engine:
        """An engine that has done nothing yet."""
        self._made += 1
        world, told = World(clock or self.clock, SeededChance(self._made)), telemetry or self.telemetry
        database = Database(runner or self.runner, world, told)
        serves = channels or {"webhook": self.channel}
        return Engine(
            world=world, database=database, pulse=Database(pulse, world, told) if pulse else database, channels=serves,
            secret=b"secret", telemetry=told,
            queues=queues or dict.fromkeys(serves, options.in_flight), options=options, owns_file=owns_file,
            keyring=keyring,
        )  # fmt: skip

    async def add(self, number: int = 1, *, after: timedelta = timedelta(0), **said: Any) -> UUID:
        """A delivery that is due after so long; its id."""
        one = new(number, due_at=self.now + after, created_at=self.now, **said)
        await self.database.write(store.deliveries.create, [one], now=self.now)
        return one.id

    async def row(self, delivery_id: UUID) -> Row[Any]:
        found = (await self.rows([delivery_id]))[0]
        assert found is not None
        return found

    async def rows(self, ids: Sequence[UUID]) -> list[Row[Any]]:
        def look(connection: Connection) -> list[Row[Any]]:
            c = schema.deliveries.c
            by_id = {row.id: row for row in connection.execute(select(schema.deliveries).where(c.id.in_(ids)))}
            return [by_id[one] for one in ids]

        return await self.database.read(look)

    async def states(self, *ids: UUID) -> list[State]:
        return [State(row.state) for row in await self.rows(ids)]

    async def attempts(self, delivery_id: UUID) -> Sequence[Row[Any]]:
        return await self.database.read(store.attempts.of_delivery, TENANT, delivery_id)

    async def verdicts(self, delivery_id: UUID) -> Sequence[Row[Any]]:
        return await self.database.read(store.attempts.verdicts_of_delivery, TENANT, delivery_id)

    async def change(self, delivery_id: UUID, **values: Any) -> None:
        """Put a row as the test wants it, past every rule."""

        def put(connection: Connection) -> None:
            connection.execute(update(schema.deliveries).where(schema.deliveries.c.id == delivery_id).values(**values))

        await self.database.write(put)

    async def throw(self, scope: str, *, off: bool = True) -> None:
        await self.database.write(store.switches.throw, scope, off=off, reason="test", actor="test", now=self.now)

    async def suspend(self, tenant_id: UUID = TENANT, *, suspended: bool = True) -> None:
        """Suspend a tenant, or let it go on; engines see the version."""
        await self.database.write(suspend, tenant_id, now=self.now, suspended=suspended)

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)


def suspend(connection: Connection, tenant_id: UUID, *, now: datetime, suspended: bool) -> None:
    """The tenant is there and suspended, or not; the version of what engines cache has risen."""
    store.tenants.ensure(connection, f"tenant {tenant_id}", tenant_id=tenant_id, now=now)
    at = now if suspended else None
    connection.execute(update(schema.tenants).where(schema.tenants.c.id == tenant_id).values(suspended_at=at))
    store.switches.changed(connection)


async def idle(engine: Engine) -> None:
    """Nothing that the engine started is still under way, and everything that it knows is durable."""
    while engine._busy or engine.settler.unsettled:
        if engine._busy:
            await asyncio.wait(list(engine._busy.values()), return_when=asyncio.FIRST_COMPLETED)
        await engine.settle_once()


async def round_of(engine: Engine) -> None:
    """One tick and one pump; what was started has ended and is settled."""
    await engine.tick_once()
    await engine.pump_once()
    await idle(engine)


@contextlib.asynccontextmanager
async def running(*engines: Engine) -> AsyncIterator[None]:
    """The engines run; afterwards they have stopped in good order."""
    tasks = [asyncio.create_task(engine.run()) for engine in engines]
    try:
        yield
    finally:
        for engine in engines:
            engine.stop()
        await asyncio.gather(*tasks)


def away() -> BaseException:
    """What SQLAlchemy raises where the disk is gone."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return OperationalError("", {}, error)
