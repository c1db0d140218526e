"""Sweeps: what is done from time to time, as data; and their record, one row each.

A sweep is a function and a period. Whoever runs one holds its lease, under a fence that each of its pages looks at again in
its own transaction: one that was frozen, or is too slow for its lease, is stopped there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import Connection, Row, select, update

from campana.store import dialects, engines, lanes, leases, retention
from campana.store.retention import Swept
from campana.store.schema import sweeps

_c = sweeps.c
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)


class Work(Protocol):
    """Does one page of a sweep. Run again it does the next one, or nothing."""

    def __call__(self, connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
        """Work on at most `limit` rows past this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Something to be done every so often."""

    name: str
    what: str
    period: timedelta
    work: Work
    page: int = 500


def _lanes(connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
    del keep, past
    count = lanes.sweep(connection, now=now)
    return Swept(count, more=count >= limit)


def _engines(connection: Connection, *, now: datetime, keep: timedelta, limit: int, past: UUID | None) -> Swept:
    del keep, limit, past
    return Swept(engines.prune(connection, now=now))


SWEEPS: Mapping[str, Sweep] = {
    one.name: one
    for one in (
        Sweep(name="deliveries", what="ended deliveries past their retention", period=_HOUR, work=retention.ended),
        Sweep(name="events", what="events past their retention", period=10 * _MINUTE, work=retention.told, page=1_000),
        Sweep(name="operations", what="operations past their retention", period=24 * _HOUR, work=retention.done),
        Sweep(
            name="idempotency",
            what="answers under idempotency keys after 24 hours",
            period=_HOUR,
            work=retention.answered,
            page=100,
        ),
        Sweep(name="ledger", what="ledger claims that were never confirmed", period=24 * _HOUR, work=retention.lapsed),
        Sweep(name="lanes", what="lanes and slots that nobody under way holds", period=_MINUTE, work=_lanes),
        Sweep(name="engines", what="engines that were not seen for a day", period=_HOUR, work=_engines),
    )
}


def every(connection: Connection) -> Mapping[str, Row[Any]]:
    """Return the records of those that were ever run, by name."""
    return {row.name: row for row in connection.execute(select(sweeps))}


def due(connection: Connection, names: Sequence[str], *, now: datetime) -> list[str]:
    """Return those of these names that are due; what was never run is."""
    found = every(connection)
    return [name for name in names if name not in found or found[name].next_at <= now]


def begin(connection: Connection, name: str, me: UUID, *, now: datetime, length: timedelta, is_asked: bool = False) -> int | None:
    """Take a sweep that is due, or asked for; return the lease's fence, or None if it is not ours to run now."""
    fence = leases.take(connection, _lease(name), me, now=now, length=length)
    if fence is None:
        return None
    connection.execute(dialects.of(connection).insert_absent(sweeps, "name"), {"name": name, "next_at": now})
    if not is_asked and connection.execute(select(_c.next_at).where(_c.name == name)).scalar_one() > now:
        leases.give_back(connection, _lease(name), me)
        return None
    fresh = {"started_at": now, "finished_at": None, "done": 0, "error": None}
    connection.execute(update(sweeps).where(_c.name == name).values(**fresh))
    return fence


def turn(
    connection: Connection, name: str, me: UUID, fence: int, *, now: datetime, length: timedelta, keep: timedelta
) -> Swept | None:
    """Do one page and write down how far that went; None if the lease is another's by now."""
    if not leases.prolong(connection, _lease(name), me, fence, until=now + length):
        return None
    sweep, record = SWEEPS[name], connection.execute(select(sweeps).where(_c.name == name)).one()
    swept = sweep.work(connection, now=now, keep=keep, limit=sweep.page, past=record.past)
    done = (record.done or 0) + swept.rows
    connection.execute(update(sweeps).where(_c.name == name).values(done=done, past=swept.past))
    return swept


def end(
    connection: Connection, name: str, me: UUID, fence: int, *, now: datetime, next_at: datetime, error: str | None = None
) -> bool:
    """Write down how it ended and when it is due again; False if the lease is another's by now."""
    if not leases.prolong(connection, _lease(name), me, fence, until=now):
        return False
    result = {"finished_at": now, "next_at": next_at, "error": error and error[:500]}
    connection.execute(update(sweeps).where(_c.name == name).values(**result))
    leases.give_back(connection, _lease(name), me)
    return True


def _lease(name: str) -> str:
    return f"sweep:{name}"
