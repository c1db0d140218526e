"""Parked deliveries: those that a closed scope holds, and their release once it is open, found by comparing and not by events."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, func, select, text, update

from campana.store import dialects
from campana.store.schema import deliveries

_c = deliveries.c
_PARKED = (_c.held_by.is_not(None), text("state in (0, 3)"))
_LANES, _PAST_LANES = "lane:", "lane;"


def scopes(connection: Connection) -> Sequence[str]:
    """Return the scopes that hold anything, but for lanes: their holders wake who waits."""
    return list(_scopes(connection))


def any_parked(connection: Connection) -> bool:
    """Say whether there is such a scope."""
    return next(_scopes(connection), None) is not None


def _scopes(connection: Connection) -> Iterator[str]:
    last = ""
    # From one to the next by a probe each: those that are held may be a million.
    query = select(_c.held_by).where(*_PARKED, _c.held_by > bindparam("last")).order_by(_c.held_by).limit(1)
    while (scope := connection.execute(query, {"last": last}).scalar()) is not None:
        if scope.startswith(_LANES):
            last = _PAST_LANES
        else:
            yield scope
            last = scope


def release(connection: Connection, open_scopes: Sequence[str], *, first: datetime, step: timedelta, limit: int) -> int:
    """Bring forward up to `limit` rows that these scopes held, the longest due first, a step apart; return how many."""
    dialect = dialects.of(connection)
    query = select(_c.id, _c.due_at).where(*_PARKED, _c.held_by.in_(bindparam("scopes", expanding=True)))
    ordered = query.order_by(_c.held_by, _c.due_at).limit(limit)
    rows = connection.execute(dialect.locked(ordered), {"scopes": list(open_scopes)}).all()
    if rows:
        wakes = [{"it": row.id, "at": max(row.due_at, first + step * number)} for number, row in enumerate(rows)]
        its = update(deliveries).where(_c.id == bindparam("it"))
        connection.execute(its.values(held_by=None, wake_at=bindparam("at"), slot_at=None), wakes)
    return len(rows)


def depth(connection: Connection, scopes: Sequence[str] | None = None, *, at_most: int = 10_000) -> int:
    """Return how many rows are parked (by these scopes, or at all), counted no further than `at_most`."""
    query = select(_c.id).where(*_PARKED)
    if scopes is not None:
        query = query.where(_c.held_by.in_(scopes))
    some = query.limit(at_most).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one()
