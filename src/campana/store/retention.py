"""What is kept for a time and then taken away, a page at a time, so that no transaction is long and no claim waits.

Tables that may be large are walked along their ids, which are in the order of making: no index has to be there for it, and a
row that must stay is looked at once a walk.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, select

from campana.domain import instants
from campana.domain.deliveries import FINAL
from campana.store import dialects, idempotency
from campana.store.schema import (
    attempts,
    deliveries,
    events,
    idempotency_keys,
    idempotency_pieces,
    ledger,
    operations,
    verdicts,
)
from campana.world import uuid7

SPARED = timedelta(days=1)
"""How long a claim of the ledger whose lease has ended can still be confirmed, if nobody else has taken it."""


class Swept(NamedTuple):
    """What one page came to: how many rows, where the next page begins, and whether there is one."""

    rows: int
    past: UUID | None = None
    more: bool = False


def ended(connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
    """Take away deliveries that ended longer ago than they are kept, with their attempts and verdicts.

    A dedupe key is free again with its delivery.
    """
    c, dialect = deliveries.c, dialects.of(connection)
    is_old = c.state.in_(sorted(FINAL)) & (c.finished_at < now - keep)
    old, end = _page(connection, deliveries, is_old, made_before=now - keep, limit=limit, past=past)
    if old:
        # Once more, under a lock: a person may redrive one just now.
        query = select(c.id).where(dialect.among(c.id, "ids"), is_old).order_by(c.id)
        old = list(connection.execute(dialect.locked(query), {"ids": old}).scalars())
        for table in (attempts, verdicts):
            connection.execute(delete(table).where(dialect.among(table.c.delivery_id, "ids")), {"ids": old})
        _drop(connection, c.id, old)
    return Swept(len(old), end, more=end is not None)


def told(connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
    """Take away numbered events that are older than what is kept; numbers go on."""
    del past
    c = events.c
    page = connection.execute(select(c.id, c.at, c.number).order_by(c.id).limit(limit)).all()
    old = [row.id for row in page if row.number is not None and row.at < now - keep]
    _drop(connection, c.id, old)
    return Swept(len(old), more=len(old) == limit)


def lapsed(connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
    """Take away claims of the ledger that were never confirmed and whose lease ended long ago; what was sent stays."""
    del keep
    c = ledger.c
    is_over = c.sent_at.is_(None) & (c.held_until < now - SPARED)
    old, end = _page(connection, ledger, is_over, made_before=now - SPARED, limit=limit, past=past)
    if old:
        gone = delete(ledger).where(dialects.of(connection).among(c.id, "ids"), is_over)
        return Swept(connection.execute(gone, {"ids": old}).rowcount, end, more=end is not None)
    return Swept(0, end, more=end is not None)


def done(connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
    """Take away operations in the background that ended longer ago than they are kept."""
    c = operations.c
    old, end = _page(connection, operations, c.finished_at < now - keep, made_before=now - keep, limit=limit, past=past)
    _drop(connection, c.id, old)
    return Swept(len(old), end, more=end is not None)


def answered(connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
    """Take away requests with an idempotency key whose answers are not given again any more."""
    del keep
    c, before = idempotency_keys.c, now - idempotency.KEPT
    is_over = (c.created_at < before) & (c.held_until < now)
    old, end = _page(connection, idempotency_keys, is_over, made_before=before, limit=limit, past=past)
    if old:
        # Once more: one that was never answered may be carried out again just now.
        query = select(c.id).where(dialects.of(connection).among(c.id, "ids"), is_over).order_by(c.id)
        old = list(connection.execute(dialects.of(connection).locked(query), {"ids": old}).scalars())
        _drop(connection, idempotency_pieces.c.key_id, old)
        _drop(connection, c.id, old)
    return Swept(len(old), end, more=end is not None)


def _page(
    connection: Connection, table: Table, is_old: ColumnElement[bool], *, made_before: datetime, limit: int, past: UUID | None
) -> tuple[list[UUID], UUID | None]:
    """Return what is old of the next rows that were made before, and the id to go on from, None at the end of the walk."""
    c = table.c
    query = select(c.id, is_old.label("is_old")).where(c.id < _first_id(made_before)).order_by(c.id).limit(limit)
    page = connection.execute(query if past is None else query.where(c.id > past)).all()
    return [row.id for row in page if row.is_old], page[-1].id if len(page) == limit else None


def _first_id(at: datetime) -> UUID:
    return uuid7(max(instants.to_micros(at), 0) * 4_096 // 1_000, 0)


def _drop(connection: Connection, column: Column[Any], ids: list[Any]) -> None:
    if ids:
        connection.execute(delete(column.table).where(dialects.of(connection).among(column, "ids")), {"ids": ids})
