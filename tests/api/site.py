"""A real server for the tests: the product's own wiring and uvicorn, in this process, on a free port."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2

from campana import store, wiring
from campana.cli import serve
from campana.settings import Settings
from campana.store import migrate
from campana.store.tenants import NewKey

SECRET = "for the tests alone, and long enough"
NDJSON = "application/x-ndjson"


@dataclass(kw_only=True)
class Site:
    """Where the API answers, and what is behind it."""

    house: wiring.House
    url: str
    clients: contextlib.AsyncExitStack
    stop: Callable[[], None]
    tenants: dict[str, UUID] = field(default_factory=dict)
    keys: int = 0

    async def client(self, **key: Any) -> httpx2.AsyncClient:
        """A client with a fresh key; `key` as in `make_key`."""
        return await self.bare(Authorization=f"Bearer {await self.make_key(**key)}")

    async def bare(self, **headers: str) -> httpx2.AsyncClient:
        """A client without a key."""
        client = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=60)
        return await self.clients.enter_async_context(client)

    async def make_key(
        self,
        *,
        tenant: str = "default",
        project: str | None = None,
        scopes: str = "owner",
        expires_at: datetime | None = None,
        text: str | None = None,
    ) -> str:
        """A key of a tenant, which is made with its project `default` where it is not there."""
        self.keys += 1
        said = text or f"cmp_live_number_{self.keys}_of_{tenant.replace(' ', '_')}"
        key = NewKey(
            id=self.house.world.new_id(),
            tenant_id=await self.tenant(tenant),
            project_id=None if project is None else await self.project(tenant, project),
            name="test",
            prefix=said[:12],
            hash=hashlib.sha256(said.encode()).digest(),
            scopes=scopes,
            created_at=self.now,
            expires_at=expires_at,
        )
        assert await self.house.office.database.write(store.tenants.add_key, key)
        return said

    async def tenant(self, name: str) -> UUID:
        database = self.house.office.database
        if name not in self.tenants:
            made = await database.write(store.tenants.ensure, name, tenant_id=self.house.world.new_id(), now=self.now)
            self.tenants[name] = made
            await self.project(name, "default")
        return self.tenants[name]

    async def project(self, tenant: str, name: str) -> UUID:
        tenant_id, project_id = await self.tenant(tenant), self.house.world.new_id()
        database = self.house.office.database
        return await database.write(store.tenants.ensure_project, tenant_id, name, project_id=project_id, now=self.now)

    @property
    def now(self) -> datetime:
        return self.house.world.clock.now()

    async def count(self) -> int:
        """How many deliveries there are, of all tenants."""
        database = self.house.office.database
        nothing = store.deliveries.Filter()
        found = [
            await database.read(store.deliveries.newest, tenant, nothing, before=None, limit=100_000)
            for tenant in self.tenants.values()
        ]
        return sum(len(one) for one in found)

    async def force(self, delivery_id: str, **values: Any) -> None:
        """Write columns of a delivery as an engine would."""
        await self.house.office.database.write(_force, UUID(delivery_id), values)


def _force(connection: Any, delivery_id: UUID, values: Mapping[str, Any]) -> None:
    table = store.schema.deliveries
    connection.execute(table.update().where(table.c.id == delivery_id).values(**values))


def settings(folder: Path, url: str | None = None, **given: Any) -> Settings:
    """Settings of these alone, whatever the environment says."""
    return Settings.load({}, folder=folder, data=folder, database_url=url, secret_key=SECRET, **given)


async def prepare(folder: Path) -> None:
    """A SQLite file with the schema and nothing in it."""
    await migrate.upgrade(settings(folder).url)


def copy(prepared: Path, folder: Path) -> None:
    shutil.copy(prepared / "campana.db", folder / "campana.db")


@contextlib.asynccontextmanager
async def open_site(folder: Path, url: str | None = None, *, with_engine: bool = False, **given: Any) -> AsyncIterator[Site]:
    """The API on a database that has its schema."""
    async with contextlib.AsyncExitStack() as stack:
        said = settings(folder, url, port=0, log_level="ERROR", **given)
        house = await stack.enter_async_context(wiring.open_house(said, with_engine=with_engine))
        listener = stack.enter_context(serve._listen(said))
        server = serve._api(house)
        work = [asyncio.create_task(server.serve(sockets=[listener]))]
        if house.engine is not None:
            work.append(asyncio.create_task(house.engine.run()))
        try:
            async with contextlib.AsyncExitStack() as clients:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                yield Site(house=house, url=url, clients=clients, stop=lambda: setattr(server, "should_exit", True))
        finally:
            server.should_exit = True
            if house.engine is not None:
                house.engine.stop()
            await asyncio.gather(*work)


def wanted(**said: Any) -> dict[str, Any]:
    """A delivery that is accepted as it stands, in a year that this engine does not see."""
    return {"channel": "log", "target": {"message": "hello"}, "at": "2199-01-01T00:00:00Z"} | said


def pointers(response: httpx2.Response) -> set[tuple[str, str]]:
    """Which fields a 422 names, and why."""
    assert response.status_code == 422, response.text
    return {(fault["pointer"], fault["code"]) for fault in response.json()["errors"]}
