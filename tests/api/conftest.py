"""The server that most tests of the API talk to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.api import site


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    asyncio.run(site.prepare(folder))
    return folder


@pytest.fixture
async def here(prepared: Path, tmp_path: Path) -> AsyncIterator[site.Site]:
    """The API on a SQLite file of this test's own, without an engine."""
    site.copy(prepared, tmp_path)
    async with site.open_site(tmp_path) as opened:
        yield opened


@pytest.fixture
async def client(here: site.Site) -> httpx2.AsyncClient:
    """The owner of the tenant `default`."""
    return await here.client()
