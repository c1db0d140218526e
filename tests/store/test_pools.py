"""When every connection is in use: whoever asks is told soon to come back, and those with connections of their own go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.util import await_only

from campana.errors import UnavailableError
from campana.store import engines, servers
from campana.store.database import Database
from campana.store.servers import Role
from tests.api import site
from tests.store import desk as desks
from tests.store.desk import Desk


@contextlib.asynccontextmanager
async def exhausted(database: Database, size: int) -> AsyncIterator[None]:
    """Each of its connections is in the hands of somebody who does not give it back."""
    enough, over, held = asyncio.Event(), asyncio.Event(), 0

    def hold(connection: Connection) -> None:
        nonlocal held
        del connection
        held += 1
        if held == size:
            enough.set()
        await_only(over.wait())

    holders = [asyncio.create_task(database.read(hold)) for _ in range(size)]
    await enough.wait()
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*holders)


async def test_whoever_finds_none_free_is_told_so_once_and_soon(server_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desks.be_patient(monkeypatch, place=0.2)
    async with desks.opened(server_desk.url, size=2) as desk:
        async with exhausted(desk.database, 2):
            for call in (desk.read, desk.write):
                with pytest.raises(UnavailableError, match="every connection to the database is in use"):
                    await call(engines.newest)
            assert desk.telemetry.counts["store.retry"] == 0
        assert await desk.read(engines.newest) is None


async def test_the_api_says_503_and_when_to_come_back_while_the_engine_beats_on(
    session_desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setitem(servers.PATIENCE, Role.API, replace(servers.PATIENCE[Role.API], place=0.2))
    async with site.open_site(tmp_path, session_desk.url, with_engine=True, database_pool_size=2) as here:
        client, engine = await here.client(), here.house.engine
        assert engine is not None
        async with exhausted(here.house.office.database, 2), exhausted(engine._database, 2):
            for answer in (await client.get("/v1/deliveries"), await client.post("/v1/deliveries", json=site.wanted())):
                assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
                assert int(answer.headers["retry-after"]) >= 1
            await engine.tick_once()
            assert engine.tick.is_fresh()
        assert (await client.post("/v1/deliveries", json=site.wanted())).status_code == 201
