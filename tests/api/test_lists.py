"""Lists: pages in a stable order, cursors that are nobody else's, and filters that are read strictly."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import Any
from uuid import UUID

import httpx2
import pytest
from sqlalchemy import Engine, event

from campana.domain.deliveries import State
from campana.operations import deliveries
from tests.api.site import Site, pointers, wanted


async def make(client: httpx2.AsyncClient, *said: dict[str, Any]) -> list[str]:
    answer = await client.post("/v1/deliveries/batch", json=[wanted(**one) for one in said])
    return [item["delivery"]["id"] for item in answer.json()["items"]]


async def ids(client: httpx2.AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"/v1/deliveries?{query}")
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


async def test_pages_are_whole_and_in_order_with_the_newest_first(client: httpx2.AsyncClient) -> None:
    made = await make(client, *({} for _ in range(7)))
    seen: list[str] = []
    cursor: str | None = ""
    pages = 0
    while cursor is not None:
        answer = (await client.get(f"/v1/deliveries?limit=3{cursor and '&cursor=' + cursor}")).json()
        seen += [item["id"] for item in answer["items"]]
        cursor, pages = answer["next_cursor"], pages + 1

    assert (seen, pages) == (made[::-1], 3)


async def test_a_page_holds_fifty_unless_said_and_the_last_one_has_no_cursor(client: httpx2.AsyncClient) -> None:
    await make(client, *({} for _ in range(51)))

    page = (await client.get("/v1/deliveries")).json()
    whole = (await client.get("/v1/deliveries?limit=51")).json()

    assert (len(page["items"]), page["next_cursor"] is None) == (50, False)
    assert (len(whole["items"]), whole["next_cursor"]) == (51, None)


@pytest.mark.parametrize(
    "limit", ["0", "501", "1.5", "-1", "", "ten", "1e2", "%2B5", "%D9%A1", "00", "0000000000000499", "1" * 5_000, "1_0", " 5"]
)
async def test_a_limit_is_a_whole_number_from_1_to_500(client: httpx2.AsyncClient, limit: str) -> None:
    assert pointers(await client.get(f"/v1/deliveries?limit={limit}")) == {("/limit", "invalid")}


async def test_a_cursor_is_good_for_its_own_tenant_alone(here: Site, client: httpx2.AsyncClient) -> None:
    await make(client, {}, {})
    cursor = (await client.get("/v1/deliveries?limit=1")).json()["next_cursor"]
    stranger = await here.client(tenant="other")

    assert len(await ids(client, f"cursor={cursor}")) == 1
    assert pointers(await stranger.get(f"/v1/deliveries?cursor={cursor}")) == {("/cursor", "invalid")}


async def test_a_cursor_is_good_for_its_own_filters_alone(here: Site, client: httpx2.AsyncClient) -> None:
    await make(client, {"recipient": "a"}, {"recipient": "a"}, {"recipient": "a"})
    query = "recipient=a&status=scheduled"
    cursor = (await client.get(f"/v1/deliveries?limit=1&{query}")).json()["next_cursor"]

    assert len(await ids(client, f"status=scheduled&cursor={cursor}&recipient=a&limit=2")) == 2, "in any order, of any size"
    for other in ("", "recipient=b&status=scheduled", "recipient=a", f"{query}&channel=log", f"{query}&status=completed"):
        assert pointers(await client.get(f"/v1/deliveries?{other}&cursor={cursor}")) == {("/cursor", "invalid")}


async def test_what_matches_rarely_is_found_in_steps_and_a_page_says_how_to_go_on(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, *_ = await make(client, {"recipient": "rare"}, *({} for _ in range(40)))
    monkeypatch.setattr(deliveries, "FIRST_STEP", 2)
    monkeypatch.setattr(deliveries, "LAST_STEP", 4)
    assert await ids(client, "recipient=rare") == [oldest]

    monkeypatch.setattr(deliveries, "PATIENCE", 1e-6 * 2)
    monkeypatch.setattr(asyncio, "timeout", lambda _: contextlib.nullcontext())
    answer = (await client.get("/v1/deliveries?recipient=rare&limit=5")).json()
    assert answer["items"] == []
    pages = 1
    while answer["next_cursor"] is not None and not answer["items"]:
        answer = (await client.get(f"/v1/deliveries?recipient=rare&limit=5&cursor={answer['next_cursor']}")).json()
        pages += 1
    assert [one["id"] for one in answer["items"]] == [oldest]
    assert pages > 3


async def test_a_list_that_is_not_read_in_time_says_so(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **_more: Any) -> None:
        await asyncio.Event().wait()

    await client.get("/v1/deliveries")
    monkeypatch.setattr(deliveries, "PATIENCE", 0.01)
    monkeypatch.setattr(here.house.office.database, "read", never)
    answer = await client.get("/v1/deliveries?recipient=a")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "narrow it" in answer.json()["detail"]
    assert answer.headers["retry-after"]


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "null", "%00", "a" * 10_000, "é", "01a1f0cd-8042-7000-8264-13b282f135be", base64.b64encode(bytes(24)).decode()],
)
async def test_a_cursor_that_was_not_given_out_is_refused(client: httpx2.AsyncClient, cursor: str) -> None:
    assert pointers(await client.get("/v1/deliveries", params={"cursor": cursor})) == {("/cursor", "invalid")}


async def test_a_forged_cursor_is_refused(client: httpx2.AsyncClient) -> None:
    await make(client, {}, {})
    cursor = (await client.get("/v1/deliveries?limit=1")).json()["next_cursor"]
    bits = bytearray(base64.urlsafe_b64decode(cursor))
    for place in range(len(bits)):
        forged = bytearray(bits)
        forged[place] ^= 1
        answer = await client.get("/v1/deliveries", params={"cursor": base64.urlsafe_b64encode(forged).decode()})
        assert pointers(answer) == {("/cursor", "invalid")}


async def test_each_filter_narrows(here: Site, client: httpx2.AsyncClient) -> None:
    await here.project("default", "side")
    said: list[dict[str, Any]] = [
        {"recipient": "a", "labels": {"team": "x", "kind": "1"}},
        {"channel": "python", "target": {"handler": "h"}, "labels": {"team": "y"}},
        {"dedupe_key": "k%", "project": "side"},
        {"at": "2150-01-01T00:00:00Z"},
    ]
    labelled, python, keyed, early = await make(client, *said)
    await here.force(early, state=int(State.COMPLETED), provider_call_id="call-1")

    assert await ids(client, "recipient=a") == [labelled]
    assert await ids(client, "channel=python") == [python]
    assert await ids(client, "dedupe_key=k%25") == [keyed]
    assert await ids(client, "project=side") == [keyed]
    assert await ids(client, "status=completed") == [early]
    assert await ids(client, "status=completed&status=scheduled") == [early, keyed, python, labelled]
    assert await ids(client, "provider_call_id=call-1") == [early]
    schedule = "0199f0c2-5b6e-7d3a-9c1f-2a4b6c8d0e1f"
    await here.force(python, schedule_id=UUID(schedule))
    assert await ids(client, f"schedule_id={schedule}") == [python]
    assert await ids(client, f"schedule_id={schedule.upper()}") == [python]
    assert await ids(client, "due_to=2199-01-01T00:00:00Z") == [early]
    assert await ids(client, "due_from=2199-01-01T00:00:00%2B00:00&channel=log") == [keyed, labelled]
    assert await ids(client, "due_from=2199-01-01T05:30:00+05:30&channel=log") == [keyed, labelled]
    assert await ids(client, "label.team=x") == [labelled]
    assert await ids(client, "label.team=x&label.kind=2") == []
    assert await ids(client, "recipient=a&channel=python") == []


@pytest.mark.parametrize("piece", ["%", "_", "' or 1=1 --", '"}', '",', "\\", "$.team", "x%00"])
async def test_a_filter_is_a_value_and_never_a_pattern(client: httpx2.AsyncClient, piece: str) -> None:
    await make(client, {"recipient": "abc", "dedupe_key": "abc", "labels": {"team": "abc"}})

    for name in ("recipient", "dedupe_key", "provider_call_id", "channel", "label.team", "label.te%"):
        answer = await client.get("/v1/deliveries", params={name: piece})
        assert answer.status_code == 200, answer.text
        assert answer.json()["items"] == []


async def test_every_fault_of_a_query_is_told_at_once(client: httpx2.AsyncClient) -> None:
    query = "status=lost&limit=0&cursor=x&due_from=soon&due_to=2026-01-01&project=nope&sort=id"
    query += "&schedule_id=x'&recipient=&label.a=%00&label.=x"
    answer = await client.get(f"/v1/deliveries?{query}&channel=a&channel=b&dedupe_key=%00&label.b=1&label.b=2")

    assert pointers(answer) == {
        ("/status", "not_one_of"),
        ("/limit", "invalid"),
        ("/cursor", "invalid"),
        ("/due_from", "invalid"),
        ("/due_to", "invalid"),
        ("/project", "unknown_project"),
        ("/sort", "unknown_field"),
        ("/schedule_id", "invalid"),
        ("/label.", "unknown_field"),
        ("/recipient", "invalid"),
        ("/label.a", "invalid"),
        ("/label.b", "repeated"),
        ("/channel", "repeated"),
        ("/dedupe_key", "invalid"),
    }


@pytest.mark.parametrize(
    "raw", ["recipient=%ED%A0%80", "recipient=%FF", "%FF=1", "recipient=" + "x" * 20_000, "&&&", "a=1&" * 2_000]
)
async def test_no_query_is_an_error_of_ours(client: httpx2.AsyncClient, raw: str) -> None:
    assert (await client.get(f"/v1/deliveries?{raw}")).status_code in (200, 422)


async def test_a_page_costs_the_same_whatever_stands_before_it_and_nothing_is_counted(client: httpx2.AsyncClient) -> None:
    await make(client, *({} for _ in range(9)))
    asked: list[str] = []

    def hear(connection: object, cursor: object, statement: str, *rest: object) -> None:
        del connection, cursor, rest
        asked.append(statement.lower())

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        first = (await client.get("/v1/deliveries?limit=3&status=scheduled")).json()
        await client.get(f"/v1/deliveries?limit=3&cursor={first['next_cursor']}&status=scheduled")
    finally:
        event.remove(Engine, "before_cursor_execute", hear)
    pages = [statement for statement in asked if "from deliveries" in statement]
    assert ["limit" in page for page in pages] == [True] * 4, "for each page the end of what is looked through, and what matches"
    assert all("deliveries.id <" in page for page in pages[2:]), "it goes on after the last id, and passes over nothing"
    assert not any("count(" in statement for statement in asked)
