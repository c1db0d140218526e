"""Operations that no face has yet, or that are easier seen without one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from campana import store, wiring, world
from campana.errors import ConflictError, SettingsError, UnauthenticatedError
from campana.operations import keys
from campana.settings import Settings
from campana.store import migrate
from tests import databases

SECRET = "for the tests alone, and long enough"


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[wiring.House]:
    await migrate.upgrade(database_url)
    databases.clear(database_url, keep=("alembic_version", "campana_schema", "campana_migration_lock"))
    settings = Settings.load({}, folder=tmp_path, data=tmp_path, database_url=database_url, secret_key=SECRET, log_level="ERROR")
    async with wiring.open_house(settings, with_engine=False) as opened:
        yield opened


async def test_the_first_start_makes_an_owner_and_the_second_makes_nobody(house: wiring.House) -> None:
    first = await keys.bootstrap(house.office, None)
    second = await keys.bootstrap(house.office, None)

    assert first.key is not None
    assert second.key is None
    actor = await keys.authenticate(house.office, first.key.text)
    assert actor.may("read")
    assert actor.may("write")
    assert actor.may("installation")
    assert actor.project_id is None


async def test_a_given_bootstrap_key_is_taken_at_every_start_and_once(house: wiring.House) -> None:
    given = "cmp_" + "g" * 40
    issued = [(await keys.bootstrap(house.office, given)).key for _ in range(3)]

    assert len({one.id for one in issued if one is not None}) == 1
    assert (await keys.authenticate(house.office, given)).key_id == issued[0].id  # type: ignore[union-attr]  # it is given


async def test_a_new_bootstrap_key_works_beside_the_old_one(house: wiring.House) -> None:
    for letter in "ab":
        await keys.bootstrap(house.office, "cmp_" + letter * 40)

    actors = [await keys.authenticate(house.office, "cmp_" + letter * 40) for letter in "ab"]
    assert actors[0].tenant_id == actors[1].tenant_id


async def test_first_starts_in_parallel_make_one_tenant(house: wiring.House) -> None:
    made = await asyncio.gather(*(keys.bootstrap(house.office, "cmp_" + "p" * 40) for _ in range(6)))

    assert len({one.key.id for one in made if one.key is not None}) == 1
    (first,) = [one for one in made if one.signing_secret is not None]
    assert str(first.signing_secret) not in repr(first)


async def test_a_key_of_one_tenant_can_not_become_anothers(house: wiring.House) -> None:
    text = "cmp_" + "x" * 40
    await keys.bootstrap(house.office, text)
    other = await house.office.database.write(
        store.tenants.ensure, "other", tenant_id=house.world.new_id(), now=house.world.clock.now()
    )

    with pytest.raises(ConflictError):
        await keys.issue(house.office, other, name="x", scopes=("owner",), text=text)


async def test_only_a_hash_of_a_key_is_kept(house: wiring.House) -> None:
    issued = await keys.issue_for_default(house.office, name="ci", installation=False)

    row = await house.office.database.read(store.tenants.key_by_hash, hashlib.sha256(issued.text.encode()).digest())
    assert row is not None
    assert row.scopes == "owner"
    assert issued.text not in str(tuple(row))
    assert issued.text.startswith(row.prefix)
    assert len(row.prefix) == 12
    assert not (await keys.authenticate(house.office, issued.text)).may("installation")


async def test_a_use_is_remembered_no_more_than_once_a_minute(house: wiring.House) -> None:
    issued = await keys.issue_for_default(house.office, name="ci", installation=False)
    before = house.telemetry.counts["store.touch_key"]
    for _ in range(5):
        await keys.authenticate(house.office, issued.text)

    row = await house.office.database.read(store.tenants.key_by_hash, keys.digest(issued.text))
    assert row is not None
    assert row.last_used_at is not None
    assert house.telemetry.counts["store.touch_key"] == before + 1


async def test_nobody_is_nobody(house: wiring.House) -> None:
    for text in ("", "cmp_", "x", "cmp_" + "n" * 40):
        with pytest.raises(UnauthenticatedError):
            await keys.authenticate(house.office, text)


def settings(folder: Path) -> Settings:
    return Settings.load({}, folder=folder, data=folder / "d")


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    first, second = (wiring.secret_of(settings(tmp_path), world.real()) for _ in range(2))

    assert first == second
    assert len(first) == 64
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["secret.key"]


@pytest.mark.parametrize("content", ["", "short", "\n" * 40])
def test_half_a_secret_is_no_secret(tmp_path: Path, content: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "secret.key").write_text(content)

    with pytest.raises(SettingsError, match=r"secret\.key"):
        wiring.secret_of(settings(tmp_path), world.real())
