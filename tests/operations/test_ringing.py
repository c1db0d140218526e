"""Who makes a delivery tells the engine, once it is durable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from campana import wiring
from campana.domain import instants
from campana.operations import deliveries, keys
from campana.operations.office import Actor, Office
from campana.settings import Settings
from campana.store import migrate

SOON, LATER = "2199-01-01T00:00:00Z", "2199-01-02T00:00:00Z"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[tuple[Office, Actor, list[datetime]]]:
    settings = Settings.load({}, folder=tmp_path, data=tmp_path, secret_key="long enough for the tests " * 2, log_level="ERROR")
    await migrate.upgrade(settings.url)
    async with wiring.open_house(settings, with_engine=False) as house:
        issued, heard = (await keys.bootstrap(house.office, None)).key, list[datetime]()
        assert issued is not None
        yield replace(house.office, ring=heard.append), await keys.authenticate(house.office, issued.text), heard


def wanted(at: str, **said: Any) -> dict[str, Any]:
    return {"channel": "log", "target": {"message": "hello"}, "at": at, **said}


async def test_a_new_delivery_rings_at_its_instant_and_a_known_one_does_not(office: tuple[Office, Actor, list[datetime]]) -> None:
    here, actor, heard = office
    for _ in range(2):
        await deliveries.create(here, actor, wanted(SOON, dedupe_key="same"))
    assert heard == [instants.parse(SOON)]


async def test_a_batch_rings_at_its_first_instant(office: tuple[Office, Actor, list[datetime]]) -> None:
    here, actor, heard = office
    made = [
        one async for some in deliveries.create_many(here, actor, [wanted(at) for at in (LATER, SOON, LATER)]) for one in some
    ]
    assert len(made) == 3
    assert heard == [instants.parse(SOON)]


async def test_it_rings_when_the_delivery_is_durable(office: tuple[Office, Actor, list[datetime]]) -> None:
    here, actor, _ = office
    commits: list[int] = []
    listening = replace(here, ring=lambda _: commits.append(here.telemetry.counts["store.enter"]))
    await deliveries.create(listening, actor, wanted(SOON))
    assert commits == [1]
