"""Row leases: one holder at a time for what only one process should do, each holding with a fence of its own."""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, select, update

from campana.store import dialects
from campana.store.schema import leases


def take(connection: Connection, name: str, holder: UUID, *, now: datetime, length: timedelta) -> int | None:
    """Take or prolong a lease; return its fence, which rises when the holder changes, or None if somebody else has it."""
    dialect, c = dialects.of(connection), leases.c
    connection.execute(dialect.insert_absent(leases, "name"), {"name": name, "fence": 0})
    row = connection.execute(dialect.locked(select(leases).where(c.name == name))).one()
    if row.holder != holder and row.until is not None and row.until > now:
        return None
    fence: int = row.fence if row.holder == holder else row.fence + 1
    connection.execute(update(leases).where(c.name == name).values(holder=holder, fence=fence, until=now + length))
    return fence


def prolong(connection: Connection, name: str, holder: UUID, fence: int, *, until: datetime) -> bool:
    """Hold on to a lease that nobody else has taken since; until the transaction's end nobody can."""
    row = connection.execute(dialects.of(connection).locked(select(leases).where(leases.c.name == name))).first()
    if row is None or (row.holder, row.fence) != (holder, fence):
        return False
    connection.execute(update(leases).where(leases.c.name == name).values(until=until))
    return True


def is_anothers(connection: Connection, name: str, me: UUID, *, now: datetime) -> bool:
    """Say whether somebody else holds the lease."""
    row = connection.execute(select(leases.c.holder, leases.c.until).where(leases.c.name == name)).first()
    return row is not None and row.holder != me and row.until is not None and row.until > now


def cursor(connection: Connection, name: str) -> int:
    """Return how far the holders have come so far; 0 at first. Only under the lease it stays so."""
    found: int | None = connection.execute(select(leases.c.cursor).where(leases.c.name == name)).scalar()
    return found or 0


def move(connection: Connection, name: str, cursor: int) -> None:
    """Write down how far the holder has come, in the transaction that took the lease."""
    connection.execute(update(leases).where(leases.c.name == name).values(cursor=cursor))


def give_back(connection: Connection, name: str, holder: UUID) -> None:
    """End a lease early; somebody else's is left alone."""
    c = leases.c
    connection.execute(update(leases).where(c.name == name, c.holder == holder).values(until=None))


def give_back_all(connection: Connection, holder: UUID) -> None:
    """End every lease of somebody who leaves."""
    c = leases.c
    names = list(connection.execute(select(c.name).where(c.holder == holder)).scalars())
    for name in sorted(names):
        give_back(connection, name, holder)


def is_held(connection: Connection, name: str, holder: UUID, fence: int, *, now: datetime) -> bool:
    """Say whether the lease is still this holder's, under this fence."""
    row = connection.execute(select(leases).where(leases.c.name == name)).first()
    return row is not None and row.holder == holder and row.fence == fence and row.until is not None and row.until > now
