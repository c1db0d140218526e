"""The named schemas of the document: what is posted, what is shown, and how errors look."""

from typing import Any

from campana.channels.webhook_target import METHODS
from campana.domain.deliveries import WORDS
from campana.operations.previews import PreviewWanted
from campana.operations.secrets import RotateWanted
from campana.operations.switches import SwitchWanted
from campana.operations.wanted import (
    PRIORITIES,
    CancelManyWanted,
    DeliveryWanted,
    LettersWanted,
    RescheduleWanted,
    ResolveWanted,
)
from campana.store.bulk import Status

_TEXT: Any = ["string", "null"]
_INSTANT = {"type": "string", "format": "date-time"}
_MAYBE_INSTANT = {"type": _TEXT, "format": "date-time"}
_STATUSES = {"type": "array", "items": {"type": ["integer", "string"]}}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code"],
    "properties": {
        "type": {"type": "string", "description": "A name of the kind of error"},
        "title": {"type": "string", "description": "What kind of error it is, in words"},
        "status": {"type": "integer", "description": "The HTTP status again"},
        "detail": {"type": "string", "description": "What was wrong this time, and what to do"},
        "code": {"type": "string", "description": "The kind of error, for programs; it never changes"},
        "errors": {
            "type": "array",
            "description": "Every bad field at once",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer to the field"},
                    "code": {"type": "string", "description": "What is wrong with it, for programs"},
                    "detail": {"type": "string", "description": "What is wrong with it, in words"},
                },
            },
        },
    },
}
_DELIVERY_FIELDS: dict[str, tuple[Any, str]] = {
    "id": ({"type": "string", "format": "uuid"}, "Its id; sorts by creation"),
    "status": ({"type": "string", "enum": list(WORDS)}, "Its state"),
    "reason": (_TEXT, "Why it is in this state"),
    "channel": ("string", "How it is delivered"),
    "target": ("object", "Where it goes"),
    "payload": (None, "What it says; with a `body_template`, what came of that: the body that every attempt sends"),
    "project": ("string", "The project it belongs to, by name"),
    "queue": ("string", "Which engines take it"),
    "recipient": (_TEXT, "Who is reached"),
    "dedupe_key": (_TEXT, "No second delivery has this key"),
    "schedule_id": ({"type": _TEXT, "format": "uuid"}, "The schedule that made it"),
    "labels": ("object", "Your own words"),
    "priority": ({"type": "string", "enum": list(PRIORITIES)}, "`urgent`, `normal` or `bulk`"),
    "retry": ("object", "When it is tried again, as resolved at its making"),
    "on_ambiguous": ("string", "What follows an attempt that may have had effect"),
    "due_at": (_INSTANT, "When it is due"),
    "scheduled_for": (_INSTANT, "When it was meant to be due"),
    "expires_at": (_MAYBE_INSTANT, "From when on it is not sent"),
    "created_at": (_INSTANT, "When it was accepted"),
    "finished_at": (_MAYBE_INSTANT, "When it ended"),
    "next_retry_at": (_MAYBE_INSTANT, "When it is tried again"),
    "held_by": (_TEXT, "The switch or pause that it waits behind"),
    "attempt_count": ("integer", "Attempts that came to an outcome"),
    "max_attempts": ("integer", "How many there may be"),
    "ambiguous_attempts": ("integer", "Attempts that may have had effect without an answer"),
    "crash_count": ("integer", "Workers that died with it in hand"),
    "generation": ("integer", "Rises when it is redriven"),
    "last_error": (_TEXT, "What went wrong last"),
    "delivery_key": ("string", "The same in every attempt: deduplicate on it"),
    "idempotency_key": ("string", "The key of the latest, or the coming, attempt"),
    "provider_call_id": (_TEXT, "The provider's id"),
    "cancel_requested": ("boolean", "Cancelling was asked for while it was under way"),
    "deduplicated": ("boolean", "Only when it was there before this request"),
    "attempts": (
        {"type": "array", "items": {"$ref": "#/components/schemas/Attempt"}},
        "Its attempts, where one delivery is read",
    ),
}
_ATTEMPT_FIELDS: dict[str, tuple[Any, str]] = {
    "number": ("integer", "From 1"),
    "generation": ("integer", "Of the delivery at the time"),
    "idempotency_key": ("string", "Sent with it; the same again after an ambiguous attempt"),
    "started_at": (_INSTANT, "When it began"),
    "finished_at": (_MAYBE_INSTANT, "When its outcome was known"),
    "duration_ms": (["number", "null"], "How long it took"),
    "outcome": (_TEXT, "What it came to"),
    "ambiguous": ("boolean", "It may have had effect though no answer proves it"),
    "late": ("boolean", "Its outcome came after the claim was lost, and changed nothing"),
    "reason": (_TEXT, "More about the outcome"),
    "error": (_TEXT, "What went wrong"),
    "response_code": (["integer", "null"], "The receiver's status"),
    "response_headers": ("object", "A few of the receiver's headers"),
    "response_body": (_TEXT, "The beginning of the receiver's answer"),
    "worker": ("string", "The engine that made it"),
    "provider": (_TEXT, "Who carried it"),
    "provider_call_id": (_TEXT, "The provider's id"),
    "cost": (_TEXT, "What it cost"),
}
_HELD_FIELDS: dict[str, tuple[Any, str]] = {
    "kind": ("string", "What keeps it, for programs: `switch`, `lane`, `limit`, `engine`, ..."),
    "scope": (_TEXT, "Which one, where there are several"),
    "until": (_MAYBE_INSTANT, "When this ends by itself, where that is known"),
    "text": ("string", "The same for people"),
}
_NEXT_FIELDS: dict[str, tuple[Any, str]] = {
    "at": (_INSTANT, "When at the latest"),
    "what": ({"enum": ["attempt", "look", "skip", "callback", "lookup", "lease"]}, "What happens then"),
    "text": ("string", "The same for people"),
}
_LINE_FIELDS: dict[str, tuple[Any, str]] = {
    "at": (_INSTANT, "When it happened"),
    "kind": ({"enum": ["accepted", "guard", "attempt", "lookup", "lost", "act", "ended"]}, "What happened"),
    "verdict": (_TEXT, "What it came to, for programs"),
    "text": ("string", "The same for people"),
    "number": (["integer", "null"], "Which attempt, from 1 in each generation"),
    "generation": (["integer", "null"], "Of the delivery at the time"),
    "guards": ({"type": "array", "items": {"type": "string"}}, "Who was asked before; the last one decided"),
    "until": (_MAYBE_INSTANT, "Until when it was put off"),
    "actor": (_TEXT, "Who did it"),
    "note": (_TEXT, "What they said"),
}
_EXPLANATION_FIELDS: dict[str, tuple[Any, str]] = {
    "status": ({"type": "string", "enum": list(WORDS)}, "Its state"),
    "reason": (_TEXT, "Why it is in this state"),
    "text": ("string", "Where it stands, what keeps it and what comes next, in sentences"),
    "holds": (
        {"type": "array", "items": {"$ref": "#/components/schemas/Held"}},
        "Everything that keeps it from being sent now",
    ),
    "next": (
        {"anyOf": [{"$ref": "#/components/schemas/Next"}, {"type": "null"}]},
        "What happens next; nothing more once it has ended",
    ),
    "story": ({"type": "array", "items": {"$ref": "#/components/schemas/Line"}}, "Everything that happened, in order"),
}
_OPERATION_FIELDS: dict[str, tuple[Any, str]] = {
    "id": ({"type": "string", "format": "uuid"}, "Its id"),
    "kind": ({"enum": ["redrive", "discard", "cancel"]}, "What is done to each delivery that matches"),
    "status": ({"enum": list(Status)}, "`running` until all that matched were looked at, or it was stopped"),
    "total": (["integer", "null"], "How many matched, once that is known"),
    "done": ("integer", "How many it was done to"),
    "failed": ("integer", "How many it could not be done to: they had gone another way, or expired"),
    "error": (_TEXT, "Why it could not go on"),
    "actor": ("string", "Who asked for it"),
    "created_at": (_INSTANT, "When it was asked for; what was made later is not touched"),
    "finished_at": (_MAYBE_INSTANT, "When it ended"),
}
_BEGUN_FIELDS: dict[str, tuple[Any, str]] = {
    "operation": ({"type": "string", "format": "uuid"}, "Read it at `/v1/operations/{operation_id}`"),
}
_WEBHOOK_FIELDS: dict[str, tuple[Any, str]] = {
    "url": ({"type": "string", "format": "uri"}, "Where the request goes"),
    "method": ({"enum": list(METHODS), "default": "POST"}, "GET and DELETE have no body"),
    "headers": (_STRINGS, "Headers of your own"),
    "query": ({"type": "object"}, "Names and values, or lists of values, that are added to the URL"),
    "body": ("string", "A body that is not JSON, in place of `payload`"),
    "body_template": (
        {"not": {"type": "null"}},
        "The body as JSON whose strings may hold `{{ path | filter }}`, filled in when the delivery is made; `payload` is data",
    ),
    "timeout": ({"type": "string", "default": "30s"}, "How long the whole attempt may take, at most 5m"),
    "success": (_STATUSES | {"default": ["2xx"]}, "Answers that mean it was delivered: codes, and classes such as 2xx"),
    "retry_on": (_STATUSES | {"default": [408, 425, 429, "5xx"]}, "Answers after which it is tried again"),
}
_PYTHON_FIELDS: dict[str, tuple[Any, str]] = {
    "handler": (
        {"type": "string", "minLength": 1, "maxLength": 80},
        "Name of the function in the program that embeds the engine",
    ),
    "timeout": ({"type": "string", "default": "30s"}, "How long it may take, at most 15m"),
}
_LOG_FIELDS: dict[str, tuple[Any, str]] = {"message": ("string", "What is logged; `payload`, if left out")}
_TARGETS = ("WebhookTarget", "PythonTarget", "LogTarget")
_DEDUPLICATED_FIELDS: dict[str, tuple[Any, str]] = {
    "deduplicated": ({"const": True}, "The dedupe key is known"),
    "delivery": ("null", "Its delivery belongs to a project that this key may not see"),
}
_HEALTH_FIELDS: dict[str, tuple[Any, str]] = {
    "status": ({"const": "healthy"}, "Always this, where there is an answer"),
    "service": ({"const": "campana"}, "Who answers"),
}
_SWITCH_FIELDS: dict[str, tuple[Any, str]] = {
    "scope": ("string", "What it stops"),
    "off": ("boolean", "True: nothing under it leaves"),
    "reason": ("string", "Why it was thrown or lifted last"),
    "actor": ("string", "Who did it"),
    "changed_at": (_INSTANT, "When"),
}
_INSTANT_FIELDS: dict[str, tuple[Any, str]] = {
    "at": (_INSTANT, "When it rings"),
    "local": ("string", "The same as clocks in the rule's zone show it, with their offset"),
    "nominal": ("string", "The wall time that the rule names, lost in a gap or not"),
    "fold": ({"enum": [0, 1]}, "1: the second pass of a wall time that comes twice"),
    "note": (_TEXT, "What clocks do to it"),
}
_PREVIEW_FIELDS: dict[str, tuple[Any, str]] = {
    "items": ({"type": "array", "items": {"$ref": "#/components/schemas/Instant"}}, "The instants, in order"),
    "never": ("boolean", "There is none at all after that"),
}
_PROJECT_FIELDS: dict[str, tuple[Any, str]] = {
    "id": ({"type": "string", "format": "uuid"}, "Its id"),
    "name": ("string", "Its name, which no other project of the tenant has"),
    "created_at": (_INSTANT, "When it was made"),
}
_SECRET_FIELDS: dict[str, tuple[Any, str]] = {
    "id": ({"type": "string", "format": "uuid"}, "Its id"),
    "number": ("integer", "From 1 within its project; the newest has the highest"),
    "state": ({"enum": ["current", "retiring", "expired"]}, "Whether requests are signed with it: `expired` no longer"),
    "created_at": (_INSTANT, "When it was made"),
    "expires_at": (_MAYBE_INSTANT, "From when on nothing is signed with it; null for the current one"),
    "who": ("string", "Who made it"),
}
_MADE_SECRET_FIELDS: dict[str, tuple[Any, str]] = _SECRET_FIELDS | {
    "secret": ("string", "The secret itself, `whsec_...`: shown this once"),
    "older_until": (_INSTANT, "When the older ones have ended, at the latest"),
}
_RELEASED_FIELDS: dict[str, tuple[Any, str]] = {"released": ("boolean", "False where nothing was held")}


