"""Requests as bytes: made from the document's examples, broken by chance, sent, and what came back judged."""

from __future__ import annotations

import http.client
import json
import random
import socket
import urllib.parse
from dataclasses import dataclass
from typing import Any

from campana.web import app
from tests.api.test_document import faults

TOKENS = (
    b"\0", b"\r\n", b"\n", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"{", b"}", b"[",
    b"]", b",", b":", b"null", b"true", b"NaN", b"1e999", b"-0", b"9" * 400, b"[" * 70, b"%", b"%00", b"%zz", b"..", b"/", b"?",
    b"#", b"&", b"=", b";", b" ", b"\t", b"' or 1=1 --", b"${jndi:x}", b"\n2026 INFO ok", b"2026-02-30T00:00:00Z",
    b"24:00", b"+25:00", b"../etc/passwd", b"Europe/Berlin", b"P1D", b"0s", b"-1", b"chunked", b"gzip", b"multipart/form-data",
    b"charset=utf-16", "\N{RIGHT-TO-LEFT OVERRIDE}".encode(), "\N{GRINNING FACE}".encode(), b"x" * 5_000,
)  # fmt: skip
HEADERS = (
    b"idempotency-key: one", b"idempotency-key: ", b'idempotency-key: "two"', b"content-encoding: gzip", b"content-length: -1",
    b"content-length: 99999999999", b"transfer-encoding: chunked", b"expect: 100-continue", b"authorization: Bearer x",
    b"content-type: application/x-ndjson", b"content-type: application/json; charset=latin-1", b"x-http-method-override: DELETE",
    b"cookie: a=b", b"host: y", b"range: bytes=0-1", b"upgrade: websocket\r\nconnection: upgrade", b"connection: close",
)  # fmt: skip
METHODS = (b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"HEAD", b"OPTIONS", b"TRACE", b"get", b"X")

PATIENCE = 2.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back: nothing, where the connection was closed."""

    status: int | None
    kind: str
    body: bytes


def broken(document: dict[str, Any], ids: dict[str, list[str]], key: str, chance: random.Random) -> bytes:
    """A request of one of the operations, with some of it broken."""
    method, path, form, body = _whole(document, ids, chance)
    head = [f"host: fuzz\r\nauthorization: Bearer {key}".encode(), b"connection: close"]
    if form:
        head.append(f"content-type: {form}".encode())
    where = chance.choice(("body", "body", "body", "path", "head", "method", "more"))
    if where == "body":
        body = _mutated(body, chance)
    if where == "path":
        path = _mutated(path, chance)
    if where == "method":
        method = chance.choice(METHODS)
    if where == "more":
        head.insert(chance.randrange(len(head) + 1), chance.choice(HEADERS))
    length = f"content-length: {len(body) if chance.random() < 0.97 else chance.randrange(len(body) + 9)}".encode()
    if body or chance.random() < 0.5:
        head.append(length)
    lines = b"\r\n".join([b" ".join((method, path, b"HTTP/1.1")), *head])
    if where == "head":
        lines = _mutated(lines, chance)
    return lines + b"\r\n\r\n" + body


def _whole(document: dict[str, Any], ids: dict[str, list[str]], chance: random.Random) -> tuple[bytes, bytes, str, bytes]:
    path, item = chance.choice(sorted(document["paths"].items()))
    method, operation = chance.choice(sorted(item.items()))
    for name, values in ids.items():
        path = path.replace(f"{{{name}}}", chance.choice(values))
    if path.endswith("/wait"):
        path += "?timeout=0"
    elif path == "/v1/deliveries" and method == "get":
        path += "?" + urllib.parse.urlencode(
            {"status": "scheduled", "limit": "2", "label.a": "b", "due_from": "2026-01-01T00:00:00Z"}
        )
    content = operation.get("requestBody", {}).get("content", {})
    form = chance.choice(sorted(content)) if content else ""
    example = content[form]["example"] if form else ""
    body = example.encode() if isinstance(example, str) else json.dumps(example).encode()
    return method.upper().encode(), path.encode(), form, body


def _mutated(said: bytes, chance: random.Random) -> bytes:
    text = bytearray(said)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.randint(1, 12))
        match chance.randrange(6):
            case 0 if text:
                text[start % len(text)] ^= 1 << chance.randrange(8)
            case 1:
                del text[start:end]
            case 2:
                text[start:start] = text[start:end] * chance.randint(1, 50)
            case 3:
                text[start:end] = chance.choice(TOKENS)
            case 4:
                text[start:] = b""
            case _:
                text[start:start] = chance.choice(TOKENS)
    return bytes(text)


def send(url: str, request: bytes) -> Answer:
    """Send it on a connection of its own, and nothing after it."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        try:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            body = response.read()
        except (OSError, http.client.HTTPException):
            # Among them requests without an end, whose rest the server waits for.
            return Answer(status=None, kind="", body=b"")
        return Answer(status=response.status, kind=response.headers.get("content-type", ""), body=body)


def fault(document: dict[str, Any], request: bytes, answer: Answer) -> str | None:
    """What is wrong with an answer; None if nothing is."""
    if answer.status is None:
        return None
    if answer.status >= 500 or b"Traceback" in answer.body:
        return f"answered {answer.status}"
    if answer.status >= 400 and not answer.kind.startswith("application/problem+json"):
        is_before_us = answer.status == 400 and answer.body == b"Invalid HTTP request received."
        return (
            None if is_before_us or request.startswith((b"HEAD", b"head")) else f"a {answer.status} that is no problem document"
        )
    if answer.kind.startswith("application/problem+json") and answer.body:
        return _departs(document, document["components"]["schemas"]["Problem"], answer)
    return _undescribed(document, request, answer)


def _undescribed(document: dict[str, Any], request: bytes, answer: Answer) -> str | None:
    """How a success departs from what its route says."""
    method, _, rest = request.partition(b" ")
    path = urllib.parse.unquote(rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1"))
    for route in app.routes():
        if route.path_regex.match(path) and method.decode("latin-1") in (route.methods or ()):
            responses = document["paths"][route.path_format][method.decode().lower()]["responses"]
            if str(answer.status) not in responses:
                return f"{answer.status} is not described"
            if answer.kind == "application/json":
                return _departs(document, responses[str(answer.status)]["content"]["application/json"]["schema"], answer)
            return None
    return None


def _departs(document: dict[str, Any], schema: dict[str, Any], answer: Answer) -> str | None:
    try:
        said = json.loads(answer.body)
    except ValueError:
        return "a body that is not JSON"
    found = faults(document, schema, said)
    return f"departs from the document: {found[:5]}" if found else None
