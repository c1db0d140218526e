"""Answers that are problems: one form for all of them, whatever went wrong."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from campana import errors
from campana.domain.deliveries import FINAL, State
from campana.errors import UnavailableError
from campana.web import problems
from tests.api.site import Site, wanted


async def test_a_path_that_is_not_there_is_a_problem_too(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/v1", "/v2/deliveries", "/v1/deliveries/", "/v1/deliveries/x/y", "/redoc", "/v1/nothing", "/%ED%A0%80"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/deliveries", "GET, POST"),
        ("/v1/deliveries/batch", "POST"),
        ("/v1/deliveries/x/cancel", "POST"),
        ("/v1/deliveries/x/attempts", "GET"),
        ("/health", "GET"),
    ],
)
async def test_another_method_is_refused_and_the_right_ones_are_named(
    client: httpx2.AsyncClient, path: str, allowed: str
) -> None:
    for method in ("PUT", "PATCH", "DELETE", "TRACE", "OPTIONS"):
        answer = await client.request(method, path, headers={"x-http-method-override": "GET"})
        assert (answer.status_code, answer.headers["allow"], answer.json()["code"]) == (405, allowed, "method_not_allowed")


def test_every_error_that_a_face_can_meet_has_a_status_and_a_sentence() -> None:
    told = {errors.SettingsError, errors.LockedError, errors.IllegalTransitionError}
    found = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.CampanaError)}

    assert found - told - {errors.CampanaError} == set(problems.STATUS)
    assert len({one.code for one in found}) == len(found)


async def test_a_database_that_is_away_is_said_with_a_time_to_come_back(
    here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.get("/v1/deliveries")

    async def away(*args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(retry_after=7)

    monkeypatch.setattr(here.house.office.database, "write", away)
    answer = await client.post("/v1/deliveries", json=wanted())

    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "unavailable", "7")


async def test_a_bug_shows_nothing_of_the_inside(here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: Any, **kwargs: Any) -> Any:
        message = "the password is hunter2"
        raise RuntimeError(message)

    monkeypatch.setattr(here.house.office.database, "write", broken)
    answer = await client.post("/v1/deliveries", json=wanted())

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    assert here.house.telemetry.counts["api.bug"] == 1


async def test_health_answers_anybody(here: Site) -> None:
    answer = await (await here.bare()).get("/health")

    assert (answer.status_code, answer.json()) == (200, {"status": "healthy", "service": "campana"})


async def test_what_waits_is_cancelled_at_once(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()

    answer = await client.post(f"/v1/deliveries/{made['id']}/cancel")

    shown = answer.json()
    assert answer.status_code == 200
    assert (shown["status"], shown["reason"], shown["cancel_requested"]) == ("cancelled", "cancelled", False)
    assert shown["finished_at"] is not None
    assert shown == {
        name: value for name, value in (await client.get(f"/v1/deliveries/{made['id']}")).json().items() if name != "attempts"
    }


async def test_what_is_tried_again_later_is_cancelled_at_once(here: Site, client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()
    await here.force(made["id"], state=int(State.PENDING_RETRY), attempt_count=1)
    assert (await client.get(f"/v1/deliveries/{made['id']}")).json()["next_retry_at"] == made["due_at"]

    answer = await client.post(f"/v1/deliveries/{made['id']}/cancel", json={})

    assert (answer.status_code, answer.json()["status"], answer.json()["next_retry_at"]) == (200, "cancelled", None)


@pytest.mark.parametrize("state", [State.PROCESSING, State.IN_PROGRESS])
async def test_cancelling_what_is_under_way_is_a_request(here: Site, client: httpx2.AsyncClient, state: State) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()
    await here.force(made["id"], state=int(state))

    for _ in range(2):
        answer = await client.post(f"/v1/deliveries/{made['id']}/cancel")
        shown = answer.json()
        assert (answer.status_code, shown["status"], shown["cancel_requested"]) == (202, state.word, True)


@pytest.mark.parametrize("state", sorted(FINAL), ids=lambda state: state.word)
async def test_what_has_ended_can_not_be_cancelled(here: Site, client: httpx2.AsyncClient, state: State) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()
    await here.force(made["id"], state=int(state), wake_at=None, finished_at=here.now)

    answer = await client.post(f"/v1/deliveries/{made['id']}/cancel")

    assert (answer.status_code, answer.json()["code"]) == (409, "already_final")
    assert state.word in answer.json()["detail"]
    assert (await client.get(f"/v1/deliveries/{made['id']}")).json()["status"] == state.word


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 200), (b"{}", 200), (b" ", 200), (b'{"reason": "x"}', 422), (b"[]", 422), (b"{", 400), (b"x" * (1 << 21), 413)],
)
async def test_a_body_of_a_cancel_may_say_nothing(client: httpx2.AsyncClient, content: bytes, status: int) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()

    answer = await client.post(f"/v1/deliveries/{made['id']}/cancel", content=content)

    assert answer.status_code == status
    ended = "cancelled" if status == 200 else "scheduled"
    assert (await client.get(f"/v1/deliveries/{made['id']}")).json()["status"] == ended


async def test_an_attempt_is_shown_with_its_delivery_in_short_and_by_itself_in_full(
    here: Site, client: httpx2.AsyncClient
) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()
    row = {
        "delivery_id": UUID(made["id"]),
        "tenant_id": here.tenants["default"],
        "fence": 1,
        "generation": 1,
        "number": 1,
        "key_number": 1,
        "started_at": here.now,
        "finished_at": here.now,
        "outcome": "failed",
        "ambiguous": True,
        "late": False,
        "response_code": 503,
        "response_headers": '[["server", "x"]]',
        "response_body": "x" * 5_000,
        "worker": uuid4(),
    }
    await here.house.office.database.write(_add_attempt, row)

    [full] = (await client.get(f"/v1/deliveries/{made['id']}/attempts")).json()["items"]
    [short] = (await client.get(f"/v1/deliveries/{made['id']}")).json()["attempts"]

    assert full["response_body"] == "x" * 5_000
    assert full == short | {"response_body": full["response_body"]}
    assert len(short["response_body"]) == 1_000
    assert (full["number"], full["outcome"], full["ambiguous"], full["response_code"]) == (1, "failed", True, 503)
    assert full["response_headers"] == {"server": "x"}
    assert full["idempotency_key"] == made["idempotency_key"]


def _add_attempt(connection: Any, row: dict[str, Any]) -> None:
    from campana.store import schema

    connection.execute(schema.attempts.insert(), row)


async def test_cancelling_in_parallel_ends_it_once(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()

    answers = await asyncio.gather(*(client.post(f"/v1/deliveries/{made['id']}/cancel") for _ in range(8)))

    assert {answer.status_code for answer in answers} <= {200, 409}
    assert 200 in {answer.status_code for answer in answers}
    assert len({answer.json()["finished_at"] for answer in answers if answer.status_code == 200}) == 1
