"""Switches over REST: who may throw which, what is kept of it, and what a stopped delivery shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from campana import store
from campana.domain import switches
from campana.errors import UnavailableError
from tests.api import site
from tests.api.site import Site, pointers, wanted

SOMEBODY = UUID(int=7)
STOP = {"off": True, "reason": "it repeats calls"}


async def put(client: httpx2.AsyncClient, scope: str, said: Any = None) -> httpx2.Response:
    return await client.put(f"/v1/switches/{scope}", json=STOP if said is None else said)


async def off(here: Site) -> frozenset[str]:
    return await here.house.office.database.read(store.switches.off)


@pytest.mark.parametrize("scope", ["tenant", "channel:voice", "project:default", f"schedule:{SOMEBODY}"])
async def test_a_switch_is_thrown_listed_and_lifted_with_who_and_why(here: Site, scope: str) -> None:
    client, began = await here.client(), here.now
    thrown = await put(client, scope)
    assert thrown.status_code == 200, thrown.text
    one = thrown.json()
    assert (one["off"], one["reason"], one["actor"][:4]) == (True, STOP["reason"], "key:")
    assert one["changed_at"] >= began.isoformat()[:19]
    assert (await client.get("/v1/switches")).json() == {"items": [one], "next_cursor": None}
    (full,) = await off(here)
    assert full.startswith(f"tenant:{here.tenants['default']}")
    lifted = (await put(client, one["scope"], {"off": False})).json()
    assert (lifted["scope"], lifted["off"], lifted["reason"]) == (one["scope"], False, "")
    assert await off(here) == frozenset()


@pytest.mark.parametrize("encode", [False, True])
async def test_an_operator_of_the_installation_throws_what_is_over_tenants(here: Site, encode: bool) -> None:
    client, other = await here.client(scopes="owner installation"), await here.tenant("other")
    for scope, full in (
        ("all", "all"),
        ("all/channel:sms", "all/channel:sms"),
        ("all/hold", "all/hold"),
        (f"tenant:{other}", f"all/tenant:{other}"),
    ):
        answer = await put(client, scope.replace("/", "%2F") if encode else scope)
        assert (answer.status_code, answer.json()["scope"]) == (200, scope)
        assert full in await off(here)
    items = (await client.get("/v1/switches")).json()["items"]
    assert [one["scope"] for one in items] == ["all", "all/channel:sms", "all/hold", f"tenant:{other}"]


async def test_what_the_operators_stop_a_tenant_can_not_lift_and_is_told_of(here: Site) -> None:
    operator, owner = await here.client(scopes="owner installation"), await here.client(tenant="other")
    theirs = here.tenants["other"]
    await put(operator, f"tenant:{theirs}")
    for scope in ("all", "all/channel:sms", "all/hold", f"tenant:{theirs}", "all/tenant:x"):
        refused = await put(owner, scope, {"off": False})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert (await put(owner, "tenant", {"off": False})).status_code == 200
    assert await off(here) == {switches.over(theirs)}
    assert (await owner.get("/v1/switches")).json()["items"][0]["scope"] == "tenant"
    events = await here.house.office.database.read(lambda c: c.execute(store.schema.events.select()).all())
    assert [(event.kind, event.tenant_id) for event in events] == [("switch.changed", theirs)] * 2


@pytest.mark.parametrize(
    "scope",
    [
        "x",
        "tenants",
        "channel:",
        "channel:webhok",
        "project:nowhere",
        "schedule:7",
        "all/channel:x",
        "all/x",
        f"tenant:{SOMEBODY}",
    ],
)
async def test_a_scope_that_would_stop_nothing_is_refused(here: Site, scope: str) -> None:
    client = await here.client(scopes="owner installation")
    answer = await put(client, scope)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "expected tenant, project:" in answer.json()["detail"]
    assert await off(here) == frozenset()


async def test_anothers_project_is_not_there_and_a_key_of_a_project_stops_that_one_alone(here: Site) -> None:
    elsewhere = await here.project("other", "theirs")
    side, default = await here.project("default", "side"), await here.project("default", "default")
    owner, insider = await here.client(), await here.client(project="side")
    assert (await put(owner, f"project:{elsewhere}")).status_code == 404
    for scope in ("tenant", "channel:log", f"project:{default}", "project:default", f"schedule:{SOMEBODY}"):
        assert (await put(insider, scope)).status_code == 404
    assert (await put(insider, "project:side")).json()["scope"] == f"project:{side}"
    await put(owner, "tenant")
    assert [one["scope"] for one in (await insider.get("/v1/switches")).json()["items"]] == [f"project:{side}"]


async def test_every_fault_of_the_body_is_named(here: Site) -> None:
    client = await here.client()
    assert pointers(await put(client, "tenant", {"off": 1, "reason": None, "x": 1})) == {
        ("/off", "wrong_type"),
        ("/reason", "wrong_type"),
        ("/x", "unknown_field"),
    }
    assert pointers(await put(client, "tenant", {"reason": "x" * 501})) == {("/off", "required"), ("/reason", "string_too_long")}
    assert pointers(await put(client, "tenant", [])) == {("", "wrong_type")}


async def test_a_safe_hold_is_lifted_by_an_operator_once(here: Site) -> None:
    operator, owner = await here.client(scopes="owner installation"), await here.client()
    await put(operator, "all/hold")
    assert (await owner.post("/v1/engine/release")).status_code == 403
    for expected in (True, False):
        answer = await operator.post("/v1/engine/release")
        assert (answer.status_code, answer.json()) == (200, {"released": expected})
    assert await off(here) == frozenset()


async def test_a_stopped_delivery_says_what_it_waits_for_and_goes_when_that_is_lifted(prepared: Path, tmp_path: Path) -> None:
    site.copy(prepared, tmp_path)
    async with site.open_site(tmp_path, with_engine=True) as here:
        client = await here.client()
        await put(client, "channel:log")
        await here.house.engine.tick_once()  # type: ignore[union-attr]  # it was asked for
        made = (await client.post("/v1/deliveries", json=wanted(at=None))).json()
        shown = await _until(client, made["id"], lambda one: one["held_by"])
        assert (shown["held_by"], shown["status"], shown["attempt_count"]) == ("channel:log", "scheduled", 0)
        await put(client, "channel:log", {"off": False})
        await _until(client, made["id"], lambda one: one["status"] == "completed")


async def test_once_the_file_is_replaced_nothing_is_taken_in_and_nothing_leaves(prepared: Path, tmp_path: Path) -> None:
    site.copy(prepared, tmp_path)
    async with site.open_site(tmp_path, with_engine=True) as here:
        client, engine = await here.client(), here.house.engine
        assert engine is not None
        assert (await client.post("/v1/deliveries", json=wanted())).status_code == 201
        (tmp_path / "campana.db").unlink()
        refused = await client.post("/v1/deliveries", json=wanted())
        assert (refused.status_code, "replaced or removed" in refused.json()["detail"]) == (503, True)
        assert (await client.get("/v1/deliveries")).status_code == 503
        with pytest.raises(UnavailableError):
            await engine.tick_once()


async def _until(client: httpx2.AsyncClient, delivery_id: str, is_so: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for _ in range(3_000):
        shown = (await client.get(f"/v1/deliveries/{delivery_id}")).json()
        if is_so(shown):
            return shown
    raise AssertionError(shown)
