"""Deliveries that are accepted: what is shown, what is the same as before, and what is durable when the answer comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from campana.store import migrate
from tests import databases
from tests.api import site
from tests.api.site import Site, wanted


@pytest.fixture
async def anywhere(database_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    """The API on each kind of database."""
    await migrate.upgrade(database_url)
    databases.clear(database_url, keep=("alembic_version", "campana_schema", "campana_migration_lock"))
    async with site.open_site(tmp_path, database_url) as opened:
        yield opened


async def test_what_was_posted_is_shown_with_what_was_resolved(client: httpx2.AsyncClient) -> None:
    said = wanted(
        channel="webhook",
        target={"url": "https://example.com/hook", "method": "PUT", "headers": {"X-Team": "a"}},
        payload={"invoice": 17, "lines": [1.5, None, "é"]},
        recipient="user-42",
        dedupe_key="invoice-17-due",
        labels={"team": "billing"},
        priority="urgent",
        project="default",
    )

    answer = await client.post("/v1/deliveries", json=said)

    assert answer.status_code == 201
    shown = answer.json()
    assert {name: shown[name] for name in said if name != "at"} == {name: said[name] for name in said if name != "at"}
    assert shown["due_at"] == shown["scheduled_for"] == said["at"]
    assert (shown["status"], shown["attempt_count"], shown["max_attempts"]) == ("scheduled", 0, 3)
    assert shown["idempotency_key"].startswith(f"{shown['id']}-1-")
    assert "deduplicated" not in shown
    assert answer.headers["location"] == f"/v1/deliveries/{shown['id']}"
    assert (await client.get(answer.headers["location"])).json() == shown | {"attempts": []}
    assert (await client.get(f"/v1/deliveries/{shown['id']}/attempts")).json() == {"items": [], "next_cursor": None}
    assert (await client.get("/v1/deliveries")).json()["items"] == [shown]


async def test_a_known_dedupe_key_answers_with_the_delivery_that_holds_it(anywhere: Site) -> None:
    client = await anywhere.client()
    first = await client.post("/v1/deliveries", json=wanted(dedupe_key="k", payload=1))
    second = await client.post("/v1/deliveries", json=wanted(dedupe_key="k", payload=2))

    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json() | {"deduplicated": True}
    assert second.headers["location"] == first.headers["location"]
    assert await anywhere.count() == 1


async def test_a_dedupe_key_taken_in_parallel_makes_one_delivery(anywhere: Site) -> None:
    client = await anywhere.client()
    answers = await asyncio.gather(
        *(client.post("/v1/deliveries", json=wanted(dedupe_key="k", payload=number)) for number in range(12)),
        *(client.post("/v1/deliveries/batch", json=[wanted(dedupe_key="k"), wanted(dedupe_key="l")]) for _ in range(4)),
    )

    singles, batches = answers[:12], [answer.json()["items"] for answer in answers[12:]]
    shown = [answer.json() for answer in singles] + [items[0]["delivery"] for items in batches]
    codes = [answer.status_code for answer in singles] + [items[0]["status"] for items in batches]
    assert sorted(codes) == [200] * 15 + [201]
    assert len({one["id"] for one in shown}) == 1
    assert await anywhere.count() == 2


async def test_dedupe_keys_are_compared_byte_by_byte(anywhere: Site) -> None:
    client = await anywhere.client()
    keys = ["k", "K", "k ", " k", "é", "e\u0301", "ß", "ss", "k\u200d", "\U0001f600", "\U0001f601"]

    answer = await client.post("/v1/deliveries/batch", json=[wanted(dedupe_key=key) for key in keys])

    assert [item["status"] for item in answer.json()["items"]] == [201] * len(keys)
    assert [item["delivery"]["dedupe_key"] for item in answer.json()["items"]] == keys


async def test_a_dedupe_key_is_each_tenants_own(anywhere: Site) -> None:
    mine, theirs = await anywhere.client(), await anywhere.client(tenant="other")

    answers = [await client.post("/v1/deliveries", json=wanted(dedupe_key="k")) for client in (mine, theirs)]

    assert [answer.status_code for answer in answers] == [201, 201]


async def test_text_of_all_scripts_and_payloads_of_any_size_come_back_as_they_were(anywhere: Site) -> None:
    client = await anywhere.client()
    payload = {"text": "नमस्ते \U0001f600 \\ ' \" \x7f", "long": "x" * 200_000, "big": 10**30, "small": 1e-300}

    answer = await client.post(
        "/v1/deliveries", json=wanted(payload=payload, labels={"ключ": "\U0001f600"}, recipient="\U0001f600" * 255)
    )

    shown = (await client.get(answer.headers["location"])).json()
    assert (shown["payload"], shown["labels"], shown["recipient"]) == (payload, {"ключ": "\U0001f600"}, "\U0001f600" * 255)
    assert len((await client.get("/v1/deliveries", params={"label.ключ": "\U0001f600"})).json()["items"]) == 1


async def test_a_payload_over_its_bound_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(payload="x" * 262_143))

    assert site.pointers(answer) == {("/payload", "too_large")}


async def test_a_query_that_nobody_reads_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries?dry_run=true", json=wanted())

    assert site.pointers(answer) == {("/dry_run", "unknown_field")}
