"""Bodies that can't be read: refused quickly with a problem document, and nothing is written."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from campana.errors import UnreadableError
from campana.operations import wanted as wanted_fields
from campana.web import bodies
from tests.api.site import NDJSON, Site, wanted

GOOD = json.dumps(wanted()).encode()
JSON = {"content-type": "application/json"}


def nested(depth: int) -> bytes:
    """A delivery whose payload brings the whole body to this depth."""
    return GOOD[:-1] + b', "payload": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def many_names(count: int) -> bytes:
    names = b", ".join(b'"n%d": 1' % number for number in range(count))
    return b"{" + names + b', "n%d": 1}' % (count - 1)


UNREADABLE = {
    "nothing": b"",
    "a cut object": GOOD[:-1],
    "two values": GOOD + GOOD,
    "a duplicate name": b'{"channel": "log", "target": {}, "channel": "log"}',
    "a duplicate name deep inside": b'{"channel": "log", "target": {}, "payload": [{"a": {"b": 1, "b": 1}}]}',
    "the same name spelled twice": b'{"channel": "log", "target": {}, "payload": {"a": 1, "\\u0061": 1}}',
    "a duplicate among very many": many_names(60_000),
    "NaN": GOOD[:-1] + b', "payload": NaN}',
    "Infinity": GOOD[:-1] + b', "payload": -Infinity}',
    "a number without bounds": GOOD[:-1] + b', "payload": 1e999}',
    "an integer of very many digits": GOOD[:-1] + b', "payload": ' + b"1" * 5_000 + b"}",
    "NUL, spelled": GOOD[:-1] + b', "payload": "a\\u0000b"}',
    "NUL in a name": GOOD[:-1] + b', "payload": {"a\\u0000b": 1}}',
    "NUL after a backslash": GOOD[:-1] + b', "payload": "\\\\\\u0000"}',
    "NUL itself": GOOD[:-1] + b', "payload": "a\0b"}',
    "a lone surrogate": GOOD[:-1] + b', "payload": "\\ud800"}',
    "a lone low surrogate in a name": GOOD[:-1] + b', "payload": {"\\udfff": 1}}',
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-8 that is none": GOOD[:-1] + b', "payload": "\xff"}',
    "UTF-8 of a surrogate": GOOD[:-1] + b', "payload": "\xed\xa0\x80"}',
    "65 levels": nested(65),
    "100,000 levels": nested(100_000),
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a comment": b"/* no */" + GOOD,
    "single quotes": b"{'channel': 'log'}",
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_what_is_not_strict_json_is_refused_and_nothing_is_written(
    here: Site, client: httpx2.AsyncClient, case: str
) -> None:
    answer = await client.post("/v1/deliveries", content=UNREADABLE[case], headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (400, "unreadable"), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert await here.count() == 0


async def test_a_number_without_end_is_refused_in_our_words(client: httpx2.AsyncClient) -> None:
    said = await client.post("/v1/deliveries", content=GOOD[:-1] + b', "payload": ' + b"1" * 5_000 + b"}", headers=JSON)

    assert said.json()["detail"] == "the body holds a number that is too large: it has thousands of digits"


@pytest.mark.parametrize("case", ["a duplicate among very many", "100,000 levels", "100,000 objects"])
def test_refusing_costs_little(case: str) -> None:
    began = time.process_time()
    with pytest.raises(UnreadableError):
        bodies.parse(UNREADABLE[case])

    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "payload",
    ["\\u0000", "a\\\\u0000", "\U0001f600", "\\ud800", "\ufeff", "a" * 200_000, 10**400, {"": {"": []}}, None, False, 0, ""],
)
async def test_strange_but_honest_json_comes_back_as_it_was(client: httpx2.AsyncClient, payload: object) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(payload=payload))

    assert answer.status_code == 201, answer.text
    shown = (await client.get(answer.headers["location"])).json()
    assert shown["payload"] == payload


async def test_64_levels_are_read_alone_and_in_a_batch(client: httpx2.AsyncClient) -> None:
    alone = await client.post("/v1/deliveries", content=nested(64), headers=JSON)
    batch = await client.post("/v1/deliveries/batch", content=b"[" + nested(64) + b"]", headers=JSON)
    deeper = await client.post("/v1/deliveries/batch", content=b"[" + nested(65) + b"]", headers=JSON)

    assert (alone.status_code, batch.json()["items"][0]["status"], deeper.status_code) == (201, 201, 400)


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 65_536):
        yield body[start : start + 65_536]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_a_mebibyte_is_too_large(here: Site, client: httpx2.AsyncClient, chunked: bool) -> None:
    body = GOOD + b" " * ((1 << 20) + 1 - len(GOOD))

    answer = await client.post("/v1/deliveries", content=pieces(body) if chunked else body, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert await here.count() == 0
    assert (await client.post("/v1/deliveries", content=pieces(body[:-1]), headers=JSON)).status_code == 201


async def test_a_length_that_is_too_large_is_refused_before_the_body_comes(here: Site) -> None:
    key = await here.make_key()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2]))
    head = (
        f"POST /v1/deliveries HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
        "content-length: 104857600\r\n\r\n"
    )
    writer.write(head.encode())
    async with asyncio.timeout(5):
        assert b" 413 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_a_connection_that_ends_before_its_body_does_no_harm(here: Site, client: httpx2.AsyncClient) -> None:
    key = await here.make_key()
    _, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2]))
    head = f"POST /v1/deliveries HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    writer.write(head.encode() + b"content-length: 500\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    assert (await client.get("/v1/deliveries")).json()["items"] == []
    assert here.house.telemetry.counts["api.bug"] == 0


async def test_a_body_that_does_not_come_is_not_waited_for_for_ever(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PATIENCE", 0.05)
    key = await here.make_key()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2]))
    head = f"POST /v1/deliveries HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    writer.write(head.encode() + b"content-length: 500\r\n\r\n{")
    async with asyncio.timeout(5):
        assert b" 400 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/jsonp"},
        {"content-type": NDJSON},
        {"content-type": ""},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json; charset=UTF-16"},
        {"content-type": 'application/json; x=y; Charset="utf-7"'},
        {"content-type": "application/json; charset="},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": "application/json", "content-encoding": "br"},
    ],
)
async def test_a_body_of_another_type_is_refused(here: Site, client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    body = gzip.compress(GOOD) if "content-encoding" in headers else GOOD

    answer = await client.post("/v1/deliveries", content=body, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_type")
    assert await here.count() == 0


@pytest.mark.parametrize("charset", ["charset=utf-8", 'x=y; Charset="UTF-8"', "charset=utf8", "x=y"])
async def test_json_may_name_its_charset(client: httpx2.AsyncClient, charset: str) -> None:
    answer = await client.post("/v1/deliveries", content=GOOD, headers={"content-type": f"Application/JSON; {charset}"})

    assert answer.status_code == 201


MANY = 40_000
NAMES = {f"name{number}": 1 for number in range(MANY)}
CROWDED = {
    "unknown fields": wanted() | NAMES,
    "unknown fields of a target": wanted(target=NAMES),
    "unknown fields of a webhook": wanted(channel="webhook", target=NAMES),
    "labels that are no text": wanted(labels=NAMES),
    "labels": wanted(labels=dict.fromkeys(NAMES, "")),
    "retries": wanted(retry=NAMES),
    "delays": wanted(retry={"delays": NAMES}),
    "outcomes": wanted(retry={"only": [1] * MANY}),
    "answers": wanted(channel="webhook", target={"url": "https://example.com", "success": ["x"] * MANY}),
    "queries": wanted(channel="webhook", target={"url": "https://example.com", "query": NAMES}),
    "headers": wanted(channel="webhook", target={"url": "https://example.com", "headers": NAMES}),
    "a long name": wanted(channel="webhook", target={"url": "https://" + "a." * MANY}),
    "a long instant": wanted(at="1" * 500_000),
    "a long zone": wanted(at="2199-01-01T00:00", timezone="x" * 10_000),
    "a list": [1] * MANY,
}


@pytest.mark.parametrize("case", CROWDED)
async def test_what_holds_far_too_much_is_refused_quickly_and_in_few_words(
    here: Site, client: httpx2.AsyncClient, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[float] = []
    read = wanted_fields.read

    def timed(*args: Any) -> Any:
        began = time.process_time()
        try:
            return read(*args)
        finally:
            took.append(time.process_time() - began)

    monkeypatch.setattr(wanted_fields, "read", timed)
    answer = await client.post("/v1/deliveries", json=CROWDED[case])

    assert answer.status_code == 422, answer.text
    assert len(answer.content) < 40_000
    assert max(took) < 0.05
    assert await here.count() == 0


HEADS = {
    "a negative length": "content-length: -1",
    "a length that is none": "content-length: x",
    "two lengths": "content-length: 2\r\ncontent-length: 3",
    "a length and chunks": "content-length: 2\r\ntransfer-encoding: chunked",
    "an unknown coding": "transfer-encoding: gzip",
    "a folded header": "x-a: b\r\n c",
}


@pytest.mark.parametrize("case", HEADS)
async def test_a_head_that_could_be_read_two_ways_is_refused(here: Site, case: str) -> None:
    key = await here.make_key()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(here.url.rpartition(":")[2]))
    head = f"POST /v1/deliveries HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}{HEADS[case]}\r\nconnection: close\r\n\r\n{{}}".encode())
    async with asyncio.timeout(10):
        said = await reader.readline()
    assert said[:12] in {b"HTTP/1.1 400", b"HTTP/1.1 422", b""}, said
    assert await here.count() == 0
    assert here.house.telemetry.counts["api.bug"] == 0
    writer.close()
    await writer.wait_closed()


STRANGE = [
    "'; drop table deliveries; --", "id;drop table x", '{"$ne": null}', "*)(uid=*", "$(reboot)", "`id`", "${jndi:ldap://x}",
    "\n2026-01-01 INFO all is well", "\r\nset-cookie: a=b", "\x1b[2J", "\u202e\u2066", "\N{FAMILY}\u200d\N{BOY}", "e\u0301" * 50,
    "  ",     "<script>alert(1)</script>", "=1+1", "%00%ff", "../../etc/passwd", "x" * 255,
]  # fmt: skip


@pytest.mark.parametrize("text", STRANGE, ids=ascii)
async def test_text_that_means_something_elsewhere_is_text_here(
    client: httpx2.AsyncClient, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    said = wanted(recipient=text, dedupe_key=text, labels={"a": text, text[:63]: "b"}, payload={text: text})
    made = await client.post("/v1/deliveries", json=said, headers={"idempotency-key": "one"})
    assert made.status_code == 201, made.text

    assert {name: made.json()[name] for name in ("recipient", "dedupe_key", "labels", "payload")} == {
        name: said[name] for name in ("recipient", "dedupe_key", "labels", "payload")
    }
    for query in ({"recipient": text}, {"dedupe_key": text}, {"label.a": text}):
        assert [one["id"] for one in (await client.get("/v1/deliveries", params=query)).json()["items"]] == [made.json()["id"]]
    for name in ("status", "cursor", "limit", "due_from", "schedule_id", "sort", "order_by", text[:40]):
        assert (await client.get("/v1/deliveries", params={name: text})).status_code == 422
    assert "\n2026-01-01 INFO" not in capfd.readouterr().err
