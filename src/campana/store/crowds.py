"""Crowds: many due rows for receivers to which nothing can go now, put off without a claim of each.

Claimed and turned away one by one they would stand before everybody else for as long as that takes. Nobody holds them, so
nothing ends here and no fence moves: only the instant at which they are looked at.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, TextualSelect, bindparam, text, update

from campana.store import dialects
from campana.store.columns import Instant, Name
from campana.store.schema import deliveries
from campana.store.wakes import DUE, INNOCENT

_c = deliveries.c


class Waiting(NamedTuple):
    """A due row, as far as it matters for whether it could be sent."""

    id: UUID
    tenant_id: UUID
    channel: str
    target: str
    attempt_count: int
    expires_at: datetime | None


_FIELDS = ", ".join(Waiting._fields)
Choose = Callable[[Sequence[Waiting]], Sequence[tuple[UUID, datetime, str]]]
"""Says which rows are put off, until when, and why."""


def put_off(connection: Connection, queue: str, choose: Choose, *, now: datetime, floor: datetime, limit: int) -> int:
    """Look at the longest due rows of a queue, and put off those that are chosen; return how many."""
    words = {"queue": queue, "now": now, "floor": floor, "limit": limit}
    rows = connection.execute(_oldest(dialects.of(connection)), words)
    together: dict[tuple[datetime, str], list[UUID]] = defaultdict(list)
    chosen = choose([Waiting._make(row) for row in rows])
    for delivery_id, at, reason in chosen:
        together[at, reason].append(delivery_id)
    for (at, reason), ids in together.items():
        connection.execute(_later(dialects.of(connection)), {"ids": ids, "at": at, "why": reason})
    return len(chosen)


@lru_cache
def _oldest(dialect: dialects.Dialect) -> TextualSelect:
    at = dialect.send_at
    query = text(
        f"select {_FIELDS} from {dialect.sends_index}"
        f" where queue = :queue and {DUE} and {at} <= :now and {at} >= :floor and {INNOCENT} and held_by is null"
        f" order by {at} limit :limit {dialect.skip_locked}"
    ).bindparams(bindparam("queue", type_=Name(100)), bindparam("now", type_=Instant), bindparam("floor", type_=Instant))
    return query.columns(*(_c[name] for name in Waiting._fields))


@lru_cache
def _later(dialect: dialects.Dialect) -> Any:
    values = {"wake_at": bindparam("at", type_=Instant), "reason": bindparam("why"), "slot_at": None}
    return update(deliveries).where(dialect.among(_c.id, "ids")).values(values)
