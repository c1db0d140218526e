"""The outbox: what happened, written in the transaction of the change itself. One relay numbers it after the commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Row, insert, select

from campana.domain.deliveries import State
from campana.store import dialects
from campana.store.schema import events

_INTO_EVENTS = insert(events)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """Something that happened in a tenant, most often to a delivery."""

    tenant_id: UUID
    kind: str
    at: datetime
    delivery_id: UUID | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def write(connection: Connection, new: Sequence[NewEvent]) -> None:
    """Add events to the outbox; they become durable with the change that they tell of, or not at all."""
    _insert(connection, [(one.delivery_id, one.tenant_id, one.kind, one.at, _text(one.data)) for one in new])


class Change(NamedTuple):
    """A delivery's arrival at a state, as its event tells it; every function that writes a state tells it here."""

    tenant_id: UUID
    delivery_id: UUID
    kind: str
    """One of `domain.events.KINDS`."""
    state: State
    fence: int
    """Of the claim that it ends, or of the act."""
    attempt: int | None = None
    outcome: str | None = None
    reason: str | None = None
    actor: str | None = None
    """The person whose act it was."""


def tell(connection: Connection, changes: Sequence[Change], *, now: datetime) -> None:
    """Write the events of these changes, in one statement."""
    _insert(connection, [(one.delivery_id, one.tenant_id, one.kind, now, _data(one[3:])) for one in changes])


_SAID = Change._fields[3:]


@lru_cache(maxsize=1_000)
def _data(said: tuple[Any, ...]) -> str | None:
    # Most of a group came to the same: its text is made once.
    named = {name: value for name, value in zip(_SAID, said, strict=True) if value is not None}
    return _text(named | {"state": named["state"].word})


def _text(data: Mapping[str, Any]) -> str | None:
    return dialects.json_text(data) if data else None


_COLUMNS = ("delivery_id", "tenant_id", "kind", "at", "data")


def _insert(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        named = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        dialects.of(connection).insert_all(connection, _INTO_EVENTS, named)


def after(connection: Connection, tenant_id: UUID, number: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return a tenant's events past a number, in their order: whoever reads on from the last one misses none."""
    c = events.c
    query = select(events).where(c.tenant_id == tenant_id, c.number > number).order_by(c.number).limit(limit)
    return connection.execute(query).all()
