"""What OpenAPI says of the routes: bodies, answers and errors. Descriptions only; nothing here checks anything."""

import json
from typing import Any

from campana.domain.deliveries import WORDS
from campana.web.api import schemas

_WORDS = {
    400: "The request can't be read",
    401: "The key is missing, wrong, expired or revoked",
    403: "The key may not do this",
    404: "There is no such thing here",
    409: "Its state does not allow this, or the first request with this idempotency key is still under way",
    413: "The body is too large",
    415: "The body is of a type that is not read here",
    422: "Something in the request is not acceptable; `errors` names every field",
    429: "A limit is reached; `detail` names it, `Retry-After` says how long to wait",
    503: "The database can't be reached; `Retry-After` says how long to wait",
}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _WORDS[status], "content": schema} for status in sorted({401, 403, 503, *statuses})}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the answers of a route that go wrong, with those that any can have."""
    return _errors(*statuses)


def answer(description: str, name: str) -> dict[str, Any]:
    """Return an answer of a named schema."""
    return _json(description, _named(name))


def body(name: str, example: Any) -> dict[str, Any]:
    """Return a JSON body of a named schema."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _named(name), "example": example}}}}


_DELIVERY = _named("Delivery")
_ATTEMPT = _named("Attempt")
_WANTED = _named("DeliveryWanted")
_HIDDEN = _named("Deduplicated")
EXAMPLE = {
    "channel": "webhook",
    "target": {"url": "https://example.com/hook"},
    "payload": {"invoice": 17},
    "dedupe_key": "invoice-17-due",
}
PLAIN = {"channel": "log", "target": {"message": "Dentist at 11"}, "at": "2099-12-01T09:00", "timezone": "Europe/London"}


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["items", "next_cursor"],
        "properties": {
            "items": {"type": "array", "items": schema, "description": "What is on this page"},
            "next_cursor": {"type": ["string", "null"], "description": "Pass it as `cursor` for the next page"},
        },
    }


