"""Waiting for an end: it takes no longer than it was told to, and sees it soon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from campana import store, wiring
from campana.domain import instants
from campana.domain.acts import Act, Deed
from campana.errors import NotFoundError
from campana.operations import deliveries, keys, waiting
from campana.operations.office import Actor, Office
from campana.settings import Settings
from campana.store import migrate
from campana.world import SystemClock, World


class Hurried(SystemClock):
    """A clock on which waiting takes no time, and whoever waits is told how long."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        super().__init__()

    def steady(self) -> float:
        return sum(self.waited) if hasattr(self, "waited") else 0.0

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[tuple[Office, Actor, Hurried]]:
    settings = Settings.load({}, folder=tmp_path, data=tmp_path, secret_key="long enough for the tests " * 2, log_level="ERROR")
    await migrate.upgrade(settings.url)
    async with wiring.open_house(settings, with_engine=False) as house:
        actor = await keys.operator(house.office)
        clock = Hurried()
        yield replace(house.office, world=World(clock, house.world.chance)), actor, clock


async def one(office: Office, actor: Actor) -> UUID:
    said = {"channel": "log", "target": {"message": "hello"}, "at": "2199-01-01T00:00:00Z"}
    made = await deliveries.create(office, actor, said)
    assert made.record is not None
    found: UUID = made.record.id
    return found


async def test_what_does_not_end_is_given_back_when_the_time_is_over(here: tuple[Office, Actor, Hurried]) -> None:
    office, actor, clock = here
    record = await waiting.until_final(office, actor, await one(office, actor), seconds=10)
    assert not waiting.has_ended(record)
    assert sum(clock.waited) == pytest.approx(10)
    assert max(clock.waited) <= waiting.LONGEST


async def test_what_ends_meanwhile_is_seen(here: tuple[Office, Actor, Hurried], monkeypatch: pytest.MonkeyPatch) -> None:
    office, actor, clock = here
    it = await one(office, actor)

    async def cancel(seconds: float) -> None:
        clock.waited.append(seconds)
        if len(clock.waited) == 5:
            deed = Deed(act=Act.CANCEL, actor="test")
            await office.database.write(store.acts.perform, actor.tenant_id, [it], deed, now=instants.EPOCH)

    monkeypatch.setattr(clock, "sleep", cancel)
    record: Any = await waiting.until_final(office, actor, it)
    assert (waiting.has_ended(record), len(clock.waited)) == (True, 5)


async def test_an_operator_acts_where_they_say_and_only_there(here: tuple[Office, Actor, Hurried]) -> None:
    office, actor, _ = here
    it = await one(office, actor)
    new_id, now = office.world.new_id, instants.EPOCH
    other = await office.database.write(store.tenants.ensure, "other", tenant_id=new_id(), now=now)
    side = await office.database.write(store.tenants.ensure_project, other, "side", project_id=new_id(), now=now)
    placed = await keys.operator(office, tenant="other", project="side")
    assert (placed.tenant_id, placed.project_id, placed.who) == (other, side, "the command line")
    assert (await keys.operator(office, tenant="default")).tenant_id == actor.tenant_id
    with pytest.raises(NotFoundError):
        await waiting.until_final(office, placed, it)
    for words in ({"tenant": "nobody"}, {"project": "nothing"}, {"tenant": "other", "project": "default"}):
        with pytest.raises(NotFoundError, match="there is no"):
            await keys.operator(office, **words)
