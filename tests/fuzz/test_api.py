"""A few seconds of what `python -m tests.fuzz.api` does for as long as one likes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fuzz import wire

Document = dict[str, Any]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(180)
def test_no_request_however_strange_is_an_error_of_ours() -> None:
    from tests.fuzz import api

    done = api.fuzz(seconds=10, seed=1)

    assert done.failures == []
    assert {kind.split()[0] for kind in done.sent} >= {"bytes"}
    assert {"positive", "negative"} & {kind.split()[0] for kind in done.sent}


def test_broken_requests_come_the_same_from_the_same_seed() -> None:
    document: Document = {"paths": {"/health": {"get": {}}}}
    first, second = ([wire.broken(document, {}, "k", random.Random(3)) for _ in range(5)] for _ in range(2))
    assert first == second


PROBLEM: Document = {
    "paths": {"/health": {"get": {"responses": {"200": {}}}}},
    "components": {"schemas": {"Problem": {"type": "object"}}},
}
WRONG = [
    wire.Answer(status=500, kind="application/problem+json", body=b"{}"),
    wire.Answer(status=503, kind="application/problem+json", body=b"{}"),
    wire.Answer(status=200, kind="application/json", body=b"Traceback (most recent call last)"),
    wire.Answer(status=404, kind="text/plain", body=b"nothing"),
    wire.Answer(status=404, kind="application/problem+json", body=b"[]"),
    wire.Answer(status=404, kind="application/problem+json", body=b"{"),
    wire.Answer(status=201, kind="application/json", body=b"{}"),
]


@pytest.mark.parametrize("answer", WRONG, ids=str)
def test_a_wrong_answer_is_seen(answer: wire.Answer) -> None:
    assert wire.fault(PROBLEM, b"GET /health HTTP/1.1\r\n\r\n", answer)
