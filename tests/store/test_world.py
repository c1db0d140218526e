"""Engines and their tick, switches, tenants, projects and keys."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from campana import store
from campana.domain.deliveries import State
from campana.store import schema, tenants
from campana.store.engines import Pulse
from campana.store.schema import engines, keys, switches
from tests.store.builders import HOUR, MINUTE, NOW, SECOND, new_id
from tests.store.desk import Desk, execute, hands, is_file, until_blocked

A, B = UUID(int=1), UUID(int=2)


async def _tick(desk: Desk, me: UUID = A, *, queues: tuple[str, ...] = ("webhook",), **others: Any) -> Pulse:
    said: dict[str, Any] = {"now": NOW, "started_at": NOW, "free": 7, "version": "1.2.3", **others}
    return await desk.write(store.engines.tick, me, queues, **said)


async def test_a_first_tick_writes_the_engine_down_and_later_ones_keep_it_alive(desk: Desk) -> None:
    await _tick(desk)
    await _tick(desk, now=NOW + SECOND, free=3, started_at=NOW + HOUR, version="other")
    (row,) = await desk.rows(engines)
    assert (row.id, row.started_at, row.seen_at, row.free_slots, row.version) == (A, NOW, NOW + SECOND, 3, "1.2.3")


async def test_the_same_tick_twice_is_one_engine(desk: Desk) -> None:
    for _ in range(2):
        await _tick(desk)
    assert len(await desk.rows(engines)) == 1


async def test_a_tick_says_when_to_wake(desk: Desk) -> None:
    assert (await _tick(desk)).next_send is None
    assert (await _tick(desk)).next_timer is None
    await desk.add_all(
        {"wake_at": NOW + HOUR},
        {"wake_at": NOW + MINUTE, "queue": "other"},
        {"wake_at": NOW + 2 * HOUR, "state": State.PROCESSING},
    )
    pulse = await _tick(desk)
    assert (pulse.next_send, pulse.next_timer) == (NOW + HOUR, NOW + 2 * HOUR)
    await desk.add(wake_at=NOW + SECOND, crash_count=2)
    assert (await _tick(desk)).next_send == NOW + SECOND


async def test_a_server_tells_its_time_to_the_microsecond_and_a_file_has_none(desk: Desk) -> None:
    told = [(await _tick(desk)).database_now for _ in range(3)]
    if is_file(desk.url):
        assert told == [None] * 3
        return
    at = [one for one in told if one is not None]
    assert len(at) == 3
    assert at == sorted(at)
    here = desk.database._world.clock.wall()
    assert all(abs(one - here) < MINUTE for one in at)
    assert len({one.microsecond for one in at}) > 1


async def test_a_tick_says_which_version_the_switches_have(desk: Desk) -> None:
    assert (await _tick(desk)).switches_version == 0
    for version, is_off in ((1, True), (2, False)):
        await _throw(desk, off=is_off)
        assert (await _tick(desk)).switches_version == version


async def test_the_board_shows_what_is_closed(desk: Desk) -> None:
    made = [await desk.write(store.tenants.ensure, name, tenant_id=new_id(), now=NOW) for name in ("a", "b")]
    await desk.write(execute, update(schema.tenants).values(suspended_at=NOW).where(schema.tenants.c.id == made[1]))
    await _throw(desk, "one")
    await _throw(desk, "two")
    await _throw(desk, "two", off=False)
    board = await desk.read(store.engines.board)
    assert (board.off, board.suspended) == (frozenset({"one"}), frozenset({made[1]}))


async def test_other_engines_are_those_that_were_seen_since(desk: Desk) -> None:
    for me, ago in ((A, 0), (B, 10), (new_id(), 60)):
        await _tick(desk, me, now=NOW - ago * SECOND)
    assert [row.id for row in await desk.read(store.engines.others, A, since=NOW - 10 * SECOND)] == [B]


async def test_an_engine_that_leaves_is_no_other_any_more_and_is_remembered(desk: Desk) -> None:
    for me in (A, B):
        await _tick(desk, me)
    for _ in range(2):
        await desk.write(store.engines.leave, A, now=NOW + SECOND)
    assert {row.id: row.left_at for row in await desk.rows(engines)} == {A: NOW + SECOND, B: None}
    assert [row.id for row in await desk.read(store.engines.others, new_id(), since=NOW)] == [B]
    assert await desk.read(store.engines.newest) == NOW


async def test_engines_not_seen_for_a_day_are_pruned(desk: Desk) -> None:
    await _tick(desk, A, now=NOW - timedelta(days=1))
    await _tick(desk, B, now=NOW - timedelta(days=1, microseconds=1))
    assert await desk.write(store.engines.prune, now=NOW) == 1
    assert [row.id for row in await desk.rows(engines)] == [A]


async def test_the_last_engine_that_was_seen_is_never_pruned(desk: Desk) -> None:
    assert await desk.write(store.engines.prune, now=NOW) == 0
    await _tick(desk, A, now=NOW - timedelta(days=9))
    await _tick(desk, B, now=NOW - timedelta(days=8))
    for count in (1, 0):
        assert await desk.write(store.engines.prune, now=NOW) == count
    assert [row.id for row in await desk.rows(engines)] == [B]


async def test_due_work_that_no_living_engine_serves_is_told_to_one(desk: Desk) -> None:
    await _tick(desk, A, queues=("webhook",))
    await _tick(desk, B, queues=("webhook", "log"))
    await desk.add(queue="webhook", wake_at=NOW)
    await desk.add(queue="python:a", wake_at=NOW + SECOND)
    since = NOW - 30 * SECOND

    async def unserved(me: UUID, now: datetime) -> Mapping[str, datetime]:
        return await desk.read(store.engines.unserved, me, now=now, since=since)

    assert await unserved(A, NOW) == {}, "it is not due yet"
    assert await unserved(A, NOW + SECOND) == {"python:a": NOW + SECOND}
    assert await unserved(B, NOW + SECOND) == {}, "the first one tells it"
    await desk.add(queue="log", wake_at=NOW)
    assert await unserved(A, NOW) == {}
    await desk.write(store.engines.leave, B, now=NOW)
    assert await unserved(A, NOW) == {"log": NOW}


async def test_queues_are_those_in_which_something_waits(desk: Desk) -> None:
    assert await desk.read(store.wakes.queues) == []
    for queue in ("b", "a", "b", "A "):
        await desk.add(queue=queue)
    assert await desk.read(store.wakes.queues) == ["A ", "a", "b"]


async def test_a_database_examined_is_read_committed(desk: Desk) -> None:
    seen = await desk.read(store.engines.examine)
    assert seen.is_read_committed
    assert (seen.database_now is None) == is_file(desk.url)
    assert is_file(desk.url) or seen.isolation == "read committed"


async def _throw(desk: Desk, scope: str = "all", *, off: bool = True, reason: str = "r", actor: str = "ann") -> None:
    await desk.write(store.switches.throw, scope, off=off, reason=reason, actor=actor, now=NOW)


async def test_a_switch_is_as_it_was_thrown_last(desk: Desk) -> None:
    await _throw(desk, reason="first")
    assert await desk.read(store.switches.off) == {"all"}
    await _throw(desk, off=False, reason="second", actor="bob")
    (row,) = await desk.read(store.switches.every)
    assert (row.scope, row.off, row.reason, row.actor, row.changed_at) == ("all", False, "second", "bob", NOW)
    assert await desk.read(store.switches.off) == frozenset()


async def test_scopes_that_differ_in_one_byte_are_different_switches(desk: Desk) -> None:
    scopes = ["a", "a ", "A", "á", "😀"]
    for scope in scopes:
        await _throw(desk, scope)
    assert await desk.read(store.switches.off) == set(scopes)
    assert [row.scope for row in await desk.rows(switches)] == sorted(scopes, key=str.encode) or not is_file(desk.url)


async def test_thrown_again_by_the_same_call_a_switch_raises_no_version_and_tells_nothing_twice(desk: Desk) -> None:
    said: dict[str, Any] = {"off": True, "reason": "r", "actor": "ann", "now": NOW, "tenant_id": A}
    for _ in range(2):
        row = await desk.write(store.switches.throw, f"tenant:{A}", **said)
        assert (row.off, row.reason) == (True, "r")
    assert (await _tick(desk)).switches_version == 1
    (event,) = await desk.rows(schema.events)
    told = {"scope": "tenant", "off": True, "reason": "r", "actor": "ann"}
    assert (event.kind, event.tenant_id, event.at, json.loads(event.data)) == ("switch.changed", A, NOW, told)


async def test_switches_are_listed_under_their_roots_alone(desk: Desk) -> None:
    scopes = [
        "all",
        "all/hold",
        f"all/tenant:{A}",
        f"tenant:{A}",
        f"tenant:{A}/channel:log",
        f"tenant:{B}",
        "allx",
        f"tenant:{A}x",
    ]
    for scope in scopes:
        await _throw(desk, scope)
    assert [row.scope for row in await desk.read(store.switches.under, [f"tenant:{A}"])] == scopes[3:5]
    assert [row.scope for row in await desk.read(store.switches.under, ["all", f"tenant:{B}"])] == [*scopes[:3], scopes[5]]


async def test_two_that_throw_at_once_both_raise_the_version(desk: Desk) -> None:
    await _throw(desk)
    async with hands(desk.url, 1) as (first,):
        await first.do(store.switches.throw, "one", off=True, reason="", actor="", now=NOW)
        second = asyncio.create_task(_throw(desk, "two"))
        await until_blocked(desk.url)
        await first.commit()
    await second
    assert (await _tick(desk)).switches_version == 3


async def test_a_tenant_and_a_project_are_made_once(desk: Desk) -> None:
    tenant = await desk.write(store.tenants.ensure, "a", tenant_id=A, now=NOW)
    assert tenant == A
    assert await desk.write(store.tenants.ensure, "a", tenant_id=B, now=NOW) == A
    assert await desk.write(store.tenants.ensure, "a ", tenant_id=B, now=NOW) == B
    for tenant_id, project_id, expected in ((A, UUID(int=5), 5), (A, UUID(int=6), 5), (B, UUID(int=7), 7)):
        made = await desk.write(store.tenants.ensure_project, tenant_id, "default", project_id=project_id, now=NOW)
        assert made == UUID(int=expected)


async def test_a_tenant_is_found_by_its_exact_name(desk: Desk) -> None:
    for tenant_id, name in ((A, "a"), (B, "a ")):
        await desk.write(store.tenants.ensure, name, tenant_id=tenant_id, now=NOW)
    found = [await desk.read(store.tenants.named, name) for name in ("a", "a ", "A", "", "' or 1=1")]
    assert found == [A, B, None, None, None]


async def test_a_tenants_projects_are_listed_by_name(desk: Desk) -> None:
    for tenant_id, name in ((A, "b"), (A, "a"), (B, "c")):
        await desk.write(store.tenants.ensure_project, tenant_id, name, project_id=new_id(), now=NOW)
    assert [row.name for row in await desk.read(store.tenants.projects_of, A)] == ["a", "b"]


def _key(**others: Any) -> tenants.NewKey:
    said: dict[str, Any] = {"id": new_id(), "tenant_id": A, "name": "ci", "prefix": "cmp_ab", "hash": b"\x00\xff" * 16}
    return tenants.NewKey(**{**said, "scopes": "write", "created_at": NOW, **others})


async def test_a_key_is_found_by_its_hash_and_kept_once(desk: Desk) -> None:
    assert await desk.read(store.tenants.has_keys) is False
    key = _key(project_id=B, expires_at=NOW + HOUR)
    for _ in range(2):
        assert await desk.write(store.tenants.add_key, key) is True
    assert await desk.write(store.tenants.add_key, _key()) is False
    found = await desk.read(store.tenants.key_by_hash, key.hash)
    assert found is not None
    assert {name: getattr(found, name) for name in tenants.NewKey.__slots__} == {
        name: getattr(key, name) for name in tenants.NewKey.__slots__
    }
    assert (found.revoked_at, found.last_used_at) == (None, None)
    assert await desk.read(store.tenants.has_keys) is True
    assert len(await desk.rows(keys)) == 1


@pytest.mark.parametrize("digest", [b"\x00\xff" * 15 + b"\x00\xfe", b"\x00" * 32, b" " * 32])
async def test_another_hash_is_nobodys(desk: Desk, digest: bytes) -> None:
    await desk.write(store.tenants.add_key, _key())
    assert await desk.read(store.tenants.key_by_hash, digest) is None


async def test_a_key_remembers_when_it_was_used(desk: Desk) -> None:
    mine, other = _key(), _key(hash=b"x" * 32)
    for key in (mine, other):
        await desk.write(store.tenants.add_key, key)
    await desk.write(store.tenants.touch_key, mine.id, now=NOW + SECOND)
    used = {row.id: row.last_used_at for row in await desk.rows(keys)}
    assert used == {mine.id: NOW + SECOND, other.id: None}
