"""A webhook's `body_template`: filled in when the delivery is made, refused by its place, the same bytes in every attempt."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from campana import store
from campana.operations import rendering
from tests.api import site
from tests.api.site import Site, pointers, wanted

URL = "https://example.com/hook"


def hook(template: Any, **said: Any) -> dict[str, Any]:
    return wanted(channel="webhook", target={"url": URL, "body_template": template}) | said


async def kept(here: Site, delivery_id: str) -> bytes | None:
    row = await here.house.office.database.read(store.deliveries.get, here.tenants["default"], UUID(delivery_id))
    assert row is not None
    body: bytes | None = row.payload
    return body


async def test_a_template_is_filled_in_from_the_delivery_its_time_its_recipient_and_its_payload(
    here: Site, client: httpx2.AsyncClient
) -> None:
    template = {
        "text": "Hello {{ payload.name | upper }}, at {{ nominal.local | time }}",
        "when": ["{{ nominal.utc }}", "{{ nominal.local }}", "{{ nominal.timezone }}"],
        "who": "{{ recipient.key }}",
        "lines": "{{ payload.lines }}",
        "it": "{{ delivery }}",
        "variables": "{{ variables }}",
    }
    said = hook(
        template,
        payload={"name": 'anna "x" {{ delivery.id }}', "lines": [1, {"é": None}]},
        recipient="user-42",
        at="2199-06-01T09:00",
        timezone="America/New_York",
        expires_after="2h",
        dedupe_key="k",
        labels={"team": "billing"},
    )
    answer = await client.post("/v1/deliveries", json=said)
    assert answer.status_code == 201, answer.text
    shown = answer.json()
    due = "2199-06-01T13:00:00Z"
    body = {
        "text": 'Hello ANNA "X" {{ DELIVERY.ID }}, at 09:00',
        "when": [due, "2199-06-01T09:00:00-04:00", "America/New_York"],
        "who": "user-42",
        "lines": [1, {"é": None}],
        "it": {
            "id": shown["id"],
            "delivery_key": shown["delivery_key"],
            "channel": "webhook",
            "dedupe_key": "k",
            "labels": {"team": "billing"},
            "priority": "normal",
            "scheduled_for": due,
            "due_at": due,
            "expires_at": "2199-06-01T15:00:00Z",
            "created_at": shown["created_at"],
        },
        "variables": {},
    }
    assert shown["target"]["body_template"] == template
    assert shown["payload"] == body
    assert await kept(here, shown["id"]) == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


async def test_all_faults_of_a_template_are_told_with_those_of_the_rest(here: Site, client: httpx2.AsyncClient) -> None:
    template = {"a": "{{ nobody }}", "b~/": ["{{ payload | shout }}", "{{ delivery.secret }}"], "c": "{{"}
    answer = await client.post("/v1/deliveries", json=hook(template, at="yesterday", priority=1))
    assert pointers(answer) == {
        ("/target/body_template/a", "unknown_path"),
        ("/target/body_template/b~0~1/0", "unknown_filter"),
        ("/target/body_template/b~0~1/1", "unknown_path"),
        ("/target/body_template/c", "template_syntax"),
        ("/at", "instant"),
        ("/priority", "not_one_of"),
    }
    assert await here.count() == 0


async def test_data_that_a_template_needs_and_does_not_get_is_told_when_it_is_posted(client: httpx2.AsyncClient) -> None:
    template = {"a": "{{ payload.name }}", "b": "{{ variables.x }}", "c": "{{ payload.b | default:'fine' }}"}
    missing = {("/target/body_template/a", "missing_value"), ("/target/body_template/b", "missing_value")}
    assert pointers(await client.post("/v1/deliveries", json=hook(template, payload={}))) == missing
    assert pointers(await client.post("/v1/deliveries", json=hook(template))) == missing
    mixed = await client.post("/v1/deliveries", json=hook(template, at="2020-01-01T00:00:00Z", project="none"))
    assert pointers(mixed) == missing | {("/at", "at_in_past"), ("/project", "unknown_project")}
    nowhere = hook("{{ nominal.local }}", timezone="Mars/Base")
    assert pointers(await client.post("/v1/deliveries", json=nowhere)) == {("/timezone", "unknown_timezone")}
    # What could not be read is blamed once, and not again as something that is missing.
    unread = hook("{{ recipient.key | upper }}", recipient=17)
    assert pointers(await client.post("/v1/deliveries", json=unread)) == {("/recipient", "wrong_type")}


@pytest.mark.parametrize(
    ("target", "pointer", "code"),
    [
        ({"body_template": None}, "/target/body_template", "required"),
        ({"body_template": {}, "body": "x"}, "/target/body", "conflict"),
        ({"body_template": {}, "method": "GET"}, "/target/body_template", "conflict"),
        ({"body_template": "{{ payload.big }}{{ payload.big }}"}, "/target/body_template", "too_large"),
    ],
)
async def test_a_template_that_can_not_be_sent_is_refused(
    client: httpx2.AsyncClient, target: dict[str, Any], pointer: str, code: str
) -> None:
    said = wanted(channel="webhook", target={"url": URL} | target, payload={"big": "x" * 200_000})
    assert pointers(await client.post("/v1/deliveries", json=said)) == {(pointer, code)}


async def test_other_channels_have_no_template(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(target={"body_template": "{{ x }}"}))
    assert pointers(answer) == {("/target/body_template", "unknown_field")}


async def test_in_a_batch_a_bad_template_harms_no_other(client: httpx2.AsyncClient) -> None:
    items = [
        hook("{{ payload.n }}", payload={"n": 1}),
        hook("{{ payload.m }}", payload={}),
        hook({"n": "{{ payload }}"}, payload=2),
    ]
    results = (await client.post("/v1/deliveries/batch", json=items)).json()["items"]
    assert [one["status"] for one in results] == [201, 422, 201]
    assert [one["delivery"]["payload"] for one in results if "delivery" in one] == [1, {"n": 2}]
    assert results[1]["error"]["errors"][0]["pointer"] == "/target/body_template"


async def test_a_small_batch_does_not_become_a_large_house(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering.Room.__init__, "__kwdefaults__", {"left": 2_500})
    items = [hook("{{ payload }}" * 10, payload="x" * 100)] * 4
    results = (await client.post("/v1/deliveries/batch", json=items)).json()["items"]
    assert [one["status"] for one in results] == [201, 201, 422, 422]
    assert results[2]["error"]["errors"][0]["code"] == "too_large"


async def test_every_attempt_sends_the_rendered_bytes(tmp_path: Path) -> None:
    """The first answer is 500, the second 200; the payload is data, and never sent by itself."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        assert b"content-type: application/json" in head.lower()
        heard.append(await reader.readexactly(size))
        status = b"500 No" if len(heard) == 1 else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    await site.prepare(tmp_path)
    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        site.open_site(tmp_path, with_engine=True) as here,
    ):
        client = await here.client()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        said = hook(
            {"hello": "{{ payload.name }}", "id": "{{ delivery.id }}"}, payload={"name": "é"}, at=None, retry={"base": "1ms"}
        )
        made = (await client.post("/v1/deliveries", json=said | {"target": said["target"] | {"url": url}})).json()
        async with asyncio.timeout(60):
            while (await client.get(f"/v1/deliveries/{made['id']}")).json()["status"] != "completed":
                pass
    assert heard == [json.dumps({"hello": "é", "id": made["id"]}, ensure_ascii=False, separators=(",", ":")).encode()] * 2
