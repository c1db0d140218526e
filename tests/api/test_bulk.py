"""Acts on many deliveries: answered at once, done in the background, watched, stopped, and kept apart."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from campana import operations, store
from campana.domain.acts import Act
from campana.domain.deliveries import State
from campana.operations.office import Actor
from tests.api.site import Site, pointers, wanted


async def make(here: Site, client: httpx2.AsyncClient, **said: Any) -> str:
    """A dead letter's id."""
    made = (await client.post("/v1/deliveries", json=wanted(**said))).json()["id"]
    await here.force(made, state=int(State.DEAD_LETTER), wake_at=None, finished_at=here.now, reason="exhausted")
    return str(made)


async def begin(client: httpx2.AsyncClient, act: str, **said: Any) -> str:
    answer = await client.post(f"/v1/deliveries/{act}", json=said)
    assert answer.status_code == 202, answer.text
    path = f"/v1/operations/{answer.json()['operation']}"
    assert answer.headers["location"] == path
    return path


async def finish(here: Site) -> None:
    """What an engine would do."""
    database = here.house.office.database
    while (it := await database.read(store.bulk.running, after=None)) is not None:
        await database.write(store.bulk.advance, it, now=here.now)


async def status(client: httpx2.AsyncClient, delivery_id: str) -> str:
    return str((await client.get(f"/v1/deliveries/{delivery_id}")).json()["status"])


@pytest.mark.parametrize(("act", "ends"), [("redrive", "scheduled"), ("discard", "cancelled")])
async def test_letters_that_match_are_changed_and_the_operation_says_how_many(
    here: Site, client: httpx2.AsyncClient, act: str, ends: str
) -> None:
    mine, other = await make(here, client, recipient="anna"), await make(here, client, recipient="ben")
    path = await begin(client, act, recipient="anna")
    running = (await client.get(path)).json()
    assert (running["kind"], running["status"], running["total"], running["done"]) == (act, "running", None, 0)
    await finish(here)
    ended = (await client.get(path)).json()
    assert (ended["status"], ended["total"], ended["done"], ended["failed"]) == ("finished", 1, 1, 0)
    assert (await status(client, mine), await status(client, other)) == (ends, "dead_letter")
    assert ended["actor"].startswith("key:")


async def test_an_empty_filter_means_every_letter(here: Site, client: httpx2.AsyncClient) -> None:
    letters = [await make(here, client) for _ in range(3)]
    await begin(client, "redrive")
    await finish(here)
    assert [await status(client, one) for one in letters] == ["scheduled"] * 3


async def test_cancelling_by_filter_needs_one(here: Site, client: httpx2.AsyncClient) -> None:
    waiting = (await client.post("/v1/deliveries", json=wanted(labels={"a": "b"}))).json()["id"]
    other = (await client.post("/v1/deliveries", json=wanted())).json()["id"]
    nothings: list[dict[str, Any]] = [{}, {"labels": {}}, {"status": []}]
    for nothing in nothings:
        assert pointers(await client.post("/v1/deliveries/cancel", json=nothing)) == {("", "required")}
    path = await begin(client, "cancel", labels={"a": "b"}, status=["scheduled"])
    await finish(here)
    assert (await client.get(path)).json()["done"] == 1
    assert (await status(client, waiting), await status(client, other)) == ("cancelled", "scheduled")


async def test_an_operation_is_stopped_once_and_for_all(here: Site, client: httpx2.AsyncClient) -> None:
    letter = await make(here, client)
    path = await begin(client, "redrive")
    for _ in range(2):
        answer = await client.post(f"{path}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    await finish(here)
    assert await status(client, letter) == "dead_letter"
    ended = await begin(client, "redrive")
    await finish(here)
    answer = await client.post(f"{ended}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


async def test_an_operation_of_another_tenant_or_project_is_not_there(here: Site, client: httpx2.AsyncClient) -> None:
    letter = await make(here, client)
    path = await begin(client, "redrive")
    for other in (await here.client(tenant="other"), await here.client(project="side")):
        for method, where in (("GET", path), ("POST", f"{path}/cancel")):
            answer = await other.request(method, where)
            assert (answer.status_code, answer.json()["detail"]) == (404, "there is no operation with this id")
        theirs = await begin(other, "discard")
        await finish(here)
        assert (await other.get(theirs)).json()["total"] == 0
    assert await status(client, letter) == "scheduled"


async def test_a_key_with_a_project_changes_what_is_in_it_alone(here: Site, client: httpx2.AsyncClient) -> None:
    insider = await here.client(project="side")
    outside, inside = await make(here, client), await make(here, insider)
    path = await begin(insider, "discard")
    await finish(here)
    assert (await client.get(path)).json()["done"] == 1
    assert (await status(client, outside), await status(client, inside)) == ("dead_letter", "cancelled")
    assert (await insider.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("act", "body", "found"),
    [
        ("redrive", {"status": ["dead_letter"]}, {("/status", "unknown_field")}),
        ("redrive", {"channel": 1, "due_to": "soon"}, {("/channel", "wrong_type"), ("/due_to", "instant")}),
        ("discard", {"project": "nowhere", "x": 1}, {("/project", "unknown_project"), ("/x", "unknown_field")}),
        ("discard", {"recipient": ""}, {("/recipient", "string_too_short")}),
        ("discard", [], {("", "wrong_type")}),
        ("cancel", {"status": ["completed"]}, {("/status/0", "not_one_of")}),
        ("cancel", {"labels": {"a": 1}}, {("/labels/a", "wrong_type")}),
    ],
)
async def test_bad_filters_name_every_fault(client: httpx2.AsyncClient, act: str, body: Any, found: set[tuple[str, str]]) -> None:
    assert pointers(await client.post(f"/v1/deliveries/{act}", json=body)) == found


async def test_a_person_at_the_machine_can_move_it_on(here: Site, client: httpx2.AsyncClient) -> None:
    letter = await make(here, client)
    actor = Actor(
        tenant_id=await here.tenant("default"), project_id=None, key_id=here.house.world.new_id(), scopes=frozenset(), name="me"
    )
    begun = await operations.bulk.begin(here.house.office, actor, Act.REDRIVE, {})
    record = await operations.bulk.work(here.house.office, actor, begun)
    assert (record.status, record.done, record.actor) == ("finished", 1, "me")
    assert await status(client, letter) == "scheduled"
