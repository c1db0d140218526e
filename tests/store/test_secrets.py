"""Signing secrets: one first one in any race, numbers without a gap, and older ones that end when it was said."""

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain import secrets as model
from campana.store import schema
from campana.store.secrets import NewSecret
from tests.store.builders import HOUR, ME, MINUTE, NOW, OTHER_PROJECT, OTHER_TENANT, PROJECT, SECOND, TENANT, new_id
from tests.store.desk import Desk, hands, until_blocked


def _new(**others: Any) -> NewSecret:
    said: dict[str, Any] = {
        "id": new_id(),
        "tenant_id": TENANT,
        "project_id": PROJECT,
        "sealed": b"\0\xff" * 30,
        "key_id": "first",
        "created_at": NOW,
        "who": "key:x",
    }
    return NewSecret(**{**said, **others})


async def _rotate(desk: Desk, new: NewSecret | None = None, *, until: datetime = NOW + HOUR) -> Any:
    return await desk.write(store.secrets.rotate, new or _new(), until=until)


async def _numbers(desk: Desk, project_id: UUID = PROJECT, tenant_id: UUID = TENANT) -> list[tuple[int, datetime | None]]:
    rows = await desk.read(store.secrets.of_project, tenant_id, project_id, limit=100)
    return [(row.number, row.expires_at) for row in rows]


async def _version(desk: Desk) -> int:
    pulse = await desk.write(store.engines.tick, ME, ["webhook"], now=NOW, started_at=NOW, free=1, version="1")
    return pulse.secrets_version


async def test_the_first_secret_is_made_once_and_comes_back_as_it_was(desk: Desk) -> None:
    first, second = _new(), _new(sealed=b"other")
    for new in (first, second, first):
        (row,) = await desk.write(store.secrets.ensure, new)
        assert (row.id, bytes(row.sealed), row.number, row.expires_at) == (first.id, first.sealed, 1, None)
        assert (row.tenant_id, row.project_id, row.key_id, row.created_at, row.who) == (TENANT, PROJECT, "first", NOW, "key:x")
    assert await _version(desk) == 0, "whoever misses it asks for it"


async def test_of_two_engines_that_make_the_first_secret_at_once_both_get_the_same(desk: Desk) -> None:
    first, second = _new(), _new()
    async with hands(desk.url, 1) as (engine,):
        (mine,) = await engine.do(store.secrets.ensure, first)
        other = asyncio.create_task(desk.write(store.secrets.ensure, second))
        await until_blocked(desk.url)
        await engine.commit()
        (theirs,) = await other
    assert (mine.id, theirs.id) == (first.id, first.id)


async def test_a_rotation_makes_the_next_number_and_lets_the_older_ones_end(desk: Desk) -> None:
    await desk.write(store.secrets.ensure, _new())
    row = await _rotate(desk)
    assert (row.number, row.expires_at) == (2, None)
    assert await _numbers(desk) == [(2, None), (1, NOW + HOUR)]
    await _rotate(desk, _new(created_at=NOW + SECOND), until=NOW + 2 * HOUR)
    assert await _numbers(desk) == [(3, None), (2, NOW + 2 * HOUR), (1, NOW + HOUR)], "what ends sooner stays so"
    await _rotate(desk, _new(created_at=NOW + MINUTE), until=NOW + MINUTE)
    assert await _numbers(desk) == [(4, None), (3, NOW + MINUTE), (2, NOW + MINUTE), (1, NOW + MINUTE)]
    assert await _version(desk) == 3


async def test_a_project_without_a_secret_gets_its_first_by_a_rotation(desk: Desk) -> None:
    assert (await _rotate(desk)).number == 1
    assert [row.number for row in await desk.write(store.secrets.ensure, _new())] == [1]


async def test_a_rotation_that_is_run_again_changes_nothing_more(desk: Desk) -> None:
    new = _new()
    rows = [await _rotate(desk, new) for _ in range(2)]
    assert [(row.id, row.number) for row in rows] == [(new.id, 1)] * 2
    assert await _version(desk) == 1
    assert len(await desk.rows(schema.events)) == 1


async def test_two_rotations_at_once_make_two_secrets_of_which_the_later_is_current(desk: Desk) -> None:
    await desk.write(store.secrets.ensure, _new())
    async with hands(desk.url, 1) as (first,):
        assert (await first.do(store.secrets.rotate, _new(), until=NOW + HOUR)).number == 2  # type: ignore[union-attr]  # few are in force
        other = asyncio.create_task(_rotate(desk))
        await until_blocked(desk.url)
        await first.commit()
        assert (await other).number == 3
    assert await _numbers(desk) == [(3, None), (2, NOW + HOUR), (1, NOW + HOUR)]


