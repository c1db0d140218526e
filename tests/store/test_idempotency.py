"""Rows of requests under an idempotency key: one holder at a time, one answer, and nothing forgotten that may have had effect."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.store import idempotency, retention
from campana.store.idempotency import Answered, Asking, Held, Refused
from campana.store.retention import Swept
from campana.store.schema import idempotency_keys, idempotency_pieces
from campana.world import uuid7
from tests.proxies import Commit, Proxy
from tests.store import builders
from tests.store import desk as desks
from tests.store.builders import HOUR, MINUTE, NOW, OTHER_TENANT, SECOND, TENANT
from tests.store.desk import Desk

ANSWER = Answered(status=201, headers="{}", body=b"x" * 250)
LATER = NOW + MINUTE


def asking(**others: Any) -> Asking:
    said: dict[str, Any] = {
        "id": builders.new_id(), "tenant_id": TENANT, "place": b"p" * 32, "fingerprint": b"f" * 32, "seed": b"s" * 32,
        "actor": "key:1", "now": NOW, "until": LATER,
    }  # fmt: skip
    return Asking(**said | others)


async def take(desk: Desk, **others: Any) -> tuple[UUID, Any]:
    me = asking(**others)
    return me.id, await desk.write(store.idempotency.take, me)


async def test_the_first_holds_it_and_hears_the_same_when_it_asks_again(desk: Desk) -> None:
    me = asking()
    for _ in range(2):
        assert await desk.write(store.idempotency.take, me) == Held(
            id=me.id, seed=me.seed, actor="key:1", began_at=NOW, is_first=True
        )
    assert (await take(desk))[1] is Refused.RUNNING
    assert (await take(desk, fingerprint=b"g" * 32))[1] is Refused.OTHER_BODY
    assert isinstance((await take(desk, tenant_id=OTHER_TENANT))[1], Held)
    assert isinstance((await take(desk, place=b"q" * 32))[1], Held)


async def test_of_many_askers_one_holds_it(desk: Desk) -> None:
    came = await asyncio.gather(*(take(desk) for _ in range(20)))
    assert [isinstance(one, Held) for _, one in came].count(True) == 1
    assert [one for _, one in came].count(Refused.RUNNING) == 19


async def test_who_takes_a_dead_ones_place_has_its_seed_its_instant_and_its_actor(desk: Desk) -> None:
    first, _ = await take(desk)
    second = asking(now=LATER, until=LATER + MINUTE, seed=b"t" * 32, actor="key:2")
    for _ in range(2):
        held = await desk.write(store.idempotency.take, second)
        assert held == Held(id=first, seed=b"s" * 32, actor="key:1", began_at=NOW, is_first=False)
    assert (await take(desk, now=LATER + SECOND))[1] is Refused.RUNNING
    assert await desk.write(store.idempotency.finish, first, first, ANSWER) is False
    await desk.write(store.idempotency.give_back, first, first, now=LATER, forget=True)
    assert await desk.write(store.idempotency.finish, first, second.id, ANSWER) is True
    assert (await take(desk, now=LATER))[1] == ANSWER


async def test_an_answer_is_kept_once_in_as_many_pieces_as_it_needs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "PIECE", 100)
    it, _ = await take(desk)
    for _ in range(2):
        assert await desk.write(store.idempotency.finish, it, it, ANSWER) is True
    assert len(await desk.rows(idempotency_pieces)) == 2
    assert (await take(desk))[1] == ANSWER
    assert (await take(desk, fingerprint=b"g" * 32))[1] is Refused.OTHER_BODY
    await desk.write(store.idempotency.give_back, it, it, now=NOW, forget=True)
    assert (await take(desk))[1] == ANSWER, "what is answered is not forgotten"


async def test_an_empty_answer_is_one(desk: Desk) -> None:
    it, _ = await take(desk)
    empty = Answered(status=202, headers="{}", body=b"")
    assert await desk.write(store.idempotency.finish, it, it, empty) is True
    assert (await take(desk))[1] == empty


async def test_what_is_given_back_is_free_at_once_and_what_is_forgotten_is_new(desk: Desk) -> None:
    it, _ = await take(desk)
    await desk.write(store.idempotency.give_back, it, it, now=NOW, forget=False)
    second, held = await take(desk)
    assert (held.id, held.is_first) == (it, False)
    await desk.write(store.idempotency.give_back, it, second, now=NOW, forget=True)
    third, held = await take(desk, seed=b"u" * 32, fingerprint=b"g" * 32)
    assert (held.id, held.seed, held.is_first) == (third, b"u" * 32, True)


async def test_after_a_day_a_key_is_new_unless_somebody_is_at_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "PIECE", 100)
    tomorrow = NOW + idempotency.KEPT
    it, _ = await take(desk, until=tomorrow + HOUR)
    assert (await take(desk, now=tomorrow))[1] is Refused.RUNNING
    await desk.write(store.idempotency.finish, it, it, ANSWER)
    assert (await take(desk, now=tomorrow - SECOND))[1] == ANSWER
    mine, held = await take(desk, now=tomorrow, until=tomorrow + MINUTE, fingerprint=b"g" * 32)
    assert (held.id, held.is_first) == (mine, True)
    assert await desk.rows(idempotency_pieces) == []


def _id(at: Any) -> UUID:
    return uuid7(int(at.timestamp() * 1000) << 12, 5)


async def test_old_answers_are_swept_with_their_pieces_and_young_ones_and_held_ones_stay(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "PIECE", 100)
    old = NOW - idempotency.KEPT - HOUR
    gone, _ = await take(desk, id=_id(old), now=old, until=old + MINUTE, place=b"1" * 32)
    held, _ = await take(desk, id=_id(old + SECOND), now=old, until=NOW + MINUTE, place=b"2" * 32)
    young, _ = await take(desk, id=_id(NOW - HOUR), now=NOW - HOUR, until=NOW - HOUR + MINUTE, place=b"3" * 32)
    for one in (gone, young):
        await desk.write(store.idempotency.finish, one, one, ANSWER)
    keep = timedelta(days=90)
    swept = await desk.write(retention.answered, now=NOW, keep=keep, limit=100, past=None)
    assert swept == Swept(1)
    assert {row.id for row in await desk.rows(idempotency_keys)} == {held, young}
    assert {row.key_id for row in await desk.rows(idempotency_pieces)} == {young}


@pytest.mark.parametrize("fate", [Commit.SWALLOWED, Commit.DROPPED])
async def test_a_commit_without_an_answer_changes_nothing_of_this(server_desk: Desk, fate: Commit) -> None:
    async with Proxy.before(server_desk.url) as proxy, desks.opened(proxy.url) as through:
        await through.read(store.tenants.has_keys)
        for number in range(10):
            me = asking(place=bytes([number]) * 32)
            proxy.next_commit = fate
            held = await through.write(store.idempotency.take, me)
            assert held == Held(id=me.id, seed=me.seed, actor="key:1", began_at=NOW, is_first=True)
            proxy.next_commit = fate
            assert await through.write(store.idempotency.finish, me.id, me.id, ANSWER) is True
            assert (await take(server_desk, place=bytes([number]) * 32))[1] == ANSWER
        assert proxy.commits_lost == 20