def _body(content: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": content}}


CREATE: dict[str, Any] = {
    "summary": "Accept one delivery",
    "status_code": 201,
    "responses": {
        201: _json("Accepted, and durable", _DELIVERY),
        200: _json("The dedupe key is known: the delivery that holds it, with `deduplicated`", {"oneOf": [_DELIVERY, _HIDDEN]}),
        **_errors(400, 409, 413, 415, 422, 429),
    },
    "openapi_extra": _body({"application/json": {"schema": _WANTED, "example": EXAMPLE}}),
}
_RESULT = {
    "type": "object",
    "required": ["index", "status"],
    "properties": {
        "index": {"type": "integer", "description": "Place in the request, from 0"},
        "status": {"type": "integer", "description": "201 accepted, 200 deduplicated, 422 refused, 409, 429 or 503 try again"},
        "delivery": {"description": "Where it was accepted or known", "oneOf": [_DELIVERY, _HIDDEN]},
        "error": {"description": "Where it was not", "$ref": "#/components/schemas/Problem"},
    },
}
_RESULTS = {
    "type": "object",
    "required": ["items"],
    "properties": {"items": {"type": "array", "items": _RESULT, "description": "In the order of the request"}},
}
BATCH: dict[str, Any] = {
    "summary": "Accept many deliveries",
    "responses": {
        200: {
            "description": "A result per item, in order, in the form of the request",
            "content": {
                "application/json": {"schema": _RESULTS},
                "application/x-ndjson": {"schema": _RESULT},
            },
        },
        **_errors(400, 413, 415, 422, 429),
    },
    "openapi_extra": _body(
        {
            "application/json": {
                "schema": {"type": "array", "items": _WANTED, "maxItems": 10_000},
                "example": [EXAMPLE, PLAIN],
            },
            "application/x-ndjson": {"schema": _WANTED, "example": "\n".join(json.dumps(one) for one in (EXAMPLE, PLAIN))},
        }
    ),
}


def _parameter(name: str, description: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema or {"type": "string", "minLength": 1}}


LIST: dict[str, Any] = {
    "summary": "List deliveries, the newest first",
    "description": "All filters must match. `label.<name>=<value>` narrows to a label of yours, as often as you like. "
    "`dedupe_key` is found at once; every other filter is looked for from the newest delivery on, in bounded steps and for a "
    "bounded time. So a page may hold fewer than `limit`, even none, and still have a `next_cursor`: the list is at its end "
    "when that is null. A cursor is good for the filters that it came from.",
    "responses": {200: _json("A page", _list_of(_DELIVERY)), **_errors(422)},
    "openapi_extra": {
        "parameters": [
            _parameter("status", "Only in this state; repeatable", {"type": "array", "items": {"enum": list(WORDS)}}),
            _parameter("channel", "Only on this channel"),
            _parameter("recipient", "Only to this recipient"),
            _parameter("project", "Only of this project, by name"),
            _parameter("dedupe_key", "Only with this key"),
            _parameter("provider_call_id", "Only with this id of the provider"),
            _parameter("schedule_id", "Only made by this schedule", {"type": "string", "format": "uuid"}),
            _parameter("due_from", "Due at this instant or later", {"type": "string", "format": "date-time"}),
            _parameter("due_to", "Due before this instant", {"type": "string", "format": "date-time"}),
            _parameter("limit", "Page size", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}),
            _parameter("cursor", "From `next_cursor`"),
        ]
    },
}
GET: dict[str, Any] = {
    "summary": "Read one delivery",
    "responses": {200: _json("The delivery with its attempts", _DELIVERY), **_errors(404, 422)},
}
WAIT: dict[str, Any] = {
    "summary": "Wait for a delivery's end",
    "description": "Answers as soon as the delivery has ended, or with the delivery as it stands when the time is over: ask "
    "again as long as its `status` is not final. At most 200 requests of a tenant wait at once.",
    "responses": {200: _json("The delivery with its attempts, final or not", _DELIVERY), **_errors(404, 422, 429)},
    "openapi_extra": {
        "parameters": [
            _parameter(
                "timeout",
                "How long to wait, at most 60s: a duration such as `20s`, or a number of seconds",
                {"type": "string", "default": "30s", "pattern": "^([0-9]{1,3}|[0-9]{1,13}([.][0-9]{1,6})?(ms|s|m|h|d|w)|P.+)$"},
            )
        ]
    },
}
ATTEMPTS: dict[str, Any] = {
    "summary": "Read a delivery's attempts",
    "responses": {200: _json("The attempts, the first one first", _list_of(_ATTEMPT)), **_errors(404, 422)},
}
CANCEL: dict[str, Any] = {
    "summary": "Cancel a delivery",
    "responses": {
        200: _json("Cancelled", _DELIVERY),
        202: _json("Under way: it ends cancelled if it was not sent, and is not tried again", _DELIVERY),
        **_errors(400, 404, 409, 413, 422),
    },
}
EXPLAIN: dict[str, Any] = {
    "summary": "Explain a delivery",
    "responses": {
        200: _json("Where it stands, what keeps it, what comes next, and its story", _named("Explanation")),
        **_errors(404, 422),
    },
}
REDRIVE: dict[str, Any] = {
    "summary": "Redrive a dead letter",
    "responses": {200: _json("Scheduled, as a new generation", _DELIVERY), **_errors(400, 404, 409, 413, 422)},
}
DISCARD: dict[str, Any] = {
    "summary": "Discard a dead letter",
    "responses": {200: _json("Cancelled", _DELIVERY), **_errors(400, 404, 409, 413, 422)},
}
RESOLVE: dict[str, Any] = {
    "summary": "Resolve an ambiguous dead letter",
    "responses": {200: _json("Completed, or scheduled anew", _DELIVERY), **_errors(400, 404, 409, 413, 415, 422)},
    "openapi_extra": _body(
        {"application/json": {"schema": _named("ResolveWanted"), "example": {"effect": "sent", "note": "the receiver has it"}}}
    ),
}
RESCHEDULE: dict[str, Any] = {
    "summary": "Reschedule a waiting delivery",
    "responses": {200: _json("Moved", _DELIVERY), **_errors(400, 404, 409, 413, 415, 422)},
    "openapi_extra": _body(
        {"application/json": {"schema": _named("RescheduleWanted"), "example": {"at": "2099-12-01T09:00:00Z"}}}
    ),
}


def _bulk(summary: str, schema: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "status_code": 202,
        "responses": {202: _json("It is done in the background", _named("Begun")), **_errors(400, 413, 415, 422)},
        "openapi_extra": _body({"application/json": {"schema": _named(schema), "example": example}}),
    }


REDRIVE_MANY = _bulk("Redrive dead letters", "LettersWanted", {"channel": "webhook", "due_from": "2026-12-01T00:00:00Z"})
DISCARD_MANY = _bulk("Discard dead letters", "LettersWanted", {"labels": {"team": "billing"}})
CANCEL_MANY = _bulk("Cancel deliveries", "CancelManyWanted", {"recipient": "user-42", "status": ["scheduled"]})
OPERATION: dict[str, Any] = {
    "summary": "Read an operation",
    "responses": {200: _json("How far it is", _named("Operation")), **_errors(404, 422)},
}
STOP: dict[str, Any] = {
    "summary": "Stop an operation",
    "responses": {200: _json("Stopped; what it has done stays done", _named("Operation")), **_errors(400, 404, 409, 413, 422)},
}

