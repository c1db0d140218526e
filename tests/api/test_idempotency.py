"""Requests under an idempotency key: carried out once, whatever is lost, whoever dies, however many send them at once."""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from sqlalchemy import select

from campana import store
from campana.domain.deliveries import State
from campana.errors import TooManyLiveError, UnavailableError
from campana.operations import deliveries as operations
from campana.store import migrate
from campana.store.schema import events, idempotency_keys, idempotency_pieces, verdicts
from tests import databases
from tests.api import site
from tests.api.site import NDJSON, Site, wanted

PATH = "/v1/deliveries"
KEY = {"idempotency-key": "one"}


@pytest.fixture
async def anywhere(database_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    """The API on each kind of database."""
    await migrate.upgrade(database_url)
    databases.clear(database_url, keep=("alembic_version", "campana_schema", "campana_migration_lock"))
    async with site.open_site(tmp_path, database_url) as opened:
        yield opened


async def rows(here: Site, table: Any) -> list[Any]:
    return await here.house.office.database.read(lambda connection: list(connection.execute(select(table))))


async def change(here: Site, **values: Any) -> None:
    await here.house.office.database.write(lambda connection: connection.execute(idempotency_keys.update().values(**values)))


async def a_minute_passes(here: Site) -> None:
    """Every hold is over."""
    await change(here, held_until=here.now - timedelta(seconds=1))


def dies(monkeypatch: pytest.MonkeyPatch, here: Site, *at: Any) -> list[Any]:
    """From now on the process dies at these store functions, and can't tidy up; return what it died at."""
    died: list[Any] = []
    write = here.house.office.database.write

    async def dying(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if died or function in at:
            died.append(function)
            raise UnavailableError
        return await write(function, *args, **kwargs)

    monkeypatch.setattr(here.house.office.database, "write", dying)
    return died


def parts(answer: httpx2.Response) -> tuple[int, bytes, str | None, str | None]:
    return answer.status_code, answer.content, answer.headers.get("location"), answer.headers.get("content-type")


async def test_the_same_request_is_answered_as_the_first_time_and_done_once(anywhere: Site) -> None:
    client = await anywhere.client()
    first = await client.post(PATH, json=wanted(payload={"a": 1, "b": 2}), headers=KEY)
    second = await client.post(PATH, json=wanted(payload={"b": 2, "a": 1}), headers={"idempotency-key": '"one"'})

    assert first.status_code == 201
    assert parts(second) == parts(first)
    assert (first.headers.get("idempotency-replayed"), second.headers["idempotency-replayed"]) == (None, "true")
    assert await anywhere.count() == 1
    assert len(await rows(anywhere, events)) == 1
    plain = await client.post(PATH, json=wanted(payload={"a": 1, "b": 2}))
    assert plain.json()["id"] != first.json()["id"]
    assert len(await rows(anywhere, idempotency_keys)) == 1, "only a request with a key pays for it"


async def test_another_body_under_the_key_is_refused(anywhere: Site) -> None:
    client = await anywhere.client()
    await client.post(PATH, json=wanted(payload=1), headers=KEY)

    for other in (wanted(payload=2), wanted(payload="1"), wanted(), wanted(payload=1.0)):
        answer = await client.post(PATH, json=other, headers=KEY)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert await anywhere.count() == 1


async def test_of_many_at_once_one_is_carried_out_and_the_others_hear_so(anywhere: Site) -> None:
    client = await anywhere.client()
    answers = await asyncio.gather(*(client.post(PATH, json=wanted(), headers=KEY) for _ in range(12)))

    done = [answer for answer in answers if answer.status_code == 201]
    waiting = [answer for answer in answers if answer.status_code != 201]
    assert done
    assert len({answer.content for answer in done}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in done) == 1
    for answer in waiting:
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_progress")
        assert answer.headers["retry-after"] == "1"
    again = await client.post(PATH, json=wanted(), headers=KEY)
    assert parts(again) == parts(done[0]), "it always resolves"
    assert await anywhere.count() == 1


async def test_a_crash_before_the_work_leaves_nothing_and_the_repeat_does_it_once(
    anywhere: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await anywhere.client()
    await client.get(PATH)
    with monkeypatch.context() as dead:
        dies(dead, anywhere, store.deliveries.enter)
        assert (await client.post(PATH, json=wanted(), headers=KEY)).status_code == 503

    assert (await client.post(PATH, json=wanted(), headers=KEY)).status_code == 409
    await a_minute_passes(anywhere)
    done = await client.post(PATH, json=wanted(), headers=KEY)
    assert done.status_code == 201
    assert parts(await client.post(PATH, json=wanted(), headers=KEY)) == parts(done)
    assert await anywhere.count() == 1


async def test_a_crash_after_the_work_makes_no_second_delivery(anywhere: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await anywhere.client()
    with monkeypatch.context() as dead:
        died = dies(dead, anywhere, store.idempotency.finish)
        first = await client.post(PATH, json=wanted(), headers=KEY)
    assert died == [store.idempotency.finish]
    assert await anywhere.count() == 1

    assert (await client.post(PATH, json=wanted(), headers=KEY)).status_code == 409
    await a_minute_passes(anywhere)
    again = await client.post(PATH, json=wanted(), headers=KEY)

    assert parts(again) == parts(first)
    assert await anywhere.count() == 1
    assert len(await rows(anywhere, events)) == 1


async def test_who_takes_over_while_the_first_is_only_slow_does_the_same(anywhere: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await anywhere.client()
    reached, go_on = asyncio.Event(), asyncio.Event()
    write = anywhere.house.office.database.write

    async def slow(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function is store.deliveries.enter and not reached.is_set():
            reached.set()
            await go_on.wait()
        return await write(function, *args, **kwargs)

    monkeypatch.setattr(anywhere.house.office.database, "write", slow)
    first = asyncio.create_task(client.post(PATH, json=wanted(), headers=KEY))
    await reached.wait()
    await a_minute_passes(anywhere)
    second = await client.post(PATH, json=wanted(), headers=KEY)
    go_on.set()

    assert parts(await first) == parts(second)
    assert second.status_code == 201
    assert await anywhere.count() == 1


async def test_a_batch_that_died_in_the_middle_is_carried_on(anywhere: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_CHUNK", 2)
    client = await anywhere.client()
    items = [wanted(payload=0), wanted(project="later"), wanted(payload=2), {}, wanted(payload=4), wanted(dedupe_key="k")]
    await client.get(PATH)
    write, calls = anywhere.house.office.database.write, []

    async def fails_at_the_second(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is store.deliveries.enter:
            calls.append(args)
            if len(calls) == 2:
                raise UnavailableError
        return await write(function, *args, **kwargs)

    with monkeypatch.context() as away:
        away.setattr(anywhere.house.office.database, "write", fails_at_the_second)
        first = (await client.post(f"{PATH}/batch", json=items, headers=KEY)).json()["items"]
    assert [item["status"] for item in first] == [201, 422, 503, 422, 201, 201]

    await anywhere.project("default", "later")
    second = (await client.post(f"{PATH}/batch", json=items, headers=KEY)).json()["items"]
    third = await client.post(f"{PATH}/batch", json=items, headers=KEY)

    assert [item["status"] for item in second] == [201, 201, 201, 422, 201, 201]
    for place in (0, 4, 5):
        assert second[place] == first[place]
    assert third.json()["items"] == second
    assert third.headers["idempotency-replayed"] == "true"
    assert await anywhere.count() == 5


async def test_a_batch_in_lines_is_kept_too_however_long(anywhere: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.idempotency, "PIECE", 100)
    client = await anywhere.client()
    content = b"\n".join([*(json.dumps(wanted(payload=number)).encode() for number in range(30)), b"{"])
    headers = KEY | {"content-type": NDJSON}

    first = await client.post(f"{PATH}/batch", content=content, headers=headers)
    second = await client.post(f"{PATH}/batch", content=content.replace(b": ", b":"), headers=headers)

    assert [json.loads(line)["status"] for line in first.content.splitlines()] == [201] * 30 + [422]
    assert parts(second) == parts(first)
    assert second.headers["idempotency-replayed"] == "true"
    assert len(await rows(anywhere, idempotency_pieces)) > 1
    assert await anywhere.count() == 30


@pytest.mark.slow
async def test_an_answer_longer_than_a_packet_is_kept_too(anywhere: Site) -> None:
    client = await anywhere.client()
    dice = random.Random(1)
    items = [wanted(payload=dice.randbytes(95_000).hex()) for _ in range(130)]

    first, second = [await client.post(f"{PATH}/batch", json=items, headers=KEY) for _ in range(2)]

    assert len(first.content) > 16 << 20
    assert second.headers["idempotency-replayed"] == "true"
    assert parts(second) == parts(first)
    assert await anywhere.count() == 130


ACTS: list[tuple[str, Any, int]] = [
    ("redrive", None, State.DEAD_LETTER),
    ("discard", None, State.DEAD_LETTER),
    ("resolve", {"effect": "sent"}, State.DEAD_LETTER),
    ("resolve", {"effect": "not_sent"}, State.DEAD_LETTER),
    ("reschedule", {"at": "2198-01-01T00:00:00Z"}, State.SCHEDULED),
    ("cancel", None, State.SCHEDULED),
]


@pytest.mark.parametrize(("act", "body", "state"), ACTS, ids=str)
async def test_an_act_whose_answer_was_lost_is_not_done_again(
    anywhere: Site, monkeypatch: pytest.MonkeyPatch, act: str, body: Any, state: int
) -> None:
    client, other = await anywhere.client(), await anywhere.client()
    made = (await client.post(PATH, json=wanted())).json()["id"]
    await anywhere.force(made, state=int(state), ambiguous_attempts=1)
    path = f"{PATH}/{made}/{act}"
    with monkeypatch.context() as dead:
        dies(dead, anywhere, store.idempotency.finish)
        first = await client.post(path, json=body, headers=KEY)
    assert first.status_code == 200, first.text
    await a_minute_passes(anywhere)

    again = await other.post(path, json=body, headers=KEY)

    assert again.status_code == 200, again.text
    assert again.json()["status"] == first.json()["status"]
    assert len(await rows(anywhere, verdicts)) == 1
    replayed = await client.post(path, json=body, headers=KEY)
    assert parts(replayed) == parts(again)
    assert replayed.headers["idempotency-replayed"] == "true"


async def test_what_is_begun_for_many_is_begun_once(anywhere: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await anywhere.client()
    for act in ("redrive", "discard", "cancel"):
        path, body = f"{PATH}/{act}", {"channel": "log"}
        with monkeypatch.context() as dead:
            dies(dead, anywhere, store.idempotency.finish)
            first = await client.post(path, json=body, headers=KEY)
        await a_minute_passes(anywhere)
        assert parts(await client.post(path, json=body, headers=KEY)) == parts(first)
        stopped = [await client.post(f"{first.headers['location']}/cancel", headers=KEY) for _ in range(2)]
        assert [answer.status_code for answer in stopped] == [200, 200]
        assert parts(stopped[0]) == parts(stopped[1])
    assert len(await rows(anywhere, store.schema.operations)) == 3


async def test_a_release_whose_answer_was_lost_says_again_that_it_released(
    anywhere: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, narrow = await anywhere.client(scopes="owner installation"), await anywhere.client()
    await client.put("/v1/switches/all/hold", json={"off": True})
    with monkeypatch.context() as dead:
        dies(dead, anywhere, store.idempotency.finish)
        first = await client.post("/v1/engine/release", headers=KEY)
    await a_minute_passes(anywhere)

    assert first.json() == (await client.post("/v1/engine/release", headers=KEY)).json() == {"released": True}
    assert (await client.post("/v1/engine/release")).json() == {"released": False}
    assert (await narrow.post("/v1/engine/release", headers=KEY)).status_code == 403


async def test_tenants_and_projects_have_keys_of_their_own(anywhere: Site) -> None:
    owner, stranger = await anywhere.client(), await anywhere.client(tenant="other")
    insider, neighbour = await anywhere.client(project="side"), await anywhere.client(project="beside")
    answers = [await client.post(PATH, json=wanted(), headers=KEY) for client in (owner, stranger, insider, neighbour)]

    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 4
    assert all("idempotency-replayed" not in answer.headers for answer in answers)
    other_body = [await client.post(PATH, json=wanted(payload=1), headers=KEY) for client in (stranger, insider)]
    assert {answer.status_code for answer in other_body} == {422}


async def test_a_key_belongs_to_one_method_and_path(here: Site, client: httpx2.AsyncClient) -> None:
    one, two = [(await client.post(PATH, json=wanted())).json()["id"] for _ in range(2)]

    answers = [await client.post(f"{PATH}/{it}/{act}", headers=KEY) for it in (one, two) for act in ("cancel", "discard")]

    assert [answer.status_code for answer in answers] == [200, 409, 200, 409]
    assert all("idempotency-replayed" not in answer.headers for answer in answers)
    put = [await client.put("/v1/switches/tenant", json={"off": off}, headers=KEY) for off in (True, False)]
    assert [answer.json()["off"] for answer in put] == [True, False], "a PUT is repeatable by itself"


async def test_whoever_may_not_do_it_hears_so_and_never_the_answer(here: Site, client: httpx2.AsyncClient) -> None:
    await client.post(PATH, json=wanted(), headers=KEY)

    reader, nobody = await here.client(scopes="read"), await here.bare()
    assert (await reader.post(PATH, json=wanted(), headers=KEY)).status_code == 403
    assert (await nobody.post(PATH, json=wanted(), headers=KEY)).status_code == 401


REFUSED: list[tuple[str, Any, int]] = [
    (PATH, wanted(channel="pigeon"), 422),
    (PATH, [1], 422),
    (f"{PATH}/0199f0c2-5b6e-7d3a-9c1f-2a4b6c8d0e1f/cancel", None, 404),
    (f"{PATH}/cancel", {}, 422),
    (f"{PATH}/batch", {}, 422),
    ("/v1/engine/release", None, 403),
]


@pytest.mark.parametrize(("path", "body", "status"), REFUSED, ids=lambda one: str(one)[:40])
async def test_what_was_refused_leaves_the_key_unused(
    here: Site, client: httpx2.AsyncClient, path: str, body: Any, status: int
) -> None:
    for _ in range(2):
        answer = await client.post(path, json=body, headers=KEY)
        assert answer.status_code == status
        assert "idempotency-replayed" not in answer.headers
    assert await rows(here, idempotency_keys) == []


async def test_a_full_tenant_leaves_the_key_unused(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> None:
        raise TooManyLiveError("full")

    with monkeypatch.context() as crowd:
        crowd.setattr("campana.operations.ceiling.admit", full)
        assert (await client.post(PATH, json=wanted(), headers=KEY)).status_code == 429
    assert (await client.post(PATH, json=wanted(payload=2), headers=KEY)).status_code == 201
    assert await here.count() == 1


async def test_what_repeats_a_dead_one_and_is_refused_forgets_nothing(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> None:
        raise TooManyLiveError("full")

    with monkeypatch.context() as dead:
        dies(dead, here, store.idempotency.finish)
        first = await client.post(PATH, json=wanted(), headers=KEY)
    await a_minute_passes(here)
    with monkeypatch.context() as crowd:
        crowd.setattr("campana.operations.ceiling.admit", full)
        assert (await client.post(PATH, json=wanted(), headers=KEY)).status_code == 429
    assert parts(await client.post(PATH, json=wanted(), headers=KEY)) == parts(first)
    assert await here.count() == 1


async def test_a_refusal_by_the_deliverys_state_is_an_answer_and_kept(here: Site, client: httpx2.AsyncClient) -> None:
    made = (await client.post(PATH, json=wanted())).json()["id"]
    first = await client.post(f"{PATH}/{made}/redrive", headers=KEY)
    await here.force(made, state=int(State.DEAD_LETTER))

    second = await client.post(f"{PATH}/{made}/redrive", headers=KEY)

    assert (first.status_code, parts(second)) == (409, parts(first))
    assert second.headers["idempotency-replayed"] == "true"


async def test_an_answer_is_given_again_for_a_day_and_no_longer(here: Site, client: httpx2.AsyncClient) -> None:
    first = await client.post(PATH, json=wanted(), headers=KEY)
    await change(here, created_at=here.now - timedelta(hours=23, minutes=59), held_until=here.now - timedelta(hours=23))
    assert (await client.post(PATH, json=wanted(), headers=KEY)).content == first.content

    await change(here, created_at=here.now - timedelta(hours=24))
    second = await client.post(PATH, json=wanted(payload=2), headers=KEY)
    assert (second.status_code, await here.count()) == (201, 2)


@pytest.mark.parametrize("key", ["x", "é", "a b", "a" * 255, '"' + "a" * 255 + '"', '"a\\"b\\\\"', "8e03978e-40d5", 'a"b', "{}"])
async def test_a_key_is_any_printable_text(client: httpx2.AsyncClient, key: str) -> None:
    answer = await client.post(PATH, json=wanted(), headers={b"idempotency-key": key.encode()})
    assert answer.status_code == (400 if key == "é" else 201)


@pytest.mark.parametrize("key", ["", '""', "a" * 256, '"' + "a" * 256 + '"', '"a', '"a"b"', '"a";p=1', "a\tb", '"a\\b"'])
async def test_a_key_that_is_none_is_refused_and_nothing_is_done(here: Site, client: httpx2.AsyncClient, key: str) -> None:
    answer = await client.post(PATH, json=wanted(), headers={b"idempotency-key": key.encode()})
    assert (answer.status_code, answer.json()["code"]) == (400, "unreadable")
    twice = await client.post(PATH, json=wanted(), headers=[("idempotency-key", "a"), ("idempotency-key", "a")])
    assert (twice.status_code, await here.count()) == (400, 0)


async def test_an_answer_can_not_be_read_in_the_database(here: Site, client: httpx2.AsyncClient) -> None:
    for payload in ("not for everybody", "not for everybody" * 5_000):
        key = {"idempotency-key": str(len(payload))}
        first, second = [await client.post(PATH, json=wanted(payload=payload), headers=key) for _ in range(2)]
        assert parts(first) == parts(second)
    kept = [row.body for row in await rows(here, idempotency_keys)]
    assert len(kept) == 2
    for body in kept:
        assert b"everybody" not in body
        with pytest.raises(zlib.error):
            zlib.decompress(body)


async def test_an_answer_kept_under_another_secret_is_refused_and_nothing_is_done_again(
    here: Site, client: httpx2.AsyncClient
) -> None:
    await client.post(PATH, json=wanted(), headers=KEY)
    await change(here, seed=b"x" * 32)

    answer = await client.post(PATH, json=wanted(), headers=KEY)

    assert (answer.status_code, answer.json()["code"], await here.count()) == (422, "idempotency_key_reused", 1)


async def test_ids_made_under_a_key_follow_those_made_before(here: Site, client: httpx2.AsyncClient) -> None:
    before = (await client.post(PATH, json=wanted())).json()["id"]
    items = (await client.post(f"{PATH}/batch", json=[wanted()] * 50, headers=KEY)).json()["items"]
    made = [UUID(item["delivery"]["id"]) for item in items]

    assert made == sorted(made)
    assert UUID(before) < made[0]
    assert {one.version for one in made} == {7}
    assert len({one.int & (1 << 62) - 1 for one in made}) == 50, "nobody can guess one from another"
