"""Waiting for a delivery's end, for as long as somebody wants to."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from campana import store
from campana.domain import instants
from campana.errors import NotFoundError
from campana.operations import deliveries, keys, waiting
from campana.operations.office import Actor, Office


async def one(office: Office, actor: Actor) -> UUID:
    said = {"channel": "log", "target": {"message": "hello"}, "at": "2199-01-01T00:00:00Z"}
    made = await deliveries.create(office, actor, said)
    assert made.record is not None
    found: UUID = made.record.id
    return found


async def test_what_does_not_end_is_given_back_when_the_time_is_over(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    began = office.world.clock.steady()
    record = await waiting.until_final(office, actor, await one(office, actor), seconds=0.3)
    assert not waiting.has_ended(record)
    assert office.world.clock.steady() - began >= 0.3


async def test_what_ends_meanwhile_is_seen(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    it = await one(office, actor)
    told = asyncio.create_task(waiting.until_final(office, actor, it))
    while not len(office.waiters):
        await office.world.clock.sleep(0)
    await deliveries.cancel(office, actor, it)
    assert waiting.has_ended(await told)
    assert len(office.waiters) == 0


async def test_an_operator_acts_where_they_say_and_only_there(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
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
