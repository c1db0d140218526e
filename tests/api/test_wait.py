"""Waiting for a delivery's end: woken when it comes, bounded, and costing nothing meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from campana.domain.deliveries import State
from campana.domain.instants import EPOCH
from campana.operations import waiters
from campana.world import SystemClock
from tests.api import site
from tests.api.site import Site, pointers, wanted


async def made(client: httpx2.AsyncClient, **said: Any) -> str:
    return str((await client.post("/v1/deliveries", json=wanted(**said))).json()["id"])


async def until(here: Site, count: int) -> None:
    """So many wait, each for its ring."""
    async with asyncio.timeout(20):
        while len(here.house.office.waiters) != count:
            await here.house.world.clock.sleep(0.005)


async def test_what_has_ended_is_answered_at_once(here: Site, client: httpx2.AsyncClient) -> None:
    it = await made(client)
    await client.post(f"/v1/deliveries/{it}/cancel")

    answer = await client.get(f"/v1/deliveries/{it}/wait?timeout=60s")

    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json() == (await client.get(f"/v1/deliveries/{it}")).json()
    assert len(here.house.office.waiters) == 0


@pytest.mark.parametrize("said", ["0", "0s", "20ms", "PT0.01S"])
async def test_what_has_not_ended_in_time_is_shown_as_it_stands(client: httpx2.AsyncClient, said: str) -> None:
    it = await made(client)

    answer = await client.get(f"/v1/deliveries/{it}/wait?timeout={said}")

    assert (answer.status_code, answer.json()["status"], answer.json()["attempts"]) == (200, "scheduled", [])


@pytest.mark.parametrize("said", ["61", "61s", "2m", "-1", "", "x", "1.5", "1e3", "P", "%D9%A1", "999999999999", "30&timeout=30"])
async def test_nobody_waits_longer_than_a_minute(client: httpx2.AsyncClient, said: str) -> None:
    it = await made(client)

    found = pointers(await client.get(f"/v1/deliveries/{it}/wait?timeout={said}"))
    assert found in ({("/timeout", "invalid")}, {("/timeout", "repeated")})


async def test_a_cancel_wakes_those_who_wait_here(here: Site, client: httpx2.AsyncClient) -> None:
    it = await made(client)
    waiting = [asyncio.create_task(client.get(f"/v1/deliveries/{it}/wait")) for _ in range(5)]
    await until(here, 5)

    began = time.monotonic()
    await client.post(f"/v1/deliveries/{it}/cancel")
    answers = await asyncio.gather(*waiting)

    assert {answer.json()["status"] for answer in answers} == {"cancelled"}
    assert time.monotonic() - began < 5
    assert len(here.house.office.waiters) == 0
    assert here.house.office.waiters.watcher is None


async def test_an_engine_in_this_process_wakes_those_who_wait(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("campana.operations.waiting.LOOK", 3_600)
    site.copy(prepared, tmp_path)
    async with site.open_site(tmp_path, with_engine=True) as here:
        client = await here.client()
        at = here.house.world.clock.now().timestamp() + 1
        it = await made(client, at=f"{EPOCH.fromtimestamp(at, EPOCH.tzinfo).isoformat(timespec='milliseconds')}")
        async with asyncio.timeout(30):
            answer = await client.get(f"/v1/deliveries/{it}/wait?timeout=60s")

    assert (answer.json()["status"], len(answer.json()["attempts"])) == ("completed", 1)


async def test_what_another_process_ends_is_seen_within_a_second(here: Site, client: httpx2.AsyncClient) -> None:
    it = await made(client)
    waiting = asyncio.create_task(client.get(f"/v1/deliveries/{it}/wait"))
    await until(here, 1)

    await here.force(it, state=int(State.COMPLETED), wake_at=None)
    async with asyncio.timeout(5):
        answer = await waiting

    assert answer.json()["status"] == "completed"


async def test_those_who_wait_ask_the_database_once_for_all(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[float] = []
    enough = asyncio.Event()

    async def sleep(clock: SystemClock, seconds: float) -> None:
        del clock
        rounds.append(seconds)
        if len(rounds) > 5:
            enough.set()
        await asyncio.sleep(0.01)  # noqa: TID251 - the clock's own waiting, made shorter

    its = [await made(client) for _ in range(8)]
    waiting = [asyncio.create_task(client.get(f"/v1/deliveries/{it}/wait?timeout=60")) for it in its]
    await until(here, 8)
    monkeypatch.setattr(SystemClock, "sleep", sleep)
    before = here.house.telemetry.counts.copy()
    await enough.wait()
    after = here.house.telemetry.counts - before
    here.house.office.waiters.end()
    await asyncio.gather(*waiting)

    assert after["store.ended"] <= len(rounds), "one question a round, however many wait"
    assert after["store.get"] <= len(its), "each for itself only when it comes"


async def test_who_goes_away_gives_its_place_back(here: Site, client: httpx2.AsyncClient) -> None:
    it = await made(client)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2]))
    head = f"GET /v1/deliveries/{it}/wait HTTP/1.1\r\nhost: x\r\nauthorization: {client.headers['authorization']}\r\n\r\n"
    writer.write(head.encode())
    await until(here, 1)

    writer.close()
    await writer.wait_closed()
    await until(here, 0)
    assert await reader.read() == b""


async def test_a_tenant_and_a_process_have_only_so_many_places(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters, "MOST_OF_ONE", 2)
    monkeypatch.setattr(waiters, "MOST", 3)
    stranger = await here.client(tenant="other")
    mine, theirs = await made(client), await made(stranger)
    waiting = [asyncio.create_task(client.get(f"/v1/deliveries/{mine}/wait")) for _ in range(2)]
    await until(here, 2)

    refused = await client.get(f"/v1/deliveries/{mine}/wait")
    waiting.append(asyncio.create_task(stranger.get(f"/v1/deliveries/{theirs}/wait")))
    await until(here, 3)
    full = await stranger.get(f"/v1/deliveries/{theirs}/wait")
    here.house.office.waiters.end()

    assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
    assert (full.status_code, full.json()["code"]) == (503, "unavailable")
    assert refused.headers["retry-after"] == full.headers["retry-after"] == "5"
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def test_who_waits_is_answered_when_the_server_stops(prepared: Path, tmp_path: Path) -> None:
    site.copy(prepared, tmp_path)
    began = 0.0
    async with site.open_site(tmp_path) as here:
        client = await here.client()
        it = await made(client)
        waiting = asyncio.create_task(client.get(f"/v1/deliveries/{it}/wait?timeout=60"))
        await until(here, 1)
        here.stop()
        answer = await waiting
        began = time.monotonic()

    assert (answer.status_code, answer.json()["status"]) == (200, "scheduled")
    assert time.monotonic() - began < 10
