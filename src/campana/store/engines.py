"""Engines and their tick: the heartbeat, and in the same breath what an engine must know of the world each second."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, update

from campana.domain import instants
from campana.store import bulk, dialects, holds, leases, limits, relay, secrets, switches, tenants, versions, wakes
from campana.store.schema import engines


@dataclass(frozen=True, slots=True, kw_only=True)
class Chores:
    """What there is to do beside sends and timers: whoever does it need not ask while it is not there."""

    parked: bool = False
    """Something is held by a scope, and may be let go when it opens."""
    events: bool = False
    """Events wait for their numbers."""
    operations: bool = False
    """Something was asked for many deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What one tick brought back."""

    database_now: datetime | None
    """The server's time; None where the file has no clock but this machine's."""
    switches_version: int
    secrets_version: int
    next_send: datetime | None
    next_timer: datetime | None
    chores: Chores = field(default_factory=Chores)


def tick(
    connection: Connection,
    me: UUID,
    queues: Sequence[str],
    *,
    now: datetime,
    started_at: datetime,
    free: int,
    version: str,
) -> Pulse:
    """Say that this engine lives, and read the time, the switches' version and the next wake-ups."""
    absent = dialects.of(connection).insert_absent(engines, "id")
    seen = {"seen_at": now, "free_slots": free}
    beat = connection.execute(update(engines).where(engines.c.id == me).values(**seen))
    if beat.rowcount == 0:
        row = {"id": me, "started_at": started_at, "version": version, "queues": dialects.json_text(list(queues)), **seen}
        connection.execute(absent, row)
    numbers = versions.every(connection)
    next_send, next_timer = wakes.next_wake(connection, queues, suspects=True), wakes.next_timer(connection)
    chores = Chores(
        parked=holds.any_parked(connection),
        events=relay.is_behind(connection),
        operations=bulk.running(connection, after=None) is not None,
    )
    # Last: by as much as the answer comes later, the engine takes the time for earlier than it is.
    told = dialects.database_now(connection)
    return Pulse(
        database_now=None if told is None else instants.from_micros(told),
        switches_version=numbers.get(switches.VERSION, 0),
        secrets_version=numbers.get(secrets.VERSION, 0),
        next_send=next_send,
        next_timer=next_timer,
        chores=chores,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What is closed: scopes that are switched off and tenants that are suspended."""

    off: frozenset[str]
    suspended: frozenset[UUID]
    tenants: tuple[UUID, ...] = ()
    """Those that are served, in their order."""
    limits: frozenset[str] = frozenset()
    """Scopes with a rate."""

    @property
    def closed(self) -> frozenset[str]:
        """Return every scope that holds what stands under it."""
        return self.off | {f"suspended:{tenant}" for tenant in self.suspended}


def board(connection: Connection) -> Board:
    """Read everything that is closed, and who is served."""
    suspended = tenants.suspended(connection)
    return Board(
        off=switches.off(connection),
        suspended=suspended,
        tenants=tuple(tenant for tenant in tenants.every(connection) if tenant not in suspended),
        limits=limits.scopes(connection),
    )


def others(connection: Connection, me: UUID, *, since: datetime) -> Sequence[Row[Any]]:
    """Return the other engines that were seen since, and have not left."""
    return connection.execute(select(engines).where(engines.c.id != me, *alive(since))).all()


def alive(since: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return what is true of engines that were seen since, and have not left."""
    return engines.c.seen_at >= since, engines.c.left_at.is_(None)


def unserved(connection: Connection, me: UUID, *, now: datetime, since: datetime) -> Mapping[str, datetime]:
    """Return the queues in which work is due that no living engine serves, with its first instant; told to one engine alone."""
    living = connection.execute(select(engines.c.id, engines.c.queues).where(*alive(since))).all()
    if any(one.queues is None for one in living) or me != min((one.id for one in living), default=me):
        return {}
    served = {queue for one in living for queue in json.loads(one.queues)}
    firsts = {
        queue: wakes.next_wake(connection, [queue], suspects=False) for queue in wakes.queues(connection) if queue not in served
    }
    return {queue: first for queue, first in firsts.items() if first is not None and first <= now}


def leave(connection: Connection, me: UUID, *, now: datetime) -> None:
    """Write down that this engine has left; its row says for how long nobody was there. Others may have what it alone did."""
    leases.give_back_all(connection, me)
    connection.execute(update(engines).where(engines.c.id == me).values(left_at=now, free_slots=0))


def newest(connection: Connection) -> datetime | None:
    """Return when any engine was seen last, or None if none ever was."""
    found: datetime | None = connection.execute(select(func.max(engines.c.seen_at))).scalar()
    return found


def prune(connection: Connection, *, now: datetime) -> int:
    """Take away the rows of engines that were not seen for a day, but for the last one that was."""
    last = newest(connection)
    if last is None:
        return 0
    return connection.execute(delete(engines).where(engines.c.seen_at < min(last, now - timedelta(days=1)))).rowcount


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What a look at the database itself tells."""

    database_now: datetime | None
    isolation: str
    is_read_committed: bool


def examine(connection: Connection) -> Examined:
    """Read the server's clock and the isolation that our transactions get."""
    told = dialects.database_now(connection)
    isolation = connection.get_isolation_level()
    return Examined(
        database_now=None if told is None else instants.from_micros(told),
        isolation=isolation.lower(),
        is_read_committed=told is None or isolation == "READ COMMITTED",
    )