def all_of_them() -> dict[str, Any]:
    """Return the named schemas."""
    wanted = DeliveryWanted.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = wanted.pop("$defs", {})
    said = wanted["properties"]["target"]["description"]
    wanted["properties"]["target"] = {"description": said, "anyOf": [{"$ref": f"#/components/schemas/{one}"} for one in _TARGETS]}
    return {
        "Problem": PROBLEM,
        "DeliveryWanted": wanted,
        **inner,
        "ResolveWanted": ResolveWanted.model_json_schema(),
        "RescheduleWanted": RescheduleWanted.model_json_schema(),
        "LettersWanted": LettersWanted.model_json_schema(),
        "CancelManyWanted": CancelManyWanted.model_json_schema(),
        "WebhookTarget": _closed(_WEBHOOK_FIELDS, "url"),
        "PythonTarget": _closed(_PYTHON_FIELDS, "handler"),
        "LogTarget": _closed(_LOG_FIELDS),
        "Delivery": _closed(_DELIVERY_FIELDS, *(_DELIVERY_FIELDS.keys() - {"deduplicated", "attempts"})),
        "Deduplicated": _closed(_DEDUPLICATED_FIELDS, *_DEDUPLICATED_FIELDS),
        "Attempt": _closed(_ATTEMPT_FIELDS, *_ATTEMPT_FIELDS),
        "Operation": _closed(_OPERATION_FIELDS, *_OPERATION_FIELDS),
        "Begun": _closed(_BEGUN_FIELDS, *_BEGUN_FIELDS),
        "Explanation": _closed(_EXPLANATION_FIELDS, *_EXPLANATION_FIELDS),
        "Held": _closed(_HELD_FIELDS, *_HELD_FIELDS),
        "Next": _closed(_NEXT_FIELDS, *_NEXT_FIELDS),
        "Line": _closed(_LINE_FIELDS, *_LINE_FIELDS),
        "Instant": _closed(_INSTANT_FIELDS, *_INSTANT_FIELDS),
        "Preview": _closed(_PREVIEW_FIELDS, *_PREVIEW_FIELDS),
        "PreviewWanted": PreviewWanted.model_json_schema(),
        "Switch": _closed(_SWITCH_FIELDS, *_SWITCH_FIELDS),
        "SwitchWanted": SwitchWanted.model_json_schema(),
        "Project": _closed(_PROJECT_FIELDS, *_PROJECT_FIELDS),
        "WebhookSecret": _closed(_SECRET_FIELDS, *_SECRET_FIELDS),
        "MadeWebhookSecret": _closed(_MADE_SECRET_FIELDS, *_MADE_SECRET_FIELDS),
        "RotateWanted": RotateWanted.model_json_schema(),
        "Released": _closed(_RELEASED_FIELDS, *_RELEASED_FIELDS),
        "Health": _closed(_HEALTH_FIELDS, *_HEALTH_FIELDS),
    }


def _closed(fields: dict[str, tuple[Any, str]], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(required),
        "properties": {name: _described(kind, said) for name, (kind, said) in fields.items()},
    }


def _described(kind: Any, said: str) -> dict[str, Any]:
    return {"description": said, **({} if kind is None else kind if isinstance(kind, dict) else {"type": kind})}
