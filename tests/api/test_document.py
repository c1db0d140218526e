"""The API's own description: whole, right about what the routes answer, and with examples that work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from pydantic import TypeAdapter

from campana.domain.deliveries import State
from campana.web import problems
from tests.api.site import NDJSON, Site, wanted

Document = dict[str, Any]


@pytest.fixture
async def document(here: Site) -> Document:
    answer = await (await here.bare()).get("/openapi.json")
    said: Document = answer.json()
    return said


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def schemas(node: Any) -> Iterator[Document]:
    """Every object in a document, however deep."""
    if isinstance(node, dict):
        yield node
        for one in node.values():
            yield from schemas(one)
    elif isinstance(node, list):
        for one in node:
            yield from schemas(one)


def resolve(document: Document, schema: Document) -> Document:
    while "$ref" in schema:
        node: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        schema = node
    return schema


KINDS: dict[str, TypeAdapter[Any]] = {
    "string": TypeAdapter(str),
    "integer": TypeAdapter(int),
    "number": TypeAdapter(float),
    "boolean": TypeAdapter(bool),
    "null": TypeAdapter(None),
    "object": TypeAdapter(dict),
    "array": TypeAdapter(list),
}


def faults(document: Document, schema: Document, value: Any, where: str = "") -> list[str]:
    """How a value departs from a schema, as far as our document uses the language of schemas."""
    schema = resolve(document, schema)
    for word in ("oneOf", "anyOf"):
        if word in schema and all(faults(document, one, value, where) for one in schema[word]):
            return [f"{where}: none of {word}"]
    if "const" in schema and value != schema["const"]:
        return [f"{where}: {value!r} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is not in {schema['enum']}"]
    kinds = schema.get("type", [])
    names = [kinds] if isinstance(kinds, str) else kinds
    if names and not any(_fits(name, value) for name in names):
        return [f"{where}: {value!r} is no {kinds}"]
    found = []
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{where}/{name}: missing" for name in schema.get("required", ()) if name not in value]
        if schema.get("additionalProperties") is False:
            found += [f"{where}/{name}: not described" for name in value if name not in properties]
        for name in value.keys() & properties.keys():
            found += faults(document, properties[name], value[name], f"{where}/{name}")
    if isinstance(value, list) and "items" in schema:
        for place, one in enumerate(value):
            found += faults(document, schema["items"], one, f"{where}/{place}")
    return found


def _fits(name: str, value: Any) -> bool:
    try:
        KINDS[name].validate_python(value, strict=True)
    except ValueError:
        return False
    return True


def test_the_checker_itself_finds_faults() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
        "properties": {"a": {"type": ["string", "null"]}},
    }

    assert faults({}, schema, {"a": None}) == []
    assert faults({}, schema, {"b": 1}) == ["/a: missing", "/b: not described"]
    assert faults({}, schema, {"a": 1}) == ["/a: 1 is no ['string', 'null']"]
    assert faults({}, {"items": {"enum": [1]}}, [1, 2]) == ["/1: 2 is not in [1]"]
    assert faults({}, {"oneOf": [{"const": 1}, {"const": 2}]}, 3) == [": none of oneOf"]


def test_it_is_openapi_3_1_and_every_reference_leads_somewhere(document: Document) -> None:
    assert document["openapi"].startswith("3.1")
    for schema in schemas(document):
        if "$ref" in schema:
            assert resolve(document, schema)


def test_every_operation_and_field_is_described(document: Document) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for method, path, operation in operations(document):
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)
        assert all(one.get("description") for one in operation.get("parameters", ())), (method, path)
        assert all(one["description"] for one in operation["responses"].values())
    for schema in schemas(document["components"]["schemas"]):
        for name, field in schema.get("properties", {}).items() if isinstance(schema.get("properties"), dict) else ():
            assert field.get("description") or resolve(document, field).get("description"), name


def test_every_operation_names_the_errors_that_all_share(document: Document) -> None:
    for method, path, operation in operations(document):
        if path == "/health":
            assert operation["security"] == []
            continue
        assert {"401", "403", "422", "503"} <= operation["responses"].keys(), (method, path)
        for status, response in operation["responses"].items():
            form = "application/problem+json" if int(status) >= 400 else "application/json"
            assert form in response["content"], (method, path, status)
    assert {"400", "413", "415"} <= document["paths"]["/v1/deliveries"]["post"]["responses"].keys()


async def fit(here: Site, client: httpx2.AsyncClient, path: str) -> str:
    """The id of a delivery that is in the state which a path needs."""
    made = (await client.post("/v1/deliveries", json=wanted())).json()["id"]
    if path.endswith(("/redrive", "/discard", "/resolve")):
        await here.force(made, state=int(State.DEAD_LETTER), wake_at=None, ambiguous_attempts=1)
    return str(made)


async def test_the_examples_work_as_they_stand(here: Site, client: httpx2.AsyncClient, document: Document) -> None:
    tried = 0
    for method, path, operation in operations(document):
        for form, content in operation.get("requestBody", {}).get("content", {}).items():
            example = content["example"]
            body = example.encode() if isinstance(example, str) else json.dumps(example).encode()
            its_path = path.replace("{delivery_id}", await fit(here, client, path)).replace("{scope}", "tenant")
            its_path = its_path.replace("{project}", "default")
            answer = await client.request(method, its_path, content=body, headers={"content-type": form})
            assert answer.status_code in (200, 201, 202), answer.text
            results = (
                [json.loads(line) for line in answer.content.splitlines()] if form == NDJSON else answer.json().get("items", [])
            )
            assert {result.get("status", 200) for result in results} <= {200, 201}
            tried += 1
    assert tried == 11


ACTS: list[tuple[str, Any]] = [
    ("/v1/deliveries/{delivery_id}/redrive", {}),
    ("/v1/deliveries/{delivery_id}/discard", {}),
    ("/v1/deliveries/{delivery_id}/resolve", {"effect": "not_sent"}),
    ("/v1/deliveries/{delivery_id}/resolve", {}),
    ("/v1/deliveries/{delivery_id}/reschedule", {"at": "2199-01-01T00:00:00Z"}),
    ("/v1/deliveries/{delivery_id}/reschedule", {"at": "yesterday"}),
]


SECRETS = "/v1/projects/{project}/webhook-secrets"
ROTATE = f"{SECRETS}/rotate"
ROTATIONS: list[Any] = [{}, {"overlap": "31d"}, []]


async def test_what_routes_answer_is_what_is_described(here: Site, client: httpx2.AsyncClient, document: Document) -> None:
    """Every success and every problem that can be brought about is checked against its schema."""
    insider, operator = await here.client(project="side"), await here.client(scopes="owner installation")
    made = (await client.post("/v1/deliveries", json=wanted(dedupe_key="k", payload=[1]))).json()
    one = f"/v1/deliveries/{made['id']}"
    begun = (await client.post("/v1/deliveries/redrive", json={})).headers["location"]
    asked: list[tuple[httpx2.AsyncClient, str, str, str, dict[str, Any]]] = [
        (client, "post", "/v1/deliveries", "", {"json": wanted(channel="webhook", target={"url": "https://example.com"})}),
        (client, "post", "/v1/deliveries", "", {"json": wanted(dedupe_key="k")}),
        (insider, "post", "/v1/deliveries", "", {"json": wanted(dedupe_key="k")}),
        (client, "post", "/v1/deliveries", "", {"json": wanted(bogus=1)}),
        (client, "post", "/v1/deliveries", "", {"content": b"{", "headers": {"content-type": "application/json"}}),
        (client, "post", "/v1/deliveries", "", {"content": b"{"}),
        (client, "post", "/v1/deliveries/batch", "", {"json": [wanted(), 1, wanted(dedupe_key="k")]}),
        (insider, "post", "/v1/deliveries/batch", "", {"json": [wanted(dedupe_key="k")]}),
        (client, "get", "/v1/deliveries", "", {}),
        (client, "get", "/v1/deliveries", "?limit=0", {}),
        (client, "get", "/v1/deliveries/{delivery_id}", one, {}),
        (insider, "get", "/v1/deliveries/{delivery_id}", one, {}),
        (client, "get", "/v1/deliveries/{delivery_id}", one + "?a=1", {}),
        (client, "get", "/v1/deliveries/{delivery_id}/wait", one + "/wait?timeout=0", {}),
        (client, "get", "/v1/deliveries/{delivery_id}/wait", one + "/wait?timeout=90", {}),
        *(
            (client, "post", "/v1/deliveries", "", {"json": wanted(payload=p), "headers": {"idempotency-key": "k"}})
            for p in (1, 1, 2)
        ),
        (client, "post", "/v1/deliveries", "", {"json": wanted(), "headers": {"idempotency-key": ""}}),
        (client, "get", "/v1/deliveries/{delivery_id}/attempts", one + "/attempts", {}),
        (client, "get", "/v1/deliveries/{delivery_id}/explain", one + "/explain", {}),
        (client, "post", "/v1/deliveries/{delivery_id}/cancel", one + "/cancel", {}),
        (client, "post", "/v1/deliveries/{delivery_id}/cancel", one + "/cancel", {}),
        *((client, "post", f"/v1/deliveries/{{delivery_id}}/{act}", f"{one}/{act}", {}) for act in ("redrive", "discard")),
        *[(client, "post", path, path.format(delivery_id=await fit(here, client, path)), {"json": body}) for path, body in ACTS],
        (client, "get", "/v1/deliveries/{delivery_id}/explain", one + "/explain", {}),
        *((client, "post", f"/v1/deliveries/{act}", "", {"json": {}}) for act in ("redrive", "discard", "cancel")),
        *(
            (client, "post", f"/v1/deliveries/{act}", "", {"json": {"channel": "log"}})
            for act in ("redrive", "discard", "cancel")
        ),
        (client, "get", "/v1/operations/{operation_id}", begun, {}),
        (insider, "get", "/v1/operations/{operation_id}", begun, {}),
        (client, "post", "/v1/operations/{operation_id}/cancel", begun + "/cancel", {}),
        (client, "post", "/v1/operations/{operation_id}/cancel", begun + "x/cancel", {}),
        (client, "put", "/v1/switches/{scope}", "/v1/switches/tenant", {"json": {"off": True}}),
        (client, "put", "/v1/switches/{scope}", "/v1/switches/nothing", {"json": {"off": True}}),
        (client, "put", "/v1/switches/{scope}", "/v1/switches/all", {"json": {"off": True}}),
        (client, "put", "/v1/switches/{scope}", "/v1/switches/tenant", {"json": {}}),
        (client, "get", "/v1/switches", "", {}),
        (client, "post", "/v1/schedules/preview", "", {"json": {"trigger": {"cron": "0 9 * * *"}}}),
        (client, "post", "/v1/schedules/preview", "", {"json": {"trigger": {"cron": "0 9 * *"}}}),
        (operator, "post", "/v1/engine/release", "", {}),
        (client, "post", "/v1/engine/release", "", {}),
        (client, "get", "/v1/projects", "", {}),
        (client, "get", "/v1/projects", "?a=1", {}),
        (client, "get", "/v1/projects/{project}", "/v1/projects/default", {}),
        (insider, "get", "/v1/projects/{project}", "/v1/projects/default", {}),
        *((client, "post", ROTATE, ROTATE.format(project="default"), {"json": said}) for said in ROTATIONS),
        *((client, "post", ROTATE, ROTATE.format(project="default"), {"json": {}}) for _ in range(5)),
        (insider, "post", ROTATE, ROTATE.format(project="default"), {"json": {}}),
        (client, "get", SECRETS, SECRETS.format(project="default"), {}),
        (client, "get", SECRETS, SECRETS.format(project="nowhere"), {}),
        (client, "get", "/health", "", {}),
        (await here.bare(), "get", "/v1/deliveries", "", {}),
        (await here.client(scopes="read"), "post", "/v1/deliveries", "", {"json": wanted()}),
    ]
    for who, method, path, rest, said in asked:
        answer = await who.request(method, rest if rest.startswith("/") else path + rest, **said)
        described = document["paths"][path][method]["responses"][str(answer.status_code)]["content"]
        assert answer.headers.get("idempotency-replayed", "true") == "true"
        schema = described[answer.headers["content-type"]]["schema"]
        assert faults(document, schema, answer.json()) == [], (method, path, answer.text)
    seen = {path for _, _, path, _, _ in asked}
    assert seen == document["paths"].keys()


def test_every_post_takes_an_idempotency_key_and_nothing_else_does(document: Document) -> None:
    for method, path, operation in operations(document):
        headers = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"]
        assert headers == (["Idempotency-Key"] if method == "post" else []), (method, path)
        if method == "post":
            assert {"400", "409", "422"} <= operation["responses"].keys(), path
            success = min(operation["responses"])
            assert "Idempotency-Replayed" in operation["responses"][success]["headers"], path


async def test_every_post_heeds_an_idempotency_key(here: Site, client: httpx2.AsyncClient, document: Document) -> None:
    """Whoever adds a route can't forget it: a key that is none is refused everywhere, before anything is done."""
    operator = await here.client(scopes="owner installation")
    for method, path, operation in operations(document):
        if method == "post":
            its_path = re.sub(r"{\w+}", await fit(here, client, path), path)
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            body = content.get("example", {}) if content else None
            answer = await operator.post(its_path, json=body, headers={"idempotency-key": '"'})
            assert (answer.status_code, answer.json()["code"]) == (400, "unreadable"), path


def test_problems_of_all_statuses_are_described(document: Document) -> None:
    described = {int(status) for _, _, operation in operations(document) for status in operation["responses"]}

    # 404 of a wrong path, 405 and 429 belong to no operation.
    assert set(problems.STATUS.values()) - described <= {405, 429}


async def test_the_description_is_there_for_people_too(here: Site) -> None:
    answer = await (await here.bare()).get("/docs")

    assert answer.status_code == 200
    assert "/openapi.json" in answer.text
