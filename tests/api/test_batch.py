"""Batches: a result per item in order, one bad item harms no other, and bounds."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import httpx2
import pytest

from campana import store
from campana.errors import UnavailableError
from campana.operations import deliveries
from tests.api.site import NDJSON, Site, wanted


def ndjson(*items: Any) -> bytes:
    return b"\n".join(item if isinstance(item, bytes) else json.dumps(item).encode() for item in items)


async def post_lines(client: httpx2.AsyncClient, content: bytes) -> list[dict[str, Any]]:
    answer = await client.post("/v1/deliveries/batch", content=content, headers={"content-type": NDJSON})
    assert (answer.status_code, answer.headers["content-type"]) == (200, NDJSON), answer.text
    return [json.loads(line) for line in answer.content.splitlines()]


async def test_each_item_has_its_result_in_its_place_and_a_bad_one_harms_no_other(here: Site, client: httpx2.AsyncClient) -> None:
    items = [
        wanted(payload=0),
        wanted(channel="pigeon"),
        wanted(dedupe_key="k", payload=2),
        None,
        wanted(dedupe_key="k", payload=4),
        [wanted()],
        wanted(project="nope"),
        wanted(payload=7),
    ]

    answer = await client.post("/v1/deliveries/batch", json=items)

    results = answer.json()["items"]
    assert answer.status_code == 200
    assert [result["index"] for result in results] == list(range(8))
    assert [result["status"] for result in results] == [201, 422, 201, 422, 200, 422, 422, 201]
    assert [result["delivery"]["payload"] for result in results if "delivery" in result] == [0, 2, 2, 7]
    assert results[4]["delivery"] == results[2]["delivery"] | {"deduplicated": True}
    assert results[1]["error"]["errors"][0]["pointer"] == "/channel"
    assert results[3]["error"]["errors"][0]["pointer"] == ""
    assert all(("error" in result) != ("delivery" in result) for result in results)
    assert await here.count() == 3


async def test_ndjson_is_answered_with_ndjson_and_a_bad_line_harms_no_other(here: Site, client: httpx2.AsyncClient) -> None:
    lines = (wanted(payload=0), b"{not json", b"", b"  \r", wanted(payload=2), b'{"a": 1, "a": 1}', b"\xff", wanted(payload=5))

    results = await post_lines(client, ndjson(*lines) + b"\r\n\n")

    assert [result["index"] for result in results] == list(range(6))
    assert [result["status"] for result in results] == [201, 422, 201, 422, 422, 201]
    assert [result["delivery"]["payload"] for result in results if "delivery" in result] == [0, 2, 5]
    assert results[1]["error"]["errors"][0]["code"] == "unreadable"
    assert results[1]["error"]["errors"][0]["detail"].startswith("the line is not JSON")
    assert await here.count() == 3


async def test_a_line_separator_inside_a_string_is_no_end_of_a_line(client: httpx2.AsyncClient) -> None:
    line = json.dumps(wanted(payload="a\u2028b\x85c"), ensure_ascii=False).encode()

    assert [result["status"] for result in await post_lines(client, line)] == [201]


async def test_nothing_is_answered_with_nothing(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/v1/deliveries/batch", json=[])).json() == {"items": []}
    assert await post_lines(client, b"\n\n") == []


@pytest.mark.parametrize("whole", [{}, {"items": []}, 1, "x", wanted()])
async def test_a_batch_is_a_list(client: httpx2.AsyncClient, whole: Any) -> None:
    answer = await client.post("/v1/deliveries/batch", json=whole)

    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "wrong_type")
    assert answer.json()["detail"] == "expected a list of deliveries"


@pytest.mark.parametrize("form", ["application/json", NDJSON])
async def test_more_than_ten_thousand_items_are_too_many_and_none_is_taken(
    here: Site, client: httpx2.AsyncClient, form: str
) -> None:
    items = [wanted()] * 10_001
    content = json.dumps(items).encode() if form == "application/json" else ndjson(*items)

    answer = await client.post("/v1/deliveries/batch", content=content, headers={"content-type": form})

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert await here.count() == 0


async def test_a_batch_over_32_mebibytes_is_too_large_and_one_of_many_is_not(here: Site, client: httpx2.AsyncClient) -> None:
    line = json.dumps(wanted(payload="x" * 200_000)).encode() + b"\n"
    many = line * ((32 << 20) // len(line))

    assert {result["status"] for result in await post_lines(client, many)} == {201}
    answer = await client.post("/v1/deliveries/batch", content=many + line, headers={"content-type": NDJSON})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert await here.count() == len(many) // len(line)


async def test_a_batch_asks_for_its_projects_once(here: Site, client: httpx2.AsyncClient) -> None:
    await client.get("/v1/deliveries")
    before = here.house.telemetry.counts["store.projects_of"]

    answer = await client.post("/v1/deliveries/batch", json=[wanted(project=f"nope-{number}") for number in range(500)])

    assert {item["status"] for item in answer.json()["items"]} == {422}
    assert here.house.telemetry.counts["store.projects_of"] == before + 1


async def test_what_was_durable_before_the_database_went_away_is_said(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "_CHUNK", 2)
    database, calls = here.house.office.database, []
    write = database.write

    async def fails_at_the_second(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is store.deliveries.enter:
            calls.append(args)
            if len(calls) == 2:
                raise UnavailableError
        return await write(function, *args, **kwargs)

    monkeypatch.setattr(database, "write", fails_at_the_second)
    answer = await client.post("/v1/deliveries/batch", json=[wanted() for _ in range(6)])

    assert [item["status"] for item in answer.json()["items"]] == [201, 201, 503, 503, 201, 201]
    assert await here.count() == 4


async def test_lines_are_answered_as_soon_as_they_are_durable(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "_CHUNK", 2)
    database, calls, go_on = here.house.office.database, [], asyncio.Event()
    write = database.write

    async def waits_at_the_second(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is store.deliveries.enter:
            calls.append(args)
            if len(calls) == 2:
                await go_on.wait()
        return await write(function, *args, **kwargs)

    monkeypatch.setattr(database, "write", waits_at_the_second)
    lines = ndjson(*(wanted(payload=number) for number in range(5)))
    request = client.stream("POST", "/v1/deliveries/batch", content=lines, headers={"content-type": NDJSON})
    async with request as answer, asyncio.timeout(30):
        came = answer.aiter_lines()
        first = [json.loads(await anext(came)) for _ in range(2)]
        assert await here.count() == 2
        go_on.set()
        rest = [json.loads(line) async for line in came]

    assert [one["index"] for one in first + rest] == [0, 1, 2, 3, 4]
    assert [one["delivery"]["payload"] for one in first + rest] == [0, 1, 2, 3, 4]


async def test_lines_of_which_not_the_first_can_be_kept_are_refused_as_a_whole(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **_more: Any) -> Any:
        raise UnavailableError

    await client.get("/v1/deliveries")
    monkeypatch.setattr(deliveries, "_insert", away)
    answer = await client.post("/v1/deliveries/batch", content=ndjson(wanted()), headers={"content-type": NDJSON})

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert await here.count() == 0


@pytest.mark.slow
async def test_ten_thousand_are_taken_in_one_go_and_known_the_second_time(here: Site, client: httpx2.AsyncClient) -> None:
    began = time.monotonic()
    content = ndjson(*(wanted(dedupe_key=str(number), payload={"number": number}) for number in range(10_000)))

    results = await post_lines(client, content)

    logging.getLogger(__name__).info("10,000 in %.2f s", time.monotonic() - began)
    assert [result["status"] for result in results] == [201] * 10_000
    assert [result["delivery"]["payload"]["number"] for result in results] == list(range(10_000))
    assert [result["status"] for result in await post_lines(client, content)] == [200] * 10_000
    assert await here.count() == 10_000
