"""Targets that would say more on the wire than they should: each is refused when it is saved, at its place."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.api.site import Site

URL = "https://8.8.8.8/hook"
NAMES = [
    *("Host", "HOST", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect"),
    *("Proxy-Authorization", "Proxy-Connection", "webhook-id", "Webhook-Timestamp", "WEBHOOK-SIGNATURE", "svix-id"),
    *("Idempotency-Key", "Campana-Attempt", "User-Agent", "Accept-Encoding", "X-Forwarded-For", "Via", "HTTP2-Settings"),
    *("", " ", "X Y", "X:", "X\r\nY", "X\n", "X\t", "Ü", ":path", ":authority", "x" * 300, "(x)", "X\x7f"),
]
VALUES = [
    *(
        "a\r\nX-B: b",
        "a\rb",
        "a\nb",
        " a",
        "a ",
        "\ta",
        "a\x0b",
        "\x7f",
        "\x1b[0m",
        "ā",
        "\u2028",
        "\U0001f600",
        "x" * 65_536,
        "x" * 4_097,
    ),
    *(1, None, True, ["a"], {"a": 1}),
]


async def refused(client: httpx2.AsyncClient, **target: Any) -> set[str]:
    answer = await client.post("/v1/deliveries", json={"channel": "webhook", "target": {"url": URL, **target}})
    assert answer.status_code == 422, (target, answer.text)
    return {one["pointer"] for one in answer.json()["errors"]}


async def test_no_header_that_is_ours_the_connections_or_no_header_is_saved(here: Site, client: httpx2.AsyncClient) -> None:
    for name in NAMES:
        pointer = "/target/headers/" + name.replace("~", "~0").replace("/", "~1")
        assert await refused(client, headers={name: "x"}) == {pointer}
    assert await here.count() == 0


async def test_no_header_value_that_would_not_arrive_as_it_is_is_saved(here: Site, client: httpx2.AsyncClient) -> None:
    for value in VALUES:
        assert await refused(client, headers={"X-A": value}) == {"/target/headers/X-A"}
    assert await here.count() == 0


async def test_no_header_is_saved_twice_under_two_spellings(here: Site, client: httpx2.AsyncClient) -> None:
    assert await refused(client, headers={"X-A": "1", "x-a": "2"}) == {"/target/headers/x-a"}
    assert await refused(client, headers={f"X-{number}": "x" for number in range(51)}) == {"/target/headers"}
    assert await here.count() == 0


@pytest.mark.parametrize(
    "url",
    [
        f"{URL}#fragment", f"{URL} x", f"{URL}\r\nHost: other", f"{URL}/{'a' * 8_000}", f"{URL}?q={'a' * 8_000}", f"{URL}/%zz",
        f"{URL}\\x", "https://8.8.8.8:22/", "8.8.8.8/hook", "https://", "", "https://8.8.8.8:443:443/",
    ],
)  # fmt: skip
async def test_no_url_that_two_readers_could_read_in_two_ways_is_saved(client: httpx2.AsyncClient, url: str) -> None:
    assert await refused(client, url=url) == {"/target/url"}


async def test_what_is_good_is_saved_as_it_was_said(client: httpx2.AsyncClient) -> None:
    target = {
        "url": "https://8.8.8.8/a%20b?c=%0d%0a",
        "method": "PUT",
        "headers": {"Authorization": "Bearer x", "X-É".replace("É", "E"): "é\ta", "Cookie": "a=b", "Content-Type": "text/csv"},
    }
    answer = await client.post("/v1/deliveries", json={"channel": "webhook", "target": target})
    assert answer.status_code == 201, answer.text
    assert answer.json()["target"] == target


async def test_a_method_is_one_of_ours(client: httpx2.AsyncClient) -> None:
    for method in ("CONNECT", "TRACE", "OPTIONS", "HEAD", "post", "GET /", "GET\r\n", "", "PRI"):
        assert await refused(client, method=method) == {"/target/method"}
