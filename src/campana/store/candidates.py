"""Which rows a claim takes: what is oldest, what is fair, and suspects; each step locks its rows before it changes them.

Fair means: of each tenant in a window at most a share, the urgent ones first, so that one tenant's million of due rows
does not stand before everybody else's one. It costs a probe of an index for each tenant and priority, so it is done only
while there is a backlog, for a window of tenants at a time; what room is left is filled with what is oldest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, TextualSelect, bindparam, text, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Integer, SmallInteger, String

from campana.domain import instants
from campana.domain.deliveries import Move, State, after
from campana.domain.tickets import Ticket
from campana.store import dialects
from campana.store.columns import Id, Instant, Name
from campana.store.schema import WAITING_APART, deliveries
from campana.store.wakes import DUE, INNOCENT, QUEUE, SUSPECT

CLAIMED = after(State.SCHEDULED, Move.CLAIM)
COLUMNS = tuple(deliveries.c[name] for name in Ticket._fields)
FIELDS = ", ".join(Ticket._fields)
Room = Mapping[str, int]
"""How many rows each queue may give, in the order in which they are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which tenants are served now, in their turn, how many rows of each, and the priorities in the order of their turn."""

    tenants: Sequence[UUID]
    share: int
    priorities: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """By whom, until when, and from which instants on rows are taken."""

    me: UUID
    now: datetime
    lease_until: datetime
    run_until: datetime
    floors: Mapping[str, datetime]
    """By queue, an instant below which nothing waits."""

    def above(self, queue: str) -> datetime:
        """Return the floor of a queue."""
        return self.floors.get(queue, instants.EPOCH)

    def words(self) -> dict[str, Any]:
        """Return the values that a taken row gets."""
        return {"me": self.me, "now": self.now, "lease_until": self.lease_until, "run_until": self.run_until}


def oldest(connection: Connection, terms: Terms, room: Room, free: int) -> list[Ticket]:
    """Take what has been due for longest, up to `free` in all."""
    dialect = dialects.of(connection)
    if isinstance(dialect, dialects.PostgreSQL):
        asked = {"queues": list(room), "slots": list(room.values()), "floors": _above(room, terms), "free": free}
        return _rows(connection, _POSTGRESQL_OLDEST, terms, **asked)
    found: list[Ticket] = []
    for queue, slots in room.items():
        if len(found) < free:
            asked = {"queue": queue, "free": min(slots, free - len(found)), "now": terms.now, "floor": terms.above(queue)}
            found += [Ticket._make(row) for row in connection.execute(_oldest(dialect), asked)]
    return _take(connection, terms, found)


def suspects(connection: Connection, terms: Terms, queues: Sequence[str], limit: int) -> list[Ticket]:
    """Take rows that workers died with."""
    dialect = dialects.of(connection)
    if isinstance(dialect, dialects.PostgreSQL):
        return _rows(connection, _POSTGRESQL_SUSPECTS, terms, queues=list(queues), limit=limit)
    asked = {"queues": list(queues), "now": terms.now, "free": limit}
    return _take(connection, terms, [Ticket._make(row) for row in connection.execute(_suspects(dialect), asked)])


def fair(connection: Connection, terms: Terms, window: Window, room: Room, free: int) -> list[Ticket]:
    """Take at most a share of each tenant in the window, in their turn, up to `free` in all."""
    dialect = dialects.of(connection)
    if isinstance(dialect, dialects.PostgreSQL):
        asked = {"queues": list(room), "slots": list(room.values()), "free": free, "share": window.share}
        turns = {"tenants": list(window.tenants), "priorities": list(window.priorities), "floors": _above(room, terms)}
        return _rows(connection, _POSTGRESQL_FAIR, terms, **asked, **turns)
    wanted: list[UUID] = []
    for queue, slots in room.items():
        if len(wanted) < free:
            words = {"queue": queue, "now": terms.now, "floor": terms.above(queue)}
            wanted += _probe(connection, dialect, window, words, min(slots, free - len(wanted)))
    if not wanted:
        return []
    # Looked for without a lock, and looked at again under one.
    turn = {delivery_id: number for number, delivery_id in enumerate(wanted)}
    rows = connection.execute(_again(dialect), {"ids": wanted, "now": terms.now})
    return _take(connection, terms, sorted(map(Ticket._make, rows), key=lambda ticket: turn[ticket.id]))


# --- PostgreSQL: one statement; the candidates are fixed before any of them is changed


def _rows(connection: Connection, statement: TextualSelect, terms: Terms, **asked: Any) -> list[Ticket]:
    return [Ticket._make(row) for row in connection.execute(statement, {**asked, **terms.words()})]


def _above(room: Room, terms: Terms) -> list[int]:
    return [instants.to_micros(terms.above(queue)) for queue in room]


def _postgresql(chosen: str, *binds: Any) -> TextualSelect:
    # `due` keeps what the claim itself changes: the new row holds the end of the lease, and that it is under way.
    returned = ", ".join(f"{'due' if name in {'wake_at', 'state'} else 'd'}.{name}" for name in Ticket._fields)
    return (
        text(
            f"with due as materialized ({chosen})"
            f" update deliveries d set state = {int(CLAIMED)}, fence = fence + 1, lease_owner = :me, wake_at = :lease_until,"
            f" run_until = :run_until, held_by = null from due where d.id = due.id returning {returned}"
        )
        .bindparams(
            bindparam("queues", type_=ARRAY(String)),
            bindparam("me", type_=Id),
            bindparam("now", type_=Instant),
            bindparam("lease_until", type_=Instant),
            bindparam("run_until", type_=Instant),
            *binds,
        )
        .columns(*COLUMNS)
    )


_POSTGRESQL_OLDEST = _postgresql(
    "select c.id, c.wake_at, c.state from unnest(cast(:queues as text[]), cast(:slots as integer[]), cast(:floors as bigint[]))"
    " as q(queue, slots, floor) cross join lateral (select id, wake_at, state from deliveries"
    f" where queue = q.queue and {DUE} and wake_at <= :now and wake_at >= q.floor and {INNOCENT}"
    " order by wake_at limit q.slots for update skip locked) c limit :free",
    bindparam("slots", type_=ARRAY(Integer)),
    bindparam("floors", type_=ARRAY(BigInteger)),
)
_POSTGRESQL_SUSPECTS = _postgresql(
    f"select id, wake_at, state from deliveries where {DUE} and {SUSPECT} and wake_at <= :now"
    f" and {QUEUE} = any(cast(:queues as text[])) order by wake_at limit :limit for update skip locked"
)
_POSTGRESQL_FAIR = _postgresql(
    "select y.id, y.wake_at, y.state from unnest(cast(:queues as text[]), cast(:slots as integer[]), cast(:floors as bigint[]))"
    " as q(queue, slots, floor)"
    " cross join lateral (select x.id, x.wake_at, x.state from unnest(cast(:tenants as uuid[])) as t(id)"
    " cross join lateral (select w.id, w.wake_at, w.state from unnest(cast(:priorities as smallint[])) as p(priority)"
    " cross join lateral (select id, wake_at, state from deliveries"
    f" where queue = q.queue and tenant_id = t.id and priority = p.priority and {WAITING_APART} and wake_at <= :now"
    f" and wake_at >= q.floor and {INNOCENT}"
    " order by wake_at limit :share for update skip locked) w limit :share) x limit q.slots) y limit :free",
    bindparam("slots", type_=ARRAY(Integer)),
    bindparam("floors", type_=ARRAY(BigInteger)),
    bindparam("tenants", type_=ARRAY(Id)),
    bindparam("priorities", type_=ARRAY(SmallInteger)),
)


# --- the others: look, lock, then change by key


def _take(connection: Connection, terms: Terms, found: Sequence[Ticket]) -> list[Ticket]:
    if not found:
        return []
    connection.execute(_TAKE, {**terms.words(), "ids": [ticket.id for ticket in found]})
    return [ticket._replace(fence=ticket.fence + 1) for ticket in found]


_VALUES = {
    "state": int(CLAIMED),
    "fence": deliveries.c.fence + 1,
    "lease_owner": bindparam("me"),
    "wake_at": bindparam("lease_until"),
    "run_until": bindparam("run_until"),
    "held_by": None,
}
_TAKE = update(deliveries).where(deliveries.c.id.in_(bindparam("ids", expanding=True))).values(_VALUES)


def _text(words: str) -> TextualSelect:
    return text(words).bindparams(bindparam("now", type_=Instant)).columns(*COLUMNS)


@lru_cache
def _oldest(dialect: dialects.Dialect) -> TextualSelect:
    send_at = dialect.send_at
    return _text(
        f"select {FIELDS} from {dialect.sends_index}"
        f" where queue = :queue and {DUE} and {send_at} <= :now and {send_at} >= :floor and {INNOCENT}"
        f" order by {send_at} limit :free {dialect.skip_locked}"
    ).bindparams(bindparam("queue", type_=Name(100)), bindparam("floor", type_=Instant))


@lru_cache
def _suspects(dialect: dialects.Dialect) -> TextualSelect:
    return _text(
        f"select {FIELDS} from {dialect.suspects_index}"
        f" where {DUE} and {SUSPECT} and {dialect.suspect_at} <= :now and queue in :queues"
        f" order by {dialect.suspect_at} limit :free {dialect.skip_locked}"
    ).bindparams(bindparam("queues", type_=Name(100), expanding=True))


@lru_cache
def _again(dialect: dialects.Dialect) -> TextualSelect:
    return _text(
        f"select {FIELDS} from deliveries where id in :ids and {DUE} and wake_at <= :now and {INNOCENT} {dialect.skip_locked}"
    ).bindparams(bindparam("ids", type_=Id, expanding=True))


MOST_PROBES = 192
"""Probes in one statement: SQLite takes no more than 500."""


def _probe(connection: Connection, dialect: dialects.Dialect, window: Window, words: Mapping[str, Any], most: int) -> list[UUID]:
    """Return up to so many rows, tenant by tenant, of each at most a share, the priorities in their turn."""
    found: list[UUID] = []
    size = MOST_PROBES // len(window.priorities)
    for start in range(0, len(window.tenants), size):
        tenants = window.tenants[start : start + size]
        asked = {**words, **{f"t{number}": tenant for number, tenant in enumerate(tenants)}}
        rows = connection.execute(_probes(dialect, len(tenants), tuple(window.priorities), window.share), asked)
        by_tenant: dict[int, list[UUID]] = {}
        for row in sorted(rows, key=lambda row: (row.turn, row.class_turn, row.at)):
            mine = by_tenant.setdefault(row.turn, [])
            if len(mine) < window.share:
                mine.append(row.id)
        for mine in by_tenant.values():
            found += mine
        if len(found) >= most:
            break
    return found[:most]


@lru_cache(maxsize=64)
def _probes(dialect: dialects.Dialect, tenants: int, priorities: Sequence[int], share: int) -> TextualSelect:
    at = dialect.send_at
    every = [
        dialect.branch(
            f"select {turn} as turn, {place} as class_turn, {at} as at, id from {dialect.fair_index}"
            f" where queue = :queue and tenant_id = :t{turn} and priority = {int(priority)} and {DUE} and {at} <= :now"
            f" and {at} >= :floor and {INNOCENT} order by {at} limit {int(share)}"
        )
        for turn in range(tenants)
        for place, priority in enumerate(priorities)
    ]
    binds = [bindparam(f"t{turn}", type_=Id) for turn in range(tenants)]
    named = text(" union all ".join(every)).bindparams(
        bindparam("queue", type_=Name(100)), bindparam("now", type_=Instant), bindparam("floor", type_=Instant), *binds
    )
    return named.columns(turn=Integer, class_turn=Integer, at=BigInteger, id=Id)
