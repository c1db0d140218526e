"""Redrive, discard, resolve, reschedule: what they answer, and what stands against them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from campana import store
from campana.domain.deliveries import State
from tests.api.site import Site, pointers, wanted

FAR = "2199-06-01T00:00:00Z"


async def letter(here: Site, client: httpx2.AsyncClient, **values: Any) -> str:
    """The path of a dead letter; `values` are columns."""
    made = (await client.post("/v1/deliveries", json=wanted())).json()
    row: dict[str, Any] = {"wake_at": None, "finished_at": here.now, "attempt_count": 3, "reason": "exhausted"}
    await here.force(made["id"], **{"state": int(State.DEAD_LETTER), "ambiguous_attempts": 1} | row | values)
    return f"/v1/deliveries/{made['id']}"


async def test_a_redriven_letter_is_scheduled_with_new_attempt_keys_and_the_same_delivery_key(
    here: Site, client: httpx2.AsyncClient
) -> None:
    path = await letter(here, client)
    before = (await client.get(path)).json()
    answer = await client.post(f"{path}/redrive")
    after = answer.json()
    assert (answer.status_code, after["status"], after["generation"], after["attempt_count"]) == (200, "scheduled", 2, 0)
    assert (after["reason"], after["finished_at"], after["delivery_key"]) == ("redriven", None, before["delivery_key"])
    assert after["idempotency_key"] != before["idempotency_key"]


async def test_a_discarded_letter_is_cancelled_and_says_so(here: Site, client: httpx2.AsyncClient) -> None:
    answer = await client.post(f"{await letter(here, client)}/discard")
    assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (200, "cancelled", "discarded")


@pytest.mark.parametrize(("effect", "status", "generation"), [("sent", "completed", 1), ("not_sent", "scheduled", 2)])
async def test_a_person_decides_what_nobody_else_can_tell(
    here: Site, client: httpx2.AsyncClient, effect: str, status: str, generation: int
) -> None:
    path = await letter(here, client, reason="ambiguous")
    answer = await client.post(f"{path}/resolve", json={"effect": effect, "note": "asked them"})
    assert (answer.status_code, answer.json()["status"], answer.json()["generation"]) == (200, status, generation)
    assert answer.json()["ambiguous_attempts"] == 1


async def test_what_waits_is_moved(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()
    answer = await client.post(f"/v1/deliveries/{made['id']}/reschedule", json={"at": FAR})
    assert (answer.status_code, answer.json()["due_at"], answer.json()["scheduled_for"]) == (200, FAR, made["scheduled_for"])
    local = {"at": "2199-06-01T09:00", "timezone": "Europe/London"}
    moved = await client.post(f"/v1/deliveries/{made['id']}/reschedule", json=local)
    assert moved.json()["due_at"] == "2199-06-01T08:00:00Z"


async def test_each_rings_the_engine(here: Site, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await letter(here, client)
    rung: list[object] = []
    object.__setattr__(here.house.office, "ring", rung.append)
    await client.post(f"{path}/redrive")
    await client.post(f"{path}/reschedule", json={"at": FAR})
    assert len(rung) == 2
    assert rung[1] == here.now.replace(year=2199, month=6, day=1, hour=0, minute=0, second=0, microsecond=0)


@pytest.mark.parametrize("act", ["redrive", "discard", "resolve"])
async def test_what_is_no_dead_letter_is_a_conflict_that_names_the_state(client: httpx2.AsyncClient, act: str) -> None:
    made = (await client.post("/v1/deliveries", json=wanted())).json()
    answer = await client.post(f"/v1/deliveries/{made['id']}/{act}", json={"effect": "sent"} if act == "resolve" else None)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "scheduled" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("state", "code"), [(State.COMPLETED, "already_final"), (State.DEAD_LETTER, "already_final"), (State.PROCESSING, "conflict")]
)
async def test_only_what_waits_is_moved(here: Site, client: httpx2.AsyncClient, state: State, code: str) -> None:
    path = await letter(here, client, state=int(state))
    answer = await client.post(f"{path}/reschedule", json={"at": FAR})
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert state.word in answer.json()["detail"]


async def test_what_is_certain_is_not_resolved(here: Site, client: httpx2.AsyncClient) -> None:
    path = await letter(here, client, ambiguous_attempts=0)
    answer = await client.post(f"{path}/resolve", json={"effect": "not_sent"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


async def test_what_has_expired_is_not_redriven_into_a_skip(here: Site, client: httpx2.AsyncClient) -> None:
    path = await letter(here, client, expires_at=here.now - timedelta(seconds=1))
    assert (await client.post(f"{path}/redrive")).status_code == 409
    assert (await client.get(path)).json()["status"] == "dead_letter"
    assert (await client.post(f"{path}/discard")).status_code == 200


async def test_nothing_is_moved_past_its_expiry(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v1/deliveries", json=wanted(expires_after="1h"))).json()
    answer = await client.post(f"/v1/deliveries/{made['id']}/reschedule", json={"at": FAR})
    assert pointers(answer) == {("/at", "after_expiry")}


@pytest.mark.parametrize(
    ("act", "body", "found"),
    [
        ("reschedule", {}, {("/at", "required")}),
        ("reschedule", {"at": 5, "x": 1}, {("/at", "wrong_type"), ("/x", "unknown_field")}),
        ("reschedule", {"at": "2199-06-01T09:00", "x": 1}, {("/timezone", "required"), ("/x", "unknown_field")}),
        ("reschedule", {"at": "2199-06-01T09:00", "timezone": "Mars/Base"}, {("/timezone", "unknown_timezone")}),
        ("reschedule", {"at": "2020-01-01T00:00:00Z"}, {("/at", "at_in_past")}),
        ("reschedule", {"at": "soon", "late": 1}, {("/at", "instant"), ("/late", "not_one_of")}),
        ("reschedule", [], {("", "wrong_type")}),
        ("resolve", {}, {("/effect", "required")}),
        ("resolve", {"effect": "maybe", "note": 7}, {("/effect", "not_one_of"), ("/note", "wrong_type")}),
        ("resolve", {"effect": "sent", "note": "x" * 501}, {("/note", "string_too_long")}),
        ("redrive", {"x": 1}, {("/x", "unknown_field")}),
        ("discard", {"x": 1, "y": 2}, {("/x", "unknown_field"), ("/y", "unknown_field")}),
    ],
)
async def test_bad_input_names_every_fault(
    here: Site, client: httpx2.AsyncClient, act: str, body: Any, found: set[tuple[str, str]]
) -> None:
    path = await letter(here, client)
    before = (await client.get(path)).json()
    assert pointers(await client.post(f"{path}/{act}", json=body)) == found
    assert (await client.get(path)).json() == before


async def test_a_key_is_named_on_the_record(here: Site, client: httpx2.AsyncClient) -> None:
    path = await letter(here, client)
    await client.post(f"{path}/resolve", json={"effect": "sent", "note": "asked them"})
    database, tenant = here.house.office.database, await here.tenant("default")
    made = (await client.get(path)).json()["id"]
    (record,) = await database.read(store.attempts.verdicts_of_delivery, tenant, UUID(made))
    assert (record.verdict, record.note, record.actor[:4]) == ("sent", "asked them", "key:")
