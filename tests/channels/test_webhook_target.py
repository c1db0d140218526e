"""What a webhook's target may be: every fault at once, each at its place."""

from typing import Any

import pytest

from campana.channels import netguard, webhook, webhook_target
from tests.channels.hostile import LOOPBACK

RULES = netguard.Rules()
URL = "https://example.com/hook"


def faults(**target: Any) -> list[tuple[str, str]]:
    return [(pointer, code) for pointer, code, _ in webhook.validate({"url": URL, **target}, RULES)]


def test_a_target_with_everything_in_it_is_accepted() -> None:
    assert not faults(
        method="PUT",
        headers={"Authorization": "Bearer x", "Content-Type": "text/csv", "X-É".replace("É", "E"): "é", "Cookie": "a=b"},
        query={"a": "b", "c": ["d", "e"]},
        body="a,b",
        timeout="5m",
        success=["2xx", 404],
        retry_on=[],
    )
    assert not webhook.validate({"url": "http://localhost:9000/"}, LOOPBACK)


def test_every_fault_is_named_at_once_and_in_place() -> None:
    found = webhook.validate(
        {
            "method": "TRACE",
            "headers": {"Host": "x", "X A": "a", "X-A": "a\r\nb", "x-b": "", "X-B": "", "X-C": 1, "X-D": "\u2028"},
            "query": {"a": 1, "b/~": "\ud800"},
            "timeout": "6m",
            "success": [],
            "retry_on": ["5xx", 99, True, "1xx", "5XX", 7.5],
            "retries": 3,
            "a/b": 1,
        },
        RULES,
    )
    assert [(pointer, code) for pointer, code, _ in found] == [
        ("/retries", "unknown_field"),
        ("/a~1b", "unknown_field"),
        ("/url", "missing"),
        ("/method", "invalid"),
        ("/headers/Host", "reserved"),
        ("/headers/X A", "invalid"),
        ("/headers/X-A", "invalid"),
        ("/headers/X-B", "duplicate"),
        ("/headers/X-C", "wrong_type"),
        ("/headers/X-D", "invalid"),
        ("/query/a", "wrong_type"),
        ("/query/b~1~0", "invalid"),
        ("/timeout", "invalid"),
        ("/success", "invalid"),
        *((f"/retry_on/{place}", "invalid") for place in range(1, 6)),
    ]
    assert all(detail.startswith("expected") for _, _, detail in found)


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "Content-Length", "transfer-encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect"),
        *("webhook-id", "Webhook-Signature", "WEBHOOK-ANYTHING", "Idempotency-Key", "Campana-Attempt", "User-Agent"),
        *("Accept-Encoding", "Proxy-Authorization", "X-Forwarded-For", "svix-id"),
    ],
)
def test_a_header_that_is_ours_or_the_connections_is_refused(name: str) -> None:
    assert faults(headers={name: "x"}) == [(f"/headers/{name}", "reserved")]


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "\x7f", " a", "a ", "\ta", "x" * 5_000, "\u0100", "\ud800", "\x1b[0m"])
def test_a_header_value_that_would_not_arrive_as_it_is_is_refused(value: str) -> None:
    assert faults(headers={"X-A": value}) == [("/headers/X-A", "invalid")]


@pytest.mark.parametrize("name", ["", "X:", "X Y", "X\n", "Ü", "x" * 200, "(x)", "\ud800"])
def test_a_header_name_that_is_no_token_is_refused(name: str) -> None:
    assert faults(headers={name: "x"}) == [(f"/headers/{name}", "invalid")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", 1),
        ("url", None),
        ("method", ["POST"]),
        ("headers", [["a", "b"]]),
        ("headers", None),
        ("query", "a=b"),
        ("body", {"a": 1}),
        ("timeout", 30),
        ("timeout", True),
        ("success", "2xx"),
        ("retry_on", 500),
    ],
)
def test_a_field_of_another_type_is_refused(field: str, value: object) -> None:
    assert faults(**{field: value}) == [(f"/{field}", "wrong_type")]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(7, "a number"), (1.5, "a number"), (None, "null"), (True, "true or false"), ({}, "an object"), ([], "a list")],
)
def test_what_came_instead_is_told_as_json_calls_it(value: object, kind: str) -> None:
    (fault,) = webhook.validate({"url": value}, RULES)
    assert fault[2] == f"expected a string, got {kind}"


@pytest.mark.parametrize("timeout", ["0s", "30", "", "-1s", "5m1s", "PT6M", "1w", "forever"])
def test_a_timeout_that_is_none_or_too_long_is_refused(timeout: str) -> None:
    assert faults(timeout=timeout) == [("/timeout", "invalid")]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1/", "address_refused"),
        ("http://localhost/", "address_refused"),
        ("http://db.internal/", "address_refused"),
        ("https://example.com:5432/", "address_refused"),
        ("ftp://example.com/", "invalid"),
        ("https://user@example.com/", "invalid"),
        ("", "invalid"),
    ],
)
def test_a_url_that_may_not_be_written_to_is_refused(url: str, code: str) -> None:
    assert faults(url=url) == [("/url", code)]


def test_a_body_has_one_source_and_a_method_that_carries_it() -> None:
    assert faults(body="a", body_template={}) == [("/body", "conflict")]
    assert faults(body="a", method="GET") == [("/body", "conflict")]
    assert faults(body_template={}, method="DELETE") == [("/body_template", "conflict")]
    assert faults(body="\ud800") == [("/body", "invalid")]
    assert faults(body="é" * 131_073) == [("/body", "invalid")]
    assert not faults(body="é" * 131_072)


def test_what_is_too_much_is_refused() -> None:
    assert faults(headers={f"X-{number}": "x" for number in range(51)}) == [("/headers", "invalid")]
    assert faults(query={"a": "b" * 9_000}) == [("/query", "invalid")]


def test_codes_and_classes_are_told_apart() -> None:
    assert webhook_target.matches(200, ("2xx",))
    assert webhook_target.matches(429, (408, 429))
    assert not webhook_target.matches(302, ("2xx", 301))
