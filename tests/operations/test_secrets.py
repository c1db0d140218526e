"""Signing secrets behind the faces: shown to one, sealed anew without a pause, and found where they can't be opened."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from campana import sealing, store, wiring
from campana.operations import secrets
from campana.operations.office import Office
from campana.sealing import Sealed, Sealer
from campana.settings import Settings
from campana.store import migrate
from tests import databases

SECRET = "for the tests alone, and long enough"
OLD, NEW = b"o" * 32, b"n" * 32
TENANT = UUID(int=1)


@pytest.fixture
async def office(database_url: str, tmp_path: Path) -> AsyncIterator[Office]:
    await migrate.upgrade(database_url)
    databases.clear(database_url, keep=("alembic_version", "campana_schema", "campana_migration_lock"))
    settings = Settings.load({}, folder=tmp_path, data=tmp_path, database_url=database_url, secret_key=SECRET, log_level="ERROR")
    async with wiring.open_house(settings, with_engine=False) as opened:
        yield opened.office


def under(office: Office, *materials: bytes) -> Office:
    """The same office with these sealing keys."""
    return replace(office, sealer=Sealer(office.world.chance, materials))


async def opened(office: Office) -> list[bytes | None]:
    rows: Any = await office.database.read(store.secrets.in_force, now=office.world.clock.now())
    places = [(Sealed(key_id=row.key_id, data=row.sealed), sealing.of_project(row.tenant_id, row.project_id)) for row in rows]
    return [office.sealer.open(*place) for place in places]


async def test_of_many_that_make_the_first_secret_at_once_one_is_shown_it(office: Office) -> None:
    made = await asyncio.gather(*(secrets.first(office, TENANT, UUID(int=2), "test") for _ in range(6)))
    (shown,) = [one for one in made if one is not None]
    assert shown.text not in repr(shown)
    assert len(await opened(office)) == 1


async def test_the_sealing_key_is_changed_without_a_moment_in_which_a_host_cant_open_what_is_in_force(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "PAGE", 3)
    for number in range(7):
        assert await secrets.first(under(office, OLD), TENANT, UUID(int=10 + number), "before") is not None
    known = await opened(under(office, OLD))
    assert None not in known
    # Each host in turn knows the new key, then writes under it, then forgets the old one.
    stages: list[tuple[bytes, ...]] = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    for older, newer in itertools.pairwise(stages):
        if newer == (NEW,):
            assert await secrets.reseal(under(office, NEW, OLD)) == secrets.Resealed(done=8, failed=0)
        for host in (older, newer):
            assert await opened(under(office, *host)) == known, (older, newer, host)
        if newer == (NEW, OLD):
            await secrets.first(under(office, *newer), TENANT, UUID(int=99), "meanwhile")
            await secrets.first(under(office, *older), TENANT, UUID(int=98), "meanwhile")
            known = await opened(under(office, NEW, OLD))
            assert known == await opened(under(office, OLD, NEW))
    assert await opened(under(office, OLD)) == [None] * 9


async def test_what_cant_be_opened_is_left_as_it_is_and_counted(office: Office) -> None:
    for number, key in enumerate((OLD, NEW, b"x" * 32)):
        await secrets.first(under(office, key), TENANT, UUID(int=10 + number), "test")
    assert len(await secrets.unreadable(under(office, NEW, OLD))) == 1
    for _ in range(2):
        came = await secrets.reseal(under(office, NEW, OLD))
        assert came.failed == 1
    (lost,) = await secrets.unreadable(under(office, NEW))
    assert lost.project_id == UUID(int=12)
    assert await secrets.unreadable(under(office, NEW, b"x" * 32)) == []
