"""One tenant, one world; a key does what its scopes say, and nothing without one."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from fastapi.routing import APIRoute

from campana import store
from campana.operations import keys
from campana.web import app
from tests.api.site import Site, wanted

OPEN = {"/health"}
PROTECTED = [
    (method, route.path_format) for route in app.routes() for method in sorted(route.methods or ()) if route.path not in OPEN
]
WITH_ID = [(method, path) for method, path in PROTECTED if "{" in path]
READS = {"GET"}
READING = {"/v1/schedules/preview"}
"""POSTs that change nothing."""
INSTALLATION = {"/v1/engine/release"}


def named(method: str, path: str) -> str:
    return f"{method} {path}"


BODIES = {"rotate": {}, "resolve": {"effect": "sent"}, "reschedule": {"at": "2199-01-01T00:00:00Z"}}
"""For routes that read one before they look for anything."""


async def ask(client: httpx2.AsyncClient, method: str, path: str, its_id: str = "") -> httpx2.Response:
    body = BODIES.get(path.rpartition("/")[2])
    return await client.request(method, re.sub(r"\{\w+\}", its_id or str(uuid4()), path), json=body)


def told(answer: httpx2.Response) -> tuple[int, bytes, dict[str, str]]:
    return answer.status_code, answer.content, {name: value for name, value in answer.headers.items() if name != "date"}


def test_the_list_of_routes_is_the_whole_list(here: Site) -> None:
    found = app.build(here.house.office).openapi()["paths"]

    listed = {(route.path_format, method) for route in app.routes() for method in route.methods or ()}
    assert listed == {(path, method.upper()) for path, item in found.items() for method in item}
    assert all(isinstance(route, APIRoute) for router in app.ROUTERS for route in router.routes)
    assert WITH_ID


@pytest.mark.parametrize(("method", "path"), WITH_ID, ids=[named(*one) for one in WITH_ID])
async def test_what_is_anothers_is_as_little_there_as_what_never_was(here: Site, method: str, path: str) -> None:
    owner, stranger = await here.client(), await here.client(tenant="other")
    insider = await here.client(project="side")
    delivery_id = (await owner.post("/v1/deliveries", json=wanted())).json()["id"]

    for client in (stranger, insider):
        theirs = told(await ask(client, method, path, delivery_id))
        assert theirs == told(await ask(client, method, path))
        assert theirs == told(await ask(client, method, path, "not-an-id"))
        assert theirs[0] == 404
    assert (await owner.get(f"/v1/deliveries/{delivery_id}")).json()["status"] == "scheduled"


@pytest.mark.parametrize("spelled", ["{{{}}}", "urn:uuid:{}", "{:.8}", " {}", "{}%00", "{}%20", "%F0%9F%98%80"])
async def test_an_id_has_one_spelling(client: httpx2.AsyncClient, spelled: str) -> None:
    delivery_id = (await client.post("/v1/deliveries", json=wanted())).json()["id"]

    assert (await client.get(f"/v1/deliveries/{spelled.format(delivery_id)}")).status_code == 404
    assert (await client.get(f"/v1/deliveries/{delivery_id.upper()}")).status_code == 200


async def test_a_list_shows_nothing_of_another_tenant(here: Site) -> None:
    owner, stranger = await here.client(), await here.client(tenant="other")
    await owner.post("/v1/deliveries", json=wanted(recipient="a", labels={"b": "c"}))

    for query in ("", "?recipient=a", "?label.b=c", "?status=scheduled", "?project=default"):
        assert (await stranger.get(f"/v1/deliveries{query}")).json() == {"items": [], "next_cursor": None}


async def test_a_key_with_a_project_sees_and_makes_what_is_in_it_alone(here: Site) -> None:
    owner, insider = await here.client(), await here.client(project="side")
    elsewhere = (await owner.post("/v1/deliveries", json=wanted())).json()

    made = (await insider.post("/v1/deliveries", json=wanted())).json()

    assert (elsewhere["project"], made["project"]) == ("default", "side")
    assert [one["id"] for one in (await insider.get("/v1/deliveries")).json()["items"]] == [made["id"]]
    assert [one["id"] for one in (await owner.get("/v1/deliveries?project=side")).json()["items"]] == [made["id"]]
    refused = await insider.post("/v1/deliveries", json=wanted(project="default"))
    unknown = await insider.post("/v1/deliveries", json=wanted(project="nowhere"))
    assert refused.status_code == unknown.status_code == 422
    assert refused.text.replace("default", "nowhere") == unknown.text
    assert (await insider.get("/v1/deliveries?project=default")).status_code == 422


async def test_a_dedupe_key_of_another_project_is_known_and_its_delivery_is_not_shown(here: Site) -> None:
    owner, insider = await here.client(), await here.client(project="side")
    await owner.post("/v1/deliveries", json=wanted(dedupe_key="k", payload="not for others"))

    alone = await insider.post("/v1/deliveries", json=wanted(dedupe_key="k"))
    batch = await insider.post("/v1/deliveries/batch", json=[wanted(dedupe_key="k")])

    assert (alone.status_code, alone.json()) == (200, {"deduplicated": True, "delivery": None})
    assert batch.json()["items"] == [{"index": 0, "status": 200, "delivery": {"deduplicated": True, "delivery": None}}]


@pytest.mark.parametrize(("method", "path"), PROTECTED, ids=[named(*one) for one in PROTECTED])
async def test_a_key_without_the_scope_is_refused_before_anything_else(here: Site, method: str, path: str) -> None:
    reads = method in READS or path in READING
    other_scope = "write" if reads else "read"
    for scopes in (other_scope, "", "installation", "owners", "readwrite"):
        answer = await ask(await here.client(scopes=scopes), method, path)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")

    scopes = ("read" if reads else "write") + (" installation" if path in INSTALLATION else "")
    right = await ask(await here.client(scopes=scopes), method, path)
    assert right.status_code not in (401, 403)


@pytest.mark.parametrize(("method", "path"), PROTECTED, ids=[named(*one) for one in PROTECTED])
async def test_without_a_good_key_every_route_says_the_same(here: Site, method: str, path: str) -> None:
    good = await here.make_key()
    expired = await here.make_key(expires_at=here.now - timedelta(seconds=1))
    revoked = await here.make_key()
    await here.house.office.database.write(_revoke, keys.digest(revoked), here.now)
    asked = [
        *(f"Bearer {one}" for one in (expired, revoked, good[:-1], good + "x", good.upper(), good[4:], "x", "cmp_", "é" * 50)),
        *("", "Bearer", f"Basic {good}", good, f"Token {good}", f"Bearer {good} x", f"Bearer {'a' * 9_000}"),
    ]
    answers = [await (await here.bare()).request(method, path)]
    answers += [await (await here.bare()).request(method, path, headers={b"authorization": one.encode()}) for one in asked]
    answers.append(await (await here.bare(cookie=f"key={good}")).request(method, f"{path}?key={good}&authorization={good}"))

    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer realm="campana"'}


def _revoke(connection: Any, digest: bytes, now: datetime) -> None:
    table = store.schema.keys
    connection.execute(table.update().where(table.c.hash == digest).values(revoked_at=now))


async def test_a_key_is_neither_logged_nor_kept(here: Site, capfd: pytest.CaptureFixture[str]) -> None:
    key = await here.make_key()
    client = await here.bare(authorization=f"Bearer {key}")
    await client.post("/v1/deliveries", json=wanted())
    await client.post("/v1/deliveries", content=b"{")
    await (await here.bare(authorization=f"Bearer {key}x")).get("/v1/deliveries")

    said = capfd.readouterr()
    assert key not in said.out + said.err
    kept = b"".join(path.read_bytes() for path in here.house.settings.home.iterdir() if path.is_file())
    assert key.encode() not in kept
    assert keys.digest(key) in kept


async def test_ids_can_not_be_guessed_from_one_another(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries/batch", json=[wanted(), wanted()])
    first, second = (UUID(item["delivery"]["id"]) for item in answer.json()["items"])

    assert (first.version, second.version) == (7, 7)
    assert first.int & (1 << 62) - 1 != second.int & (1 << 62) - 1
