"""What tests of operations begin with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from campana import wiring
from campana.operations import keys
from campana.operations.office import Actor, Office
from campana.settings import Settings
from campana.store import migrate


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[tuple[Office, Actor]]:
    """An office on a file of its own, without an engine, and whoever owns its tenant."""
    settings = Settings.load({}, folder=tmp_path, data=tmp_path, secret_key="long enough for the tests " * 2, log_level="ERROR")
    await migrate.upgrade(settings.url)
    async with wiring.open_house(settings, with_engine=False) as house:
        issued = (await keys.bootstrap(house.office, None)).key
        assert issued is not None
        yield house.office, await keys.authenticate(house.office, issued.text)
