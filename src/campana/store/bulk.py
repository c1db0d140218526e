"""What is done to many deliveries in the background: a row that remembers how far it has come, moved on batch by batch.

A batch, its counts and the cursor behind it are one transaction, which holds the operation's row locked: so one worker at a
time moves it on, a killed one leaves nothing half done, and whoever comes next goes on where it was. It ends, since it looks
only at what was made before it was asked for.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, select, update

from campana.domain import instants
from campana.domain.acts import Act, Came, Deed
from campana.domain.deliveries import State
from campana.store import acts, dialects
from campana.store import deliveries as rows
from campana.store.deliveries import Filter
from campana.store.schema import deliveries, operations

_o, _d = operations.c, deliveries.c
BATCH = 200
"""How many deliveries are changed in one transaction."""
WINDOW = 5_000
"""How many are looked at for it: however few match, no step takes long."""


class Status(StrEnum):
    """How far an operation has come."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOperation:
    """One act on all deliveries of a tenant that match; its id bounds what it looks at."""

    id: UUID
    tenant_id: UUID
    act: Act
    wanted: Filter
    actor: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """What one step of an operation came to."""

    done: int
    failed: int
    is_finished: bool


def begin(connection: Connection, new: NewOperation) -> None:
    """Write an operation down; engines take it up."""
    row = {
        "id": new.id,
        "tenant_id": new.tenant_id,
        "project_id": new.wanted.project_id,
        "kind": new.act.value,
        "filter": _dump(new.wanted),
        "actor": new.actor,
        "status": Status.RUNNING.value,
        "done": 0,
        "failed": 0,
        "created_at": new.created_at,
    }
    connection.execute(dialects.of(connection).insert_absent(operations, "id"), row)


def get(connection: Connection, tenant_id: UUID, operation_id: UUID) -> Row[Any] | None:
    """Return one operation of this tenant."""
    return connection.execute(select(operations).where(_o.id == operation_id, _o.tenant_id == tenant_id)).first()


def stop(connection: Connection, tenant_id: UUID, operation_id: UUID, *, now: datetime) -> Row[Any] | None:
    """End an operation that is running, after the batch that is under way; what it has done stays done."""
    running = (_o.id == operation_id, _o.tenant_id == tenant_id, _o.status == Status.RUNNING.value)
    connection.execute(update(operations).where(*running).values(status=Status.CANCELLED.value, finished_at=now))
    return get(connection, tenant_id, operation_id)


def running(connection: Connection, *, after: UUID | None) -> UUID | None:
    """Return the running operation that comes after this one, or the first: each gets its turn."""
    query = select(_o.id).where(_o.status == Status.RUNNING.value).order_by(_o.id).limit(1)
    found: UUID | None = None
    if after is not None:
        found = connection.execute(query.where(_o.id > after)).scalar()
    return found or connection.execute(query).scalar()


def fail(connection: Connection, operation_id: UUID, *, error: str, now: datetime) -> None:
    """End an operation that can't go on, so that it does not hold up the others."""
    its = (_o.id == operation_id, _o.status == Status.RUNNING.value)
    connection.execute(update(operations).where(*its).values(status=Status.FAILED.value, error=error[:500], finished_at=now))


def advance(connection: Connection, operation_id: UUID, *, now: datetime) -> Advanced | None:
    """Do one batch; None if it has ended, or somebody else is at it. Run again, it does the next batch and none twice."""
    query = select(operations).where(_o.id == operation_id, _o.status == Status.RUNNING.value)
    operation = connection.execute(query.with_for_update(skip_locked=True)).first()
    if operation is None:
        return None
    last, ids = _matching(connection, operation)
    done = _perform(connection, operation, ids, now)
    change: dict[str, Any] = {"done": _o.done + done, "failed": _o.failed + len(ids) - done, "last_id": last}
    if last is None:
        total = operation.done + operation.failed + len(ids)
        change |= {"last_id": operation.last_id, "total": total, "status": Status.FINISHED.value, "finished_at": now}
    connection.execute(update(operations).where(_o.id == operation_id).values(change))
    return Advanced(done=done, failed=len(ids) - done, is_finished=last is None)


def _matching(connection: Connection, operation: Row[Any]) -> tuple[UUID | None, Sequence[UUID]]:
    """Return what is to be changed next, and the cursor behind it; no cursor if nothing is left."""
    ahead: list[ColumnElement[bool]] = [_d.tenant_id == operation.tenant_id, _d.id < operation.id]
    if operation.last_id is not None:
        ahead.append(_d.id > operation.last_id)
    window = select(_d.id).where(*ahead).order_by(_d.id).with_hint(deliveries, "force index (deliveries_list)", "mysql")
    end: UUID | None = connection.execute(window.offset(WINDOW - 1).limit(1)).scalar()
    if end is not None:
        window = window.where(_d.id <= end)
    query = window.where(*rows.matching(connection, _load(operation.filter))).limit(BATCH)
    ids = connection.execute(query).scalars().all()
    return (ids[-1] if len(ids) == BATCH else end), ids


def _perform(connection: Connection, operation: Row[Any], ids: Sequence[UUID], now: datetime) -> int:
    """Return how many were changed: what went another way meanwhile is left alone."""
    deed = Deed(act=Act(operation.kind), actor=operation.actor)
    results = acts.perform(connection, operation.tenant_id, ids, deed, now=now)
    return sum(one in {Came.DONE, Came.REQUESTED} for one in results.values())


def _dump(wanted: Filter) -> str:
    said = {
        "states": sorted(int(state) for state in wanted.states),
        "channel": wanted.channel,
        "recipient": wanted.recipient,
        "project_id": None if wanted.project_id is None else str(wanted.project_id),
        "dedupe_key": wanted.dedupe_key,
        "provider_call_id": wanted.provider_call_id,
        "schedule_id": None if wanted.schedule_id is None else str(wanted.schedule_id),
        "due_from": None if wanted.due_from is None else instants.to_micros(wanted.due_from),
        "due_to": None if wanted.due_to is None else instants.to_micros(wanted.due_to),
        "labels": dict(wanted.labels or {}),
    }
    return dialects.json_text({name: value for name, value in said.items() if value})


def _load(text: str) -> Filter:
    said = json.loads(text)
    for name in ("due_from", "due_to"):
        if name in said:
            said[name] = instants.from_micros(said[name])
    for name in ("project_id", "schedule_id"):
        if name in said:
            said[name] = UUID(said[name])
    return Filter(**said | {"states": frozenset(State(state) for state in said.get("states", ()))})
