"""The relay: events get their numbers after their commit, from one holder at a time, so that no reader misses a late one.

An id is drawn when an event is written, and a transaction that drew an early one may commit late: whoever reads on from the
last id that it saw would never see it. A number is given to what is committed, in a transaction that holds the lease's row
from its first statement to its commit. So two relays can't number at once, a frozen one that wakes up finds another holder
there, and numbers become visible in their order, from 1 on and without a gap.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from sqlalchemy import Connection, select, update

from campana.store import leases
from campana.store.schema import events

NAME = "relay"
_c = events.c
# Left alone, MariaDB may look for them along the primary key, past everything that is numbered.
_FRESH = select(_c.id).where(_c.number.is_(None)).with_hint(events, "force index (events_unnumbered)", "mysql")


def is_wanted(connection: Connection, me: UUID, *, now: datetime) -> bool:
    """Say whether something waits for its number and nobody else is there to give it."""
    return not leases.is_anothers(connection, NAME, me, now=now) and is_behind(connection)


def is_behind(connection: Connection) -> bool:
    """Say whether something waits for its number."""
    return connection.execute(_FRESH.limit(1)).first() is not None


def number(connection: Connection, me: UUID, *, now: datetime, length: timedelta, limit: int) -> int | None:
    """Number the next events that are committed, in the order of their ids; None if another relay is at work.

    Run again after a lost COMMIT it numbers the ones after them.
    """
    if leases.take(connection, NAME, me, now=now, length=length) is None:
        return None
    last = leases.cursor(connection, NAME)
    ids = list(connection.execute(_FRESH.order_by(_c.id).limit(limit)).scalars())
    for first, past in _runs(ids):
        # Between neighbours there is no room for one that commits meanwhile.
        theirs = update(events).where(_c.id >= first, _c.id < past)
        connection.execute(theirs.values(number=_c.id + (last + 1 - first)))
        last += past - first
    if ids:
        leases.move(connection, NAME, last)
    return len(ids)


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each run of ids that follow one another, as its first one and the one past its last."""
    for _, run in groupby(enumerate(ids), lambda placed: placed[1] - placed[0]):
        together = [it for _, it in run]
        yield together[0], together[-1] + 1
