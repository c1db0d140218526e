"""Rates: a scope with a limit hands out instants in the future, so that each delivery waits for its own, once.

`tat` is the instant at which the bucket is empty again. Run again after a lost COMMIT, a reservation hands out later
instants and the first ones go unused: slower than allowed for a moment, never faster.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, select, update

from campana.domain.instants import EPOCH, MICROSECOND
from campana.store import dialects, switches
from campana.store.schema import limits

_c = limits.c


def put(connection: Connection, scope: str, *, interval: timedelta, burst: int) -> None:
    """Allow one in so much time under this scope, and so many at once after a rest."""
    rate = {"interval_us": interval // MICROSECOND, "burst": burst}
    absent = dialects.of(connection).insert_absent(limits, "scope")
    connection.execute(absent, {"scope": scope, "tat": EPOCH, **rate})
    connection.execute(update(limits).where(_c.scope == scope).values(**rate))
    switches.changed(connection)


def drop(connection: Connection, scope: str) -> None:
    """Allow any rate under this scope."""
    connection.execute(delete(limits).where(_c.scope == scope))
    switches.changed(connection)


def scopes(connection: Connection) -> frozenset[str]:
    """Return the scopes that have a limit."""
    return frozenset(connection.execute(select(_c.scope)).scalars())


def reserve(connection: Connection, wanted: Mapping[str, int], *, now: datetime) -> Mapping[str, Sequence[datetime]]:
    """Hand out so many instants under each scope, the first ones perhaps now; a scope without a limit gives none."""
    if not wanted:
        return {}
    dialect = dialects.of(connection)
    query = select(limits).where(_c.scope.in_(bindparam("scopes", expanding=True))).order_by(_c.scope)
    rows = connection.execute(dialect.locked(query), {"scopes": sorted(wanted)}).all()
    given: dict[str, Sequence[datetime]] = {}
    for row in rows:
        interval, begin = timedelta(microseconds=row.interval_us), max(row.tat, now)
        early = interval * (row.burst - 1)
        given[row.scope] = [max(now, begin + interval * number - early) for number in range(wanted[row.scope])]
        connection.execute(update(limits).where(_c.scope == row.scope).values(tat=begin + interval * wanted[row.scope]))
    return given
