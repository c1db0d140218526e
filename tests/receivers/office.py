"""An engine as an operator runs it, strangers' servers on loopback, and deliveries to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select

from campana import store, wiring
from campana.domain import policies, retries
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import Policies, State
from campana.domain.tickets import NewDelivery
from campana.store import schema
from tests.api.site import settings
from tests.channels.hostile import Server

TENANT, OTHER, PROJECT = UUID(int=1), UUID(int=2), UUID(int=3)
PATIENCE = 60.0
"""Seconds in which whatever a test waits for happens on any machine, or never."""


@dataclass(frozen=True, slots=True)
class Opener:
    """How to open an office on a database that has its schema."""

    url: str
    folder: Path

    @contextlib.asynccontextmanager
    async def open(self, **given: Any) -> AsyncIterator[Office]:
        """What the settings describe, without an API; whatever is under way at the end is given up."""
        said = settings(self.folder, self.url, log_level="ERROR", shutdown_grace_seconds=0, **given)
        async with wiring.open_house(said, with_engine=True) as house:
            office = Office(house)
            for tenant_id in (TENANT, OTHER):
                now = house.world.clock.now()
                await office.database.write(store.tenants.ensure, f"tenant {tenant_id}", tenant_id=tenant_id, now=now)
            try:
                yield office
            finally:
                if office.work is not None:
                    office.engine.stop()
                    await office.work
                    # A transaction that the stop did not wait for comes to its end before its database is closed.
                    left = [task for task in asyncio.all_tasks() if task.cancelling()]
                    if left:
                        await asyncio.wait(left, timeout=PATIENCE)


class Office:
    """The house, and what tests do in it."""

    def __init__(self, house: wiring.House) -> None:
        assert house.engine is not None
        self.house = house
        self.engine = house.engine
        self.database = house.office.database
        self.work: asyncio.Task[None] | None = None
        self.said: list[tuple[str, dict[str, Any]]] = []
        house.telemetry.listen(lambda name, fields: self.said.append((name, fields)))

    def begin(self) -> None:
        """Let the engine work."""
        self.work = asyncio.create_task(self.engine.run())

    async def add(
        self,
        server: Server,
        count: int = 1,
        *,
        path: str = "/",
        tenant_id: UUID = TENANT,
        retry: retries.Policy | None = None,
        attempts: int = 0,
        **target: Any,
    ) -> list[UUID]:
        """So many deliveries to this server, due now; their ids."""
        now, url = self.house.world.clock.now(), f"http://127.0.0.1:{server.port}{path}"
        policy = retry or retries.Policy(max_attempts=3, base=timedelta(seconds=0.05), jitter=0.2)
        made = [
            NewDelivery(
                id=self.house.world.new_id(),
                tenant_id=tenant_id,
                project_id=PROJECT,
                queue="webhook",
                channel="webhook",
                target=json.dumps({"url": url, **target}),
                payload=b"{}",
                policies=policies.dump(Policies(retry=policy, on_ambiguous=OnAmbiguous.RETRY)),
                max_attempts=policy.max_attempts,
                scheduled_for=now,
                due_at=now,
                created_at=now,
            )
            for _ in range(count)
        ]
        await self.database.write(store.deliveries.create, made, now=now)
        ids = [one.id for one in made]
        if attempts:
            await self.database.write(_tried, ids, attempts)
        self.engine.wakeup.ring(now)
        return ids

    async def rows(self, ids: Sequence[UUID]) -> list[Row[Any]]:
        return await self.database.read(_rows, ids)

    async def states(self, ids: Sequence[UUID]) -> list[State]:
        return [State(row.state) for row in await self.rows(ids)]

    async def attempts(self, delivery_id: UUID) -> Sequence[Row[Any]]:
        return await self.database.read(store.attempts.of_delivery, TENANT, delivery_id)

    async def verdicts(self, delivery_id: UUID) -> Sequence[Row[Any]]:
        return await self.database.read(store.attempts.verdicts_of_delivery, TENANT, delivery_id)

    async def events(self, kind: str) -> Sequence[Row[Any]]:
        return await self.database.read(_events, kind)

    async def until(self, ids: Sequence[UUID], *states: State) -> None:
        """Return when all of them stand in one of these states."""
        while not set(await self.states(ids)) <= set(states):
            await self.moment()

    async def until_told(self, name: str, times: int = 1) -> None:
        """Return when telemetry has told of this so often."""
        while sum(one == name for one, _ in self.said) < times:
            await self.moment()

    async def until_written(self, kind: str) -> None:
        """Return when an event of this kind is in the outbox."""
        while not await self.events(kind):
            await self.moment()

    async def until_asked(self, server: Server, times: int = 1) -> None:
        """Return when the server has had so many requests."""
        while len(server.requests) < times:
            await self.moment()

    async def moment(self) -> None:
        """Let the engine go on for as long as one round trip takes."""
        pause = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, pause.set_result, None)
        await pause


def _rows(connection: Connection, ids: Sequence[UUID]) -> list[Row[Any]]:
    c = schema.deliveries.c
    by_id = {row.id: row for row in connection.execute(select(schema.deliveries).where(c.id.in_(ids)))}
    return [by_id[one] for one in ids]


def _events(connection: Connection, kind: str) -> Sequence[Row[Any]]:
    return connection.execute(select(schema.events).where(schema.events.c.kind == kind)).all()


def _tried(connection: Connection, ids: Sequence[UUID], attempts: int) -> None:
    c = schema.deliveries.c
    tried = {"attempt_count": attempts, "key_number": attempts + 1, "state": int(State.PENDING_RETRY)}
    for start in range(0, len(ids), 500):
        connection.execute(schema.deliveries.update().where(c.id.in_(ids[start : start + 500])).values(tried))