async def test_a_rotation_finds_the_first_secret_that_an_engine_makes_at_the_same_moment(desk: Desk) -> None:
    async with hands(desk.url, 1) as (engine,):
        await engine.do(store.secrets.ensure, _new())
        other = asyncio.create_task(_rotate(desk))
        await until_blocked(desk.url)
        await engine.commit()
        assert (await other).number == 2
    assert await _numbers(desk) == [(2, None), (1, NOW + HOUR)]


async def test_no_more_are_in_force_at_once_than_a_request_should_bear(desk: Desk) -> None:
    for number in range(1, model.MOST_IN_FORCE + 1):
        assert (await _rotate(desk)).number == number
    before = await _numbers(desk), await _version(desk)
    assert await _rotate(desk) is None
    assert (await _numbers(desk), await _version(desk)) == before
    assert (await _rotate(desk, until=NOW)).number == model.MOST_IN_FORCE + 1, "ending all older ones is always possible"
    assert (await _rotate(desk, _new(created_at=NOW + SECOND))).number == model.MOST_IN_FORCE + 2


async def test_what_is_in_force_is_told_by_project_the_newest_first_and_what_has_ended_is_not(desk: Desk) -> None:
    for _ in range(3):
        await _rotate(desk)
    await _rotate(desk, _new(project_id=OTHER_PROJECT, tenant_id=OTHER_TENANT))
    await _rotate(desk, _new(created_at=NOW + SECOND), until=NOW + MINUTE)

    async def told(now: datetime) -> list[tuple[UUID, int]]:
        return [(row.project_id, row.number) for row in await desk.read(store.secrets.in_force, now=now)]

    assert await told(NOW + MINUTE - SECOND) == [*((PROJECT, number) for number in (4, 3, 2, 1)), (OTHER_PROJECT, 1)]
    assert await told(NOW + MINUTE) == [(PROJECT, 4), (OTHER_PROJECT, 1)]


async def test_another_tenant_sees_nothing_of_a_projects_secrets(desk: Desk) -> None:
    await _rotate(desk)
    assert await _numbers(desk, tenant_id=OTHER_TENANT) == []
    assert await _numbers(desk, OTHER_PROJECT) == []


async def test_a_rotation_is_on_record_with_who_and_when_and_tells_no_secret(desk: Desk) -> None:
    new = _new(who="key:ann")
    await _rotate(desk, new)
    (event,) = await desk.rows(schema.events)
    assert (event.kind, event.tenant_id, event.delivery_id, event.at) == ("project.secret_rotated", TENANT, None, NOW)
    assert json.loads(event.data) == {
        "project_id": str(PROJECT),
        "number": 1,
        "older_until": "2026-03-01T13:00:00Z",
        "actor": "key:ann",
    }


async def test_a_rotation_that_is_taken_back_is_told_to_nobody(desk: Desk) -> None:
    async with hands(desk.url, 1) as (one,):
        await one.do(store.secrets.rotate, _new(), until=NOW + HOUR)
        await one.rollback()
    assert (await _numbers(desk), await _version(desk), await desk.rows(schema.events)) == ([], 0, [])


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_what_is_sealed_under_other_keys_is_found_page_by_page_and_sealed_anew(desk: Desk, limit: int) -> None:
    made = [_new(key_id=key_id) for key_id in ("first", "second", "first", "third")]
    for new in made:
        await _rotate(desk, new)
    seen: list[UUID] = []
    page: Sequence[Any] = [None]
    while page := await desk.read(store.secrets.under_others, "second", after=seen[-1] if seen else None, limit=limit):
        assert len(page) <= limit
        seen += [row.id for row in page]
    assert seen == [made[0].id, made[2].id, made[3].id]
    await desk.write(store.secrets.reseal, made[0].id, was="first", key_id="second", sealed=b"anew")
    await desk.write(store.secrets.reseal, made[3].id, was="first", key_id="second", sealed=b"by somebody who was late")
    rows = {row.id: (row.key_id, bytes(row.sealed)) for row in await desk.rows(schema.secrets)}
    assert rows[made[0].id] == ("second", b"anew")
    assert rows[made[3].id] == ("third", made[3].sealed)