_SWITCH = {"$ref": "#/components/schemas/Switch"}
SWITCHES: dict[str, Any] = {
    "summary": "List switches",
    "responses": {200: _json("Every switch that was ever thrown", _list_of(_SWITCH)), **_errors(422)},
}
SWITCH: dict[str, Any] = {
    "summary": "Throw or lift a switch",
    "description": "Within the key's tenant: `tenant`, `project:<id or name>`, `channel:<name>`, `schedule:<id>`. With the key "
    "scope `installation` also `all`, `all/channel:<name>`, `all/hold` and `tenant:<id>`.",
    "responses": {200: _json("The switch as it stands now", _SWITCH), **_errors(400, 404, 413, 415, 422)},
    "openapi_extra": _body(
        {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/SwitchWanted"},
                "example": {"off": True, "reason": "the provider repeats calls"},
            }
        }
    ),
}
RELEASE: dict[str, Any] = {
    "summary": "Lift the safe hold",
    "description": "An engine that finds itself in a restored or long-stopped world places no call and sends no message until "
    "this is called, with the key scope `installation`, after reconciling with the providers.",
    "responses": {
        200: _json("Lifted, or there was none", {"$ref": "#/components/schemas/Released"}),
        **_errors(400, 413, 422),
    },
}

PROJECTS: dict[str, Any] = {
    "summary": "List projects",
    "responses": {200: _json("The projects that this key may see, by name", _list_of(_named("Project"))), **_errors(422)},
}
PROJECT: dict[str, Any] = {
    "summary": "Read a project",
    "responses": {200: _json("The project", _named("Project")), **_errors(404, 422)},
}
SECRETS: dict[str, Any] = {
    "summary": "List a project's signing secrets",
    "description": "All that are in force and the last ones that were, the newest first; never the secrets themselves. A project "
    "gets its first secret when the first of its webhooks is sent.",
    "responses": {200: _json("What is known of them", _list_of(_named("WebhookSecret"))), **_errors(404, 422)},
}
ROTATE: dict[str, Any] = {
    "summary": "Rotate a project's signing secret",
    "description": "Within two seconds every webhook of the project is signed with the new secret, and for as long as the "
    "`overlap` lasts with the older ones too, so that receivers can change over. At most five are in force at once.",
    "responses": {
        200: _json("The new secret, which is shown this once", _named("MadeWebhookSecret")),
        **_errors(400, 404, 409, 413, 415, 422),
    },
    "openapi_extra": _body(
        {"application/json": {"schema": _named("RotateWanted"), "example": {"overlap": "24h"}}}, required=False
    ),
}

HEALTH: dict[str, Any] = {
    "summary": "Say that this process answers",
    "responses": {200: _json("It does", {"$ref": "#/components/schemas/Health"})},
    "openapi_extra": {"security": []},
}


_KEY_PATTERN = r'^([!#-~]([ -~]*[!-~])?|"([ !#-\[\]-~]|\\["\\])+")$'
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A text of your own that names this request, bare or quoted. Sent again within 24 hours with the same body, "
    "the request is not carried out again: it is answered as the first time. With another body it is refused (422 "
    "`idempotency_key_reused`), while the first one is under way too (409 `idempotency_in_progress`). Keys are good for "
    "one method and path. A request that was refused (400, 401, 403, 404, 413, 415, 422, 429) leaves the key unused; after a "
    "503 send it again: what was done is found, and the rest is done.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": _KEY_PATTERN},
}
_REPLAYED = {
    "description": "`true` where this is the answer to an earlier request with the same key",
    "schema": {"type": "string", "enum": ["true"]},
}
_RETRY_AFTER = {"description": "Seconds until it is worth another try", "schema": {"type": "integer", "minimum": 1}}
_LOCATION = {"description": "Where it can be read", "schema": {"type": "string", "format": "uri-reference"}}


def _posts(said: dict[str, Any]) -> None:
    """Describe on every POST what an idempotency key does, and on every answer its headers."""
    for item in said["paths"].values():
        for method, operation in item.items():
            if method == "post":
                operation["parameters"] = [*operation.get("parameters", ()), _KEY]
                operation["responses"] = {**operation["responses"], **{str(s): one for s, one in _errors(400, 409, 422).items()}}
                operation["responses"] = dict(sorted(operation["responses"].items()))
            for status, response in operation["responses"].items():
                headers = _headers(method, int(status))
                if headers:
                    operation["responses"][status] = response | {"headers": headers}


def _headers(method: str, status: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if method == "post" and status in {200, 201, 202, 409}:
        found["Idempotency-Replayed"] = _REPLAYED
    if status in {409, 429, 503}:
        found["Retry-After"] = _RETRY_AFTER
    if method == "post" and status in {200, 201, 202}:
        found["Location"] = _LOCATION
    return found


def complete(said: dict[str, Any]) -> dict[str, Any]:
    """Return the document with what is true of all routes."""
    _posts(said)
    return said | {
        "components": {
            "schemas": schemas.all_of_them(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key, `cmp_...`"}},
        },
        "security": [{"key": []}],
        "tags": [
            {"name": "deliveries", "description": "One thing each, to be delivered at one time"},
            {"name": "schedules", "description": "Rules that make deliveries"},
            {"name": "operations", "description": "What is done to many deliveries in the background"},
            {"name": "projects", "description": "The drawers of a tenant, each with signing secrets of its own"},
            {"name": "switches", "description": "Emergency stops"},
            {"name": "health", "description": "Whether this process is well"},
        ],
    }
