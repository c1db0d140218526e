"""Projects over REST: who sees which, and the rotation of what their webhooks are signed with."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from campana import store
from tests.api.site import Site, pointers, wanted

ROTATE = "/v1/projects/{}/webhook-secrets/rotate"
SECRETS = "/v1/projects/{}/webhook-secrets"
SHOWN = {"id", "number", "state", "created_at", "expires_at", "who"}


async def rotate(client: httpx2.AsyncClient, project: str = "default", **said: Any) -> httpx2.Response:
    return await client.post(ROTATE.format(project), json=said)


async def secrets(client: httpx2.AsyncClient, project: str = "default") -> list[dict[str, Any]]:
    answer = await client.get(SECRETS.format(project))
    assert (answer.status_code, answer.json()["next_cursor"]) == (200, None), answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_projects_are_listed_by_name_and_read_by_id_or_name(here: Site) -> None:
    client, side = await here.client(), await here.project("default", "side")
    items = (await client.get("/v1/projects")).json()["items"]
    assert [one["name"] for one in items] == ["default", "side"]
    assert items[1] == {"id": str(side), "name": "side", "created_at": items[1]["created_at"]}
    for said in (str(side), "side"):
        assert (await client.get(f"/v1/projects/{said}")).json() == items[1]


async def test_a_rotation_shows_the_new_secret_once_and_the_older_ones_retire(here: Site) -> None:
    client = await here.client()
    first, second = (await rotate(client)).json(), (await rotate(client, overlap="2h")).json()
    assert {"secret", "older_until"} | SHOWN == first.keys() == second.keys()
    assert (first["number"], second["number"], second["state"], second["expires_at"]) == (1, 2, "current", None)
    assert second["who"].startswith("key:")
    for one in (first, second):
        assert one["secret"].startswith("whsec_")
        assert len(base64.b64decode(one["secret"].removeprefix("whsec_"), validate=True)) == 32
    assert first["secret"] != second["secret"]
    assert at(second["older_until"]) - at(second["created_at"]) == timedelta(hours=2)
    listed = await secrets(client)
    assert [one.keys() for one in listed] == [SHOWN] * 2
    assert [(one["number"], one["state"], one["expires_at"]) for one in listed] == [
        (2, "current", None),
        (1, "retiring", second["older_until"]),
    ]


async def test_without_a_word_the_overlap_is_a_day_and_with_none_the_older_ones_end_at_once(here: Site) -> None:
    client = await here.client()
    one = (await rotate(client)).json()
    assert at(one["older_until"]) - at(one["created_at"]) == timedelta(days=1)
    await rotate(client, overlap="0s")
    assert [one["state"] for one in await secrets(client)] == ["current", "expired"]


async def test_a_rotation_needs_no_body_and_a_body_still_needs_its_type(here: Site) -> None:
    client = await here.client()
    assert (await client.post(ROTATE.format("default"))).json()["number"] == 1
    assert (await client.post(ROTATE.format("default"), content=b"")).json()["number"] == 2
    assert (await client.post(ROTATE.format("default"), content=b"{}")).status_code == 415
    assert len(await secrets(client)) == 2


@pytest.mark.parametrize("overlap", ["30d", "720h", "P30D"])
async def test_the_longest_overlap_is_thirty_days(here: Site, overlap: str) -> None:
    assert (await rotate(await here.client(), overlap=overlap)).status_code == 200


@pytest.mark.parametrize(
    ("overlap", "code"),
    [("31d", "duration"), ("30d1s", "duration"), ("-1s", "duration"), ("24", "duration"), ("", "duration"), (24, "wrong_type"),
     (None, "wrong_type"), ("1" * 61, "string_too_long")],
)  # fmt: skip
async def test_an_overlap_that_is_none_is_refused_by_name_and_nothing_is_rotated(here: Site, overlap: Any, code: str) -> None:
    client = await here.client()
    assert pointers(await rotate(client, overlap=overlap)) == {("/overlap", code)}
    assert pointers(await rotate(client, secret="whsec_mine")) == {("/secret", "unknown_field")}
    assert await secrets(client) == []


async def test_a_sixth_secret_in_force_is_refused_and_says_what_to_do(here: Site) -> None:
    client = await here.client()
    for _ in range(5):
        await rotate(client)
    refused = await rotate(client)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "0s" in refused.json()["detail"]
    assert (await rotate(client, overlap="0s")).json()["number"] == 6
    assert [one["state"] for one in await secrets(client)] == ["current", *["expired"] * 5]


async def test_anothers_project_and_its_secrets_are_as_little_there_as_what_never_was(here: Site) -> None:
    owner, stranger = await here.client(), await here.client(tenant="other")
    side, elsewhere = await here.project("default", "side"), await here.project("default", "elsewhere")
    insider = await here.client(project="side")
    assert [one["name"] for one in (await insider.get("/v1/projects")).json()["items"]] == ["side"]
    for client, hidden in ((stranger, (str(side), "side")), (insider, (str(elsewhere), "elsewhere", "default"))):
        for path, method in (("/v1/projects/{}", "GET"), (SECRETS, "GET"), (ROTATE, "POST")):
            body: dict[str, str] | None = {} if method == "POST" else None
            answers = [
                await client.request(method, path.format(said), json=body)
                for said in (*hidden, str(uuid4()), "nowhere", "no project")
            ]
            assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
    assert (await rotate(insider, "side")).status_code == 200
    assert len(await secrets(owner, "side")) == 1
    assert await secrets(owner, "elsewhere") == await secrets(stranger) == []


async def test_a_new_secret_is_kept_by_no_cache(here: Site) -> None:
    assert (await rotate(await here.client())).headers["cache-control"] == "no-store"


async def test_a_rotation_is_an_event_of_its_tenant_that_names_who_did_it(here: Site) -> None:
    client = await here.client()
    made = (await rotate(client)).json()
    (event,) = await here.house.office.database.read(lambda c: c.execute(store.schema.events.select()).all())
    said = json.loads(event.data)
    assert (event.kind, event.tenant_id) == ("project.secret_rotated", here.tenants["default"])
    assert (said["actor"], said["number"], said["older_until"]) == (made["who"], 1, made["older_until"])


async def test_no_answer_no_log_and_no_file_holds_a_secret_but_the_answer_to_its_rotation(
    here: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    client = await here.client()
    made = (await rotate(client)).json()
    canary = made["secret"].removeprefix("whsec_")
    raw = base64.b64decode(canary)
    delivery = (await client.post("/v1/deliveries", json=wanted())).json()["id"]
    answers = [
        await rotate(client),
        await rotate(client, overlap="never"),
        await client.post(ROTATE.format("default"), content=b"{"),
        *[
            await client.get(path)
            for path in (
                *("/v1/projects", "/v1/projects/default", SECRETS.format("default"), "/v1/deliveries", "/v1/switches"),
                *(f"/v1/deliveries/{delivery}", f"/v1/deliveries/{delivery}/explain", "/openapi.json"),
            )
        ],
    ]
    said = capfd.readouterr()
    texts = [answer.text for answer in answers] + [said.out, said.err]
    assert not [text for text in texts if canary in text or raw.hex() in text]
    kept = b"".join(path.read_bytes() for path in here.house.settings.home.iterdir() if path.is_file())
    assert not [one for one in (canary.encode(), raw, raw.hex().encode()) if one in kept]
    assert str(made["id"]).replace("-", "") in kept.hex(), "its row is there, though"
