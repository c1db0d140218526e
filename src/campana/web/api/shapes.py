"""How things look in answers."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from campana.domain import instants, keys, secrets, switches
from campana.domain.deliveries import State
from campana.operations.explain import Explanation
from campana.operations.office import Office
from campana.operations.secrets import Made
from campana.operations.stories import Line
from campana.operations.wanted import PRIORITY_WORDS


def _at(value: Any) -> str | None:
    return None if value is None else instants.show(value)


def delivery(office: Office, row: Any) -> dict[str, Any]:
    """Return a delivery as it is shown."""
    state = State(row.state)
    policies = json.loads(row.policies)
    return {
        "id": str(row.id),
        "status": state.word,
        "reason": row.reason,
        "channel": row.channel,
        "target": json.loads(row.target),
        "payload": None if row.payload is None else json.loads(row.payload),
        "project": office.project_names.get(row.project_id),
        "queue": row.queue,
        "recipient": row.recipient,
        "dedupe_key": row.dedupe_key,
        "schedule_id": None if row.schedule_id is None else str(row.schedule_id),
        "labels": json.loads(row.labels) if row.labels else {},
        "priority": PRIORITY_WORDS[row.priority],
        "retry": policies["retry"],
        "on_ambiguous": policies["on_ambiguous"],
        "due_at": _at(row.due_at),
        "scheduled_for": _at(row.scheduled_for),
        "expires_at": _at(row.expires_at),
        "created_at": _at(row.created_at),
        "finished_at": _at(row.finished_at),
        "next_retry_at": _at(row.wake_at) if state is State.PENDING_RETRY else None,
        "held_by": None if row.held_by is None else switches.spoken(row.held_by, row.tenant_id),
        "attempt_count": row.attempt_count,
        "max_attempts": row.max_attempts,
        "ambiguous_attempts": row.ambiguous_attempts,
        "crash_count": row.crash_count,
        "generation": row.generation,
        "last_error": row.last_error,
        "delivery_key": keys.delivery_key(row.id),
        "idempotency_key": keys.idempotency_key(office.secret, row.id, row.generation, row.key_number),
        "provider_call_id": row.provider_call_id,
        "cancel_requested": bool(row.cancel_requested) and state is not State.CANCELLED,
    }


_SUMMARY_BODY = 1_000


def summary(office: Office, row: Any) -> dict[str, Any]:
    """Return an attempt as it is shown with its delivery: of the receiver's answer only the beginning."""
    shown = attempt(office, row)
    body = shown["response_body"]
    return shown if body is None else shown | {"response_body": body[:_SUMMARY_BODY]}


def attempt(office: Office, row: Any) -> dict[str, Any]:
    """Return an attempt as it is shown."""
    took = None if row.finished_at is None else (row.finished_at - row.started_at).total_seconds() * 1000
    headers: Mapping[str, str] = dict(json.loads(row.response_headers)) if row.response_headers else {}
    return {
        "number": row.number,
        "generation": row.generation,
        "idempotency_key": keys.idempotency_key(office.secret, row.delivery_id, row.generation, row.key_number),
        "started_at": _at(row.started_at),
        "finished_at": _at(row.finished_at),
        "duration_ms": None if took is None else round(took, 3),
        "outcome": row.outcome,
        "ambiguous": bool(row.ambiguous),
        "late": bool(row.late),
        "reason": row.reason,
        "error": row.error,
        "response_code": row.response_code,
        "response_headers": headers,
        "response_body": row.response_body,
        "worker": str(row.worker),
        "provider": row.provider,
        "provider_call_id": row.provider_call_id,
        "cost": row.cost,
    }


def explanation(said: Explanation) -> dict[str, Any]:
    """Return an explanation as it is shown, in sentences and in words for programs."""
    following = said.following
    return {
        "status": said.status,
        "reason": said.reason,
        "text": said.text,
        "holds": [{"kind": one.kind, "scope": one.scope, "until": _at(one.until), "text": one.text} for one in said.holds],
        "next": None if following is None else {"at": _at(following.at), "what": following.what, "text": following.text},
        "story": [_line(one) for one in said.story],
    }


def _line(one: Line) -> dict[str, Any]:
    return {
        "at": _at(one.at),
        "kind": one.kind,
        "verdict": one.verdict,
        "text": one.text,
        "number": one.number,
        "generation": one.generation,
        "guards": list(one.guards),
        "until": _at(one.until),
        "actor": one.actor,
        "note": one.note,
    }


def operation(row: Any) -> dict[str, Any]:
    """Return an operation as it is shown."""
    return {
        "id": str(row.id),
        "kind": row.kind,
        "status": row.status,
        "total": row.total,
        "done": row.done,
        "failed": row.failed,
        "error": row.error,
        "actor": row.actor,
        "created_at": _at(row.created_at),
        "finished_at": _at(row.finished_at),
    }


def project(row: Any) -> dict[str, Any]:
    """Return a project as it is shown."""
    return {"id": str(row.id), "name": row.name, "created_at": _at(row.created_at)}


def secret(office: Office, row: Any) -> dict[str, Any]:
    """Return what is shown of a signing secret: never the secret."""
    return {
        "id": str(row.id),
        "number": row.number,
        "state": secrets.state(row.expires_at, office.world.clock.now()),
        "created_at": _at(row.created_at),
        "expires_at": _at(row.expires_at),
        "who": row.who,
    }


def made_secret(office: Office, made: Made) -> dict[str, Any]:
    """Return a new signing secret, with its text, this once."""
    return secret(office, made.row) | {"secret": made.text, "older_until": _at(made.older_until)}


def switch(row: Any, tenant_id: UUID) -> dict[str, Any]:
    """Return a switch as people of this tenant see it."""
    return {
        "scope": switches.spoken(row.scope, tenant_id),
        "off": bool(row.off),
        "reason": row.reason,
        "actor": row.actor,
        "changed_at": _at(row.changed_at),
    }
