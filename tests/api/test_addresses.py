"""Where webhooks may not go, at the door: every spelling and every name is refused when it is saved, in one sentence."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from campana.channels import http_dialer, netguard
from campana.operations import addresses
from tests.api import site
from tests.api.site import NDJSON, Site
from tests.channels.refused import REFUSED

INSIDE = {
    "localtest.example.com": ["127.0.0.1"],
    "metadata.example.com": ["169.254.169.254"],
    "mixed.example.com": ["8.8.8.8", "10.0.0.5"],
    "six.example.com": ["2606:4700::1111", "::1"],
    "mapped.example.com": ["::ffff:10.0.0.1"],
    "nat64.example.com": ["64:ff9b::a9fe:a9fe"],
    "oracle.example.com": ["192.0.0.192"],
    "zone.example.com": ["fe80::1%eth0"],
}
OUTSIDE = {"hook.example.com": ["8.8.8.8"], "dual.example.com": ["8.8.8.8", "2606:4700::1111"], "empty.example.com": []}


@pytest.fixture
async def here(prepared: Path, tmp_path: Path) -> AsyncIterator[Site]:
    """The API as it is where nothing private may be reached."""
    site.copy(prepared, tmp_path)
    async with site.open_site(tmp_path, webhook_allow_cidrs="") as opened:
        yield opened


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up."""
    seen: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        seen.append(host)
        if host == "silent.example.com":
            await asyncio.get_running_loop().create_future()
        if host in INSIDE | OUTSIDE:
            return (INSIDE | OUTSIDE)[host]
        raise socket.gaierror(-2, "no such name")

    monkeypatch.setattr(http_dialer, "resolve", resolve)
    return seen


@pytest.fixture(autouse=True)
def nothing_is_dialed(monkeypatch: pytest.MonkeyPatch, here: Site) -> Iterator[None]:
    """A spy on every socket of the process: the tests' own requests to the API are all that connects."""
    home, strange = int(here.url.rpartition(":")[2]), []
    original = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[1] != home:
            strange.append(address)
        original(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    yield
    assert strange == []


def wanted(url: str) -> dict[str, Any]:
    return {"channel": "webhook", "target": {"url": url}}


def faults(answer: httpx2.Response) -> list[tuple[str, str, str]]:
    assert answer.status_code == 422, answer.text
    return [(one["pointer"], one["code"], one["detail"]) for one in answer.json()["errors"]]


async def test_every_refused_url_is_refused_when_it_is_saved(here: Site, client: httpx2.AsyncClient, asked: list[str]) -> None:
    for url in REFUSED:
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in url):
            continue  # refused before it is looked at: no body may hold these
        found = faults(await client.post("/v1/deliveries", json=wanted(url)))
        assert [(pointer, code in {"address_refused", "invalid"}) for pointer, code, _ in found] == [("/target/url", True)], url
    assert await here.count() == 0
    assert asked == []


async def test_a_name_that_leads_inside_is_refused_when_it_is_saved(
    here: Site, client: httpx2.AsyncClient, asked: list[str]
) -> None:
    for name in INSIDE:
        for url in (f"https://{name}/", f"http://{name.upper()}.:8080/x"):
            found = faults(await client.post("/v1/deliveries", json=wanted(url)))
            assert found == [("/target/url", "address_refused", netguard.REFUSED)]
    assert await here.count() == 0
    assert set(asked) == set(INSIDE)


@pytest.mark.parametrize("host", [*OUTSIDE, "nowhere.example.com", "silent.example.com", "8.8.8.8"])
async def test_a_name_that_leads_outside_or_nowhere_or_says_nothing_is_taken(
    client: httpx2.AsyncClient, asked: list[str], host: str
) -> None:
    assert (await client.post("/v1/deliveries", json=wanted(f"https://{host}/"))).status_code == 201
    assert asked == ([] if host == "8.8.8.8" else [host])


@pytest.mark.parametrize("as_lines", [False, True])
async def test_in_a_batch_each_url_is_judged_for_itself_and_each_name_once(
    here: Site, client: httpx2.AsyncClient, asked: list[str], as_lines: bool
) -> None:
    urls = ["https://hook.example.com/1", "https://metadata.example.com/", "http://10.0.0.1/", "https://hook.example.com/2"]
    items = [wanted(url) for url in urls] + [{"channel": "log", "target": {}}, "no delivery"]
    if as_lines:
        body = "\n".join(json.dumps(item) for item in items)
        answer = await client.post("/v1/deliveries/batch", content=body, headers={"content-type": NDJSON})
    else:
        answer = await client.post("/v1/deliveries/batch", json=items)
    assert answer.status_code in {200, 207}, answer.text
    assert await here.count() == 3
    assert answer.text.count("address_refused") == 2
    assert sorted(asked) == ["hook.example.com", "metadata.example.com"]


async def test_a_batch_of_very_many_names_asks_for_few_of_them(client: httpx2.AsyncClient, asked: list[str]) -> None:
    items = [wanted(f"https://h{number}.example.com/") for number in range(300)]
    answer = await client.post("/v1/deliveries/batch", json=items)
    assert answer.status_code in {200, 201, 207}
    assert len(asked) == addresses.MOST_NAMES


async def test_what_else_is_wrong_with_a_target_is_told_at_once(client: httpx2.AsyncClient, asked: list[str]) -> None:
    said = wanted("https://metadata.example.com/")
    said["target"]["headers"] = {"Host": "x", "X-A": "a\r\nb: c", "webhook-id": "x"}
    found = {(pointer, code) for pointer, code, _ in faults(await client.post("/v1/deliveries", json=said))}
    assert found == {
        ("/target/url", "address_refused"),
        ("/target/headers/Host", "reserved"),
        ("/target/headers/X-A", "invalid"),
        ("/target/headers/webhook-id", "reserved"),
    }
