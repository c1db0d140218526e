"""Every field of a delivery: its types are strict, and all faults are told at once."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.api.site import Site, pointers, wanted

# A value that is right, for each field; `null` is as good as leaving an optional one out.
RIGHT: dict[str, Any] = {
    "channel": "log",
    "target": {"message": "x"},
    "at": "2199-01-01T00:00:00Z",
    "timezone": "Europe/London",
    "late": "send",
    "recipient": "user-42",
    "dedupe_key": "key",
    "on_ambiguous": "retry",
    "expires_at": "2199-02-01T00:00:00Z",
    "expires_after": "2h",
    "priority": "bulk",
    "project": "default",
    "labels": {"team": "billing"},
    "retry": {"max_attempts": 5},
    "retry/max_attempts": 5,
    "retry/backoff": "fixed",
    "retry/base": "60s",
    "retry/cap": "1h",
    "retry/jitter": 0.5,
    "retry/delays": {"failed": "5m"},
    "retry/only": ["failed"],
    "retry/enabled": False,
    "labels/team": "billing",
    "target/message": "x",
}
NEEDED = {"channel", "target", "priority", "labels", "labels/team", "target/message"}
STRANGE: list[Any] = [None, True, 1, 1.5, 10**30, "1", "", "x" * 300, [], [1], {}, {"a": 1}, ["failed", 1]]


def body(path: str, value: Any) -> dict[str, Any]:
    outer, _, inner = path.partition("/")
    return wanted(**{outer: {inner: value} if inner else value})


def is_right(path: str, value: Any) -> bool:
    """Whether a strange value happens to be a right one."""
    if value is None:
        return path not in NEEDED
    kinds: dict[str, Any] = {
        "retry/max_attempts": lambda: type(value) is int and value == 1,
        "retry/jitter": lambda: type(value) is int and value == 1,
        "retry/enabled": lambda: value is True,
        "retry/delays": lambda: value == {},
        "retry/only": lambda: value == [],
        "retry": lambda: value == {},
        "labels": lambda: value == {},
        "labels/team": lambda: value in ("1", ""),
        "target": lambda: value == {},
        "target/message": lambda: isinstance(value, str),
        "recipient": lambda: value == "1",
        "dedupe_key": lambda: value == "1",
    }
    return bool(path in kinds and kinds[path]())


@pytest.mark.parametrize("path", RIGHT)
async def test_a_field_takes_its_own_type_and_no_other(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.post("/v1/deliveries", json=body(path, RIGHT[path]))).status_code == 201
    for value in STRANGE:
        answer = await client.post("/v1/deliveries", json=body(path, value))
        if is_right(path, value):
            assert answer.status_code in (200, 201), (value, answer.text)
        else:
            assert all(pointer.startswith(f"/{path}") for pointer, _ in pointers(answer)), (value, answer.text)


@pytest.mark.parametrize("whole", [None, True, 1, "x", [], [wanted()]])
async def test_a_delivery_is_an_object(client: httpx2.AsyncClient, whole: Any) -> None:
    answer = await client.post("/v1/deliveries", content=json.dumps(whole), headers={"content-type": "application/json"})

    assert {pointer for pointer, _ in pointers(answer)} == {""}


async def test_all_faults_are_told_at_once_whoever_finds_them(here: Site, client: httpx2.AsyncClient) -> None:
    said = {
        "channel": "webhook",
        "target": {"url": "http://10.0.0.1/x", "headers": {"Host": "x", "a/b~c": 1}, "method": 3},
        "at": "2020-01-01T00:00:00Z",
        "timezone": "Mars/Base",
        "priority": 1,
        "retry": {"jitter": "0.5", "max_attempts": 0, "delays": {"never": "5m"}},
        "expires_at": "soon",
        "labels": {"": "x", "a": "y" * 256},
        "project": "nope",
        "bogus/field~": 1,
        "payload": "x" * 300_000,
    }

    answer = await client.post("/v1/deliveries", json=said)

    assert pointers(answer) == {
        ("/target/url", "address_refused"),
        ("/target/headers/Host", "reserved"),
        ("/target/headers/a~1b~0c", "invalid"),
        ("/target/method", "wrong_type"),
        ("/at", "at_in_past"),
        ("/timezone", "unknown_timezone"),
        ("/priority", "not_one_of"),
        ("/retry/jitter", "wrong_type"),
        ("/retry/max_attempts", "greater_than_equal"),
        ("/retry/delays/never", "not_one_of"),
        ("/expires_at", "instant"),
        ("/labels/", "string_too_short"),
        ("/labels/a", "string_too_long"),
        ("/project", "unknown_project"),
        ("/bogus~1field~0", "unknown_field"),
        ("/payload", "too_large"),
    }
    assert await here.count() == 0


async def test_what_is_missing_is_named(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries", json={"at": "2026-12-01T09:00"})

    assert pointers(answer) == {("/channel", "required"), ("/target", "required"), ("/timezone", "required")}


@pytest.mark.parametrize("name", ["queue", "once", "body", "id", "status", "tenant_id", "fence", "created_at", "Channel", ""])
async def test_a_field_that_is_not_there_is_refused_by_name(client: httpx2.AsyncClient, name: str) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(**{name: "x"}))

    assert pointers(answer) == {(f"/{name}", "unknown_field")}


async def test_very_many_faults_make_no_very_large_answer(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(**{f"n{number}": 1 for number in range(20_000)}))

    assert len(answer.json()["errors"]) == 100


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("recipient", "x" * 255),
        ("dedupe_key", "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 50),
        ("dedupe_key", "   "),
        ("recipient", "\u202etxt.exe"),
        ("recipient", "\n2026-01-01 INFO all is well"),
        ("recipient", "'; drop table deliveries; --"),
        ("dedupe_key", "%_\\"),
        ("labels", {"ключ": "значение", "a%b": "c_d", '"': '"}'}),
        ("project", "default"),
    ],
)
async def test_text_stays_data(client: httpx2.AsyncClient, field: str, value: Any) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(**{field: value}))

    assert answer.status_code == 201, answer.text
    assert answer.json()[field] == value


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({}, {("/target/handler", "required")}),
        ({"handler": ""}, {("/target/handler", "required")}),
        ({"handler": "x" * 81}, {("/target/handler", "required")}),
        ({"handler": 1, "timeout": 5}, {("/target/handler", "required"), ("/target/timeout", "duration")}),
        ({"handler": "x", "timeout": "16m"}, {("/target/timeout", "duration")}),
        ({"handler": "x", "timeout": "0s"}, {("/target/timeout", "duration")}),
        ({"handler": "x", "timeout": None}, {("/target/timeout", "duration")}),
        ({"handler": "x", "a/b": None}, {("/target/a~1b", "unknown_field")}),
    ],
)
async def test_a_python_target_names_its_handler(
    client: httpx2.AsyncClient, target: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(channel="python", target=target))

    assert pointers(answer) == expected


async def test_a_log_target_says_text_and_nothing_else(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(target={"message": {"a": 1}, "level": "INFO"}))

    assert pointers(answer) == {("/target/message", "wrong_type"), ("/target/level", "unknown_field")}
