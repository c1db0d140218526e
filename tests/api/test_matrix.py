"""Every route, with every key that should not get in: whose thing it is, and whether it is there, shows in nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import uuid4

import httpx2
import pytest

from campana.web import app
from tests.api.site import Site, wanted
from tests.api.test_tenancy import BODIES, INSTALLATION, OPEN, READING, told

ROUTES = [
    (method, route.path_format) for route in app.routes() for method in sorted(route.methods or ()) if route.path not in OPEN
]
NAMED = [" ".join(one) for one in ROUTES]
WITH_ID = [(method, path) for method, path in ROUTES if "{" in path]
BODY = {
    "/v1/deliveries": wanted(),
    "/v1/deliveries/batch": [wanted()],
    "/v1/deliveries/redrive": {"channel": "log"},
    "/v1/deliveries/discard": {"channel": "log"},
    "/v1/deliveries/cancel": {"channel": "log"},
    "/v1/switches/{scope}": {"off": True},
    "/v1/projects/{project}/webhook-secrets/rotate": {},
    "/v1/schedules/preview": {"trigger": {"cron": "0 9 * * *"}},
}


@dataclass(frozen=True)
class Things:
    """What one tenant has, by the names of path parameters; a route with another one must say here what it is."""

    delivery_id: str
    operation_id: str
    scope: str
    project: str

    def at(self, path: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: str(getattr(self, found[1])), path)


async def things(here: Site, owner: httpx2.AsyncClient, tenant: str) -> Things:
    made = (await owner.post("/v1/deliveries", json=wanted())).json()["id"]
    begun = (await owner.post("/v1/deliveries/redrive", json={"recipient": "nobody"})).json()["operation"]
    project = (await here.house.office.database.read(_projects, await here.tenant(tenant)))[0]
    return Things(delivery_id=made, operation_id=begun, scope=f"project:{project}", project=project)


def _projects(connection: object, tenant_id: object) -> list[str]:
    from campana.store import tenants

    return [str(one.id) for one in tenants.projects_of(connection, tenant_id)]  # type: ignore[arg-type]  # as the store has them


def nothing() -> Things:
    return Things(delivery_id=str(uuid4()), operation_id=str(uuid4()), scope=f"project:{uuid4()}", project=str(uuid4()))


async def ask(client: httpx2.AsyncClient, method: str, path: str, its: Things, **headers: str) -> httpx2.Response:
    body = BODY.get(path, BODIES.get(path.rpartition("/")[2]))
    return await client.request(method, its.at(path), json=body, headers=headers)


@pytest.mark.parametrize(("method", "path"), WITH_ID, ids=[" ".join(one) for one in WITH_ID])
async def test_keys_of_others_get_the_same_404_for_what_is_there_and_what_is_not(here: Site, method: str, path: str) -> None:
    owner = await here.client()
    theirs = await things(here, owner, "default")
    before = (await owner.get(f"/v1/deliveries/{theirs.delivery_id}")).json()
    malformed = Things(delivery_id="1", operation_id="1", scope="project:1", project="1")

    for client in (await here.client(tenant="other"), await here.client(project="side")):
        for headers in ({}, {"idempotency-key": "one"}):
            answers = [told(await ask(client, method, path, its, **headers)) for its in (theirs, nothing(), malformed)]
            assert answers[0] == answers[1] == answers[2]
            assert answers[0][0] == 404
    assert (await owner.get(f"/v1/deliveries/{theirs.delivery_id}")).json() == before
    assert (await owner.get(f"/v1/operations/{theirs.operation_id}")).json()["status"] == "running"
    assert (await owner.get("/v1/switches")).json()["items"] == []


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=NAMED)
async def test_without_a_key_or_with_a_wrong_one_every_route_says_the_same_word_for_word(
    here: Site, method: str, path: str
) -> None:
    theirs = await things(here, await here.client(), "default")
    answers = [
        told(await ask(client, method, path, its, **headers))
        for client in (await here.bare(), await here.bare(Authorization="Bearer cmp_live_wrong"))
        for its in (theirs, nothing())
        for headers in ({}, {"idempotency-key": "one"})
    ]

    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 401


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=NAMED)
async def test_a_key_that_may_not_hears_no_more_of_what_is_there(here: Site, method: str, path: str) -> None:
    theirs = await things(here, await here.client(), "default")
    other_scope = "write" if method == "GET" or path in READING else "read"
    for client in (await here.client(scopes=other_scope), await here.client(scopes=other_scope, tenant="other")):
        answers = [told(await ask(client, method, path, its)) for its in (theirs, nothing())]
        assert answers[0] == answers[1]
        assert answers[0][0] == 403
    if path in INSTALLATION:
        assert (await ask(await here.client(), method, path, theirs)).status_code == 403


async def test_what_is_wide_is_refused_alike_whether_it_is_there_or_not(here: Site) -> None:
    stranger, tenant = await here.client(tenant="other"), await here.tenant("default")
    asked = [f"/v1/switches/tenant:{one}" for one in (tenant, uuid4())]
    answers = [told(await stranger.put(path, json={"off": True})) for path in asked]
    assert answers[0] == answers[1]
    assert answers[0][0] == 403


async def test_names_of_others_are_as_unknown_as_any(here: Site) -> None:
    await here.project("default", "secret-plans")
    stranger = await here.client(tenant="other")

    for path, said in (
        ("/v1/deliveries", wanted()),
        ("/v1/deliveries/cancel", {"channel": "log"}),
        ("/v1/deliveries/redrive", {}),
    ):
        theirs = await stranger.post(path, json=said | {"project": "secret-plans"})
        no_one = await stranger.post(path, json=said | {"project": "unheard-off"})
        assert theirs.status_code == 422
        assert theirs.text.replace("secret-plans", "unheard-off") == no_one.text
    lists = [await stranger.get(f"/v1/deliveries?project={name}") for name in ("secret-plans", "unheard-off")]
    assert lists[0].text.replace("secret-plans", "unheard-off") == lists[1].text


@pytest.mark.parametrize(
    "name", ["tenant_id", "tenant", "state", "status", "fence", "id", "created_at", "lease_owner", "project_id"]
)
async def test_nobody_can_say_what_is_not_theirs_to_say(here: Site, client: httpx2.AsyncClient, name: str) -> None:
    answer = await client.post("/v1/deliveries", json=wanted() | {name: str(uuid4())})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "unknown_field"
    assert (await client.get(f"/v1/deliveries?tenant_id={uuid4()}")).status_code == 422
    headers = {"x-tenant-id": str(await here.tenant("other")), "tenant": "other"}
    mine = await client.post("/v1/deliveries", json=wanted(), headers=headers)
    assert (await client.get(mine.headers["location"])).status_code == 200
