"""The ledger: exactly one is first, whatever the race; a lease that ends gives the key back; quotas count."""

import asyncio
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.store import schema
from campana.store.ledger import Answer, Claim, Key, Quota
from tests.store.builders import HOUR, MINUTE, NOW, OTHER_TENANT, TENANT, new_id
from tests.store.desk import Desk, hands, until_blocked


def _key(**others: Any) -> Key:
    said = {"tenant_id": TENANT, "entity_type": "MEETING", "entity_id": "m1", "reminder_type": "24h", "user_id": "ann"}
    return Key(**{**said, **others})


def _claims(*keys: Key, held_until: datetime | None = None, delivery_id: UUID | None = None) -> list[Claim]:
    return [Claim(token=new_id(), key=key, held_until=held_until, delivery_id=delivery_id) for key in keys]


async def _claim(desk: Desk, *wanted: Claim, now: datetime = NOW) -> list[Answer]:
    return await desk.write(store.ledger.claim, list(wanted), now=now)


async def test_the_first_claim_of_a_key_is_first_and_every_other_is_told_since_when(desk: Desk) -> None:
    first, second = _claims(_key(), _key())
    assert await _claim(desk, first) == [Answer(first=True, sent_at=NOW)]
    assert await _claim(desk, second, now=NOW + HOUR) == [Answer(first=False, sent_at=NOW)]


async def test_asked_again_with_its_token_a_claim_says_the_same(desk: Desk) -> None:
    (first,) = _claims(_key())
    await _claim(desk, first)
    assert await _claim(desk, first, now=NOW + HOUR) == [Answer(first=True, sent_at=NOW)]


OTHERS: list[dict[str, Any]] = [
    {"tenant_id": OTHER_TENANT},
    {"entity_type": "meeting"},
    {"entity_id": "m1 "},
    {"reminder_type": "1h"},
    {"user_id": "Ann"},
    {"user_id": "😀"},
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
async def test_a_key_is_all_of_its_parts(desk: Desk, other: dict[str, Any]) -> None:
    await _claim(desk, *_claims(_key()))
    assert (await _claim(desk, *_claims(_key(**other))))[0].first


async def test_of_a_batch_each_key_has_one_first(desk: Desk) -> None:
    keys = [_key(entity_id=f"m{number % 60}") for number in range(600)]
    answers = await _claim(desk, *_claims(*keys))
    assert [answer.first for answer in answers] == [number < 60 for number in range(600)]
    assert len(await desk.rows(schema.ledger)) == 60


async def test_a_held_claim_keeps_others_out_until_its_lease_ends(desk: Desk) -> None:
    held, second, third = _claims(_key(), _key(), _key(), held_until=NOW + MINUTE)
    await _claim(desk, held)
    assert await _claim(desk, second, now=NOW + MINUTE / 2) == [Answer(first=False, held_until=NOW + MINUTE)]
    assert (await _claim(desk, third, now=NOW + MINUTE))[0].first
    assert not await desk.write(store.ledger.confirm, held.token, now=NOW + MINUTE)
    assert await desk.write(store.ledger.confirm, third.token, now=NOW + MINUTE)


async def test_a_confirmed_claim_stands_for_good(desk: Desk) -> None:
    held, second = _claims(_key(), _key(), held_until=NOW + MINUTE)
    await _claim(desk, held)
    for _ in range(2):
        assert await desk.write(store.ledger.confirm, held.token, now=NOW + MINUTE)
    assert await _claim(desk, second, now=NOW + HOUR) == [Answer(first=False, sent_at=NOW + MINUTE)]
    assert await desk.write(store.ledger.release, [held.token]) == 0


async def test_what_a_delivery_holds_has_no_lease(desk: Desk) -> None:
    delivery = new_id()
    held, second = _claims(_key(), _key(), delivery_id=delivery)
    await _claim(desk, held)
    assert await _claim(desk, second, now=NOW + 1_000 * HOUR) == [Answer(first=False, delivery_id=delivery)]


async def test_a_claim_given_back_is_there_for_the_next(desk: Desk) -> None:
    held, second = _claims(_key(), _key(), held_until=NOW + MINUTE)
    await _claim(desk, held)
    assert await desk.write(store.ledger.release, [held.token]) == 1
    assert (await _claim(desk, second))[0].first


async def test_of_two_at_once_one_is_first(desk: Desk) -> None:
    mine, yours = _claims(_key(), _key())
    async with hands(desk.url, 1) as (first,):
        assert (await first.do(store.ledger.claim, [mine], now=NOW))[0].first
        claiming = asyncio.create_task(_claim(desk, yours))
        await until_blocked(desk.url)
        await first.commit()
    assert not (await claiming)[0].first


async def test_of_two_that_take_over_at_once_one_is_first(desk: Desk) -> None:
    held, mine, yours = _claims(_key(), _key(), _key(), held_until=NOW + MINUTE)
    await _claim(desk, held)
    async with hands(desk.url, 1) as (first,):
        assert (await first.do(store.ledger.claim, [mine], now=NOW + MINUTE))[0].first
        claiming = asyncio.create_task(_claim(desk, yours, now=NOW + MINUTE / 2))
        await until_blocked(desk.url)
        await first.commit()
    assert not (await claiming)[0].first


# --- quotas


def _quota(**others: Any) -> Quota:
    said = {"tenant_id": TENANT, "name": "voice", "recipient": "ann", "window": "2026-03-01", "most": 2}
    return Quota(**{**said, **others})


async def _take(desk: Desk, quota: Quota, token: UUID | None = None) -> bool:
    return await desk.write(store.ledger.claim_quota, quota, token or new_id(), delivery_id=new_id(), now=NOW)


async def test_a_quota_gives_as_many_places_as_it_has(desk: Desk) -> None:
    assert [await _take(desk, _quota()) for _ in range(3)] == [True, True, False]
    assert await _take(desk, _quota(window="2026-03-02"))
    assert await _take(desk, _quota(recipient="bob"))
    assert await _take(desk, _quota(name="sms"))


async def test_asked_again_a_delivery_keeps_its_place(desk: Desk) -> None:
    token = new_id()
    assert [await _take(desk, _quota(most=1), token) for _ in range(2)] == [True, True]
    assert not await _take(desk, _quota(most=1))


async def test_a_place_given_back_can_be_taken_again_a_confirmed_one_not(desk: Desk) -> None:
    sent, unsent = new_id(), new_id()
    assert await _take(desk, _quota(), sent)
    assert await _take(desk, _quota(), unsent)
    await desk.write(store.ledger.confirm, sent, now=NOW)
    assert await desk.write(store.ledger.release, [sent, unsent]) == 1
    assert [await _take(desk, _quota()) for _ in range(2)] == [True, False]


async def test_two_at_once_take_different_places(desk: Desk) -> None:
    async with hands(desk.url, 1) as (first,):
        assert await first.do(store.ledger.claim_quota, _quota(), new_id(), delivery_id=new_id(), now=NOW)
        taking = asyncio.create_task(_take(desk, _quota()))
        await until_blocked(desk.url)
        await first.commit()
    assert await taking
    assert not await _take(desk, _quota())
