"""Lanes and slots: what must not be under way twice at once, and what bears only so much at once.

A lane is a row while it is taken; a slot is a row for each place. Both are taken in the transaction of the claim, in the
order of their keys, and given back in the one that ends what they were taken for, which also wakes who waits. A claimed row
that gets none is parked under the lane's or resource's name until its holder's end. The claim reads the holder under a lock:
either it sees the lane given back, or whoever gives it back sees the one that was parked.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, exists, func, select, text, update

from campana.domain.deliveries import PARKED, Move, State, after
from campana.domain.tickets import Ticket
from campana.store import dialects
from campana.store.schema import deliveries, lanes, slots

_d, _l, _s = deliveries.c, lanes.c, slots.c
# Literal, so that every database sees that it is inside the partial index.
_WAITS = text("deliveries.state in (0, 3)")
_RUNS = text("deliveries.state in (1, 2)")
SHORTEST = timedelta(seconds=1)
"""How long a loser waits at least for a holder that is overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one delivery holds, or may hold."""

    delivery_id: UUID
    lane_key: str | None
    resource: str | None


def take(connection: Connection, tickets: Sequence[Ticket], *, now: datetime, until: datetime) -> list[Ticket]:
    """Keep of freshly claimed rows those whose lane and slot were free; park the others. What has expired needs neither."""
    bound = [one for one in tickets if (one.lane_key or one.resource) and not (one.expires_at and one.expires_at <= now)]
    if not bound:
        return list(tickets)
    holders = _take_lanes(connection, [one for one in bound if one.lane_key], until)
    losers: dict[UUID, tuple[str, datetime]] = {}
    for one in bound:
        holder, its_end = holders.get(one.lane_key or "", (one.id, until))
        if one.lane_key and holder != one.id:
            losers[one.id] = (one.lane_key, max(its_end, now + SHORTEST))
    full = _take_slots(connection, [one for one in bound if one.resource and one.id not in losers])
    for one in full:
        losers[one.id] = (one.resource or "", now + PARKED)
    _park(connection, [one for one in bound if one.id in losers], losers)
    # Parked first: among those that wake may be one of this very claim.
    lanes_only = [Held(delivery_id=one.id, lane_key=one.lane_key, resource=None) for one in full]
    release(connection, lanes_only, now=now)
    return [one for one in tickets if one.id not in losers]


def _take_lanes(connection: Connection, tickets: Sequence[Ticket], until: datetime) -> Mapping[str, tuple[UUID, datetime]]:
    """Return who holds each lane now, and how long."""
    if not tickets:
        return {}
    dialect = dialects.of(connection)
    first: dict[str, Ticket] = {}
    for one in sorted(tickets, key=lambda ticket: ticket.wake_at):
        first.setdefault(one.lane_key or "", one)
    rows = [{"lane_key": key, "delivery_id": first[key].id, "until": until} for key in sorted(first)]
    dialect.insert_all(connection, dialect.insert_absent(lanes, "lane_key"), rows)
    query = select(lanes).where(dialect.among(_l.lane_key, "keys")).order_by(_l.lane_key)
    found = connection.execute(dialect.locked(query), {"keys": sorted(first)})
    return {row.lane_key: (row.delivery_id, row.until) for row in found}


def _take_slots(connection: Connection, tickets: Sequence[Ticket]) -> list[Ticket]:
    """Give each a place of its resource, as far as there are any; return those that got none."""
    wanted: dict[str, list[Ticket]] = defaultdict(list)
    for one in sorted(tickets, key=lambda ticket: ticket.wake_at):
        wanted[one.resource or ""].append(one)
    without: list[Ticket] = []
    for resource in sorted(wanted):
        mine = wanted[resource]
        query = select(_s.n).where(_s.resource == resource, _s.delivery_id.is_(None)).order_by(_s.n).limit(len(mine))
        places = list(connection.execute(query.with_for_update(skip_locked=True)).scalars())
        for place, one in zip(places, mine, strict=False):
            taken = update(slots).where(_s.resource == resource, _s.n == place)
            connection.execute(taken.values(delivery_id=one.id))
        without += mine[len(places) :]
    return without


def _park(connection: Connection, tickets: Sequence[Ticket], losers: Mapping[UUID, tuple[str, datetime]]) -> None:
    if not tickets:
        return
    rows = []
    for one in sorted(tickets, key=lambda ticket: ticket.id):
        scope, at = losers[one.id]
        move = Move.RETURN_TRIED if one.state == State.PENDING_RETRY else Move.RETURN_UNTRIED
        wakes = min(at, one.expires_at) if one.expires_at else at
        rows.append({"it": one.id, "to": int(after(State.PROCESSING, move)), "scope": scope, "at": wakes})
    parked: dict[str, Any] = {"state": bindparam("to"), "wake_at": bindparam("at"), "held_by": bindparam("scope")}
    parked |= {"lease_owner": None, "run_until": None}
    connection.execute(update(deliveries).where(_d.id == bindparam("it")).values(parked), rows)


def release(connection: Connection, held: Iterable[Held], *, now: datetime) -> int:
    """Give back what these deliveries hold, and wake whoever waits for it; return how many wake."""
    every = [one for one in held if one.lane_key or one.resource]
    if not every:
        return 0
    woken = _free_lanes(connection, {(one.lane_key, one.delivery_id) for one in every if one.lane_key})
    for resource in sorted({one.resource for one in every if one.resource}):
        mine = [one.delivery_id for one in every if one.resource == resource]
        freed = update(slots).where(_s.resource == resource, _s.delivery_id.in_(mine)).values(delivery_id=None)
        woken += _first(connection, resource, connection.execute(freed).rowcount)
    return _wake(connection, woken, now)


def _free_lanes(connection: Connection, wanted: AbstractSet[tuple[str, UUID]]) -> list[UUID]:
    """Delete the lanes that these hold (some may have gone without: what has expired needs none); return who waits first."""
    if not wanted:
        return []
    dialect = dialects.of(connection)
    query = select(_l.lane_key, _l.delivery_id).where(dialect.among(_l.lane_key, "keys")).order_by(_l.lane_key)
    found = connection.execute(dialect.locked(query), {"keys": sorted({key for key, _ in wanted})})
    keys = [row.lane_key for row in found if (row.lane_key, row.delivery_id) in wanted]
    if not keys:
        return []
    following = select(_d.id).where(_d.held_by == _l.lane_key, _WAITS).order_by(_d.due_at).limit(1).scalar_subquery()
    theirs = dialect.among(_l.lane_key, "keys")
    woken = [row.first for row in connection.execute(select(following.label("first")).where(theirs), {"keys": keys})]
    connection.execute(delete(lanes).where(theirs), {"keys": keys})
    return [one for one in woken if one is not None]


def _first(connection: Connection, scope: str, count: int) -> list[UUID]:
    """Return the first who wait for a resource."""
    if count <= 0:
        return []
    query = select(_d.id).where(_d.held_by == scope, _WAITS).order_by(_d.due_at).limit(count)
    return list(connection.execute(query.with_for_update(skip_locked=True)).scalars())


def _wake(connection: Connection, ids: Sequence[UUID], now: datetime) -> int:
    if not ids:
        return 0
    theirs = dialects.of(connection).among(_d.id, "ids")
    # Still parked: what was claimed or cancelled meanwhile goes its own way.
    waking = update(deliveries).where(theirs, _WAITS, _d.held_by.is_not(None)).values(held_by=None, wake_at=now)
    connection.execute(waking, {"ids": sorted(ids)})
    return len(ids)


def extend(connection: Connection, holders: Sequence[tuple[Held, datetime]]) -> None:
    """Move the ends of these holders' lanes: what loses against them waits until then."""
    in_order = sorted((one.lane_key, one.delivery_id, at) for one, at in holders if one.lane_key)
    if in_order:
        mine = (_l.lane_key == bindparam("key"), _l.delivery_id == bindparam("it"))
        rows = [{"key": key, "it": it, "to": at} for key, it, at in in_order]
        connection.execute(update(lanes).where(*mine).values(until=bindparam("to")), rows)


def provide(connection: Connection, resource: str, places: int) -> None:
    """Let a resource have so many places; one that is taken and too many goes when it is given back, by the sweep."""
    dialect = dialects.of(connection)
    rows = [{"resource": resource, "n": n} for n in range(1, places + 1)]
    if rows:
        connection.execute(dialect.insert_absent(slots, "resource"), rows)
    connection.execute(delete(slots).where(_s.resource == resource, _s.n > places, _s.delivery_id.is_(None)))


def free(connection: Connection, resource: str) -> int:
    """Return how many places of a resource are free."""
    query = select(func.count()).select_from(slots).where(_s.resource == resource, _s.delivery_id.is_(None))
    return connection.execute(query).scalar_one()


MOST = 500


def sweep(connection: Connection, *, now: datetime) -> int:
    """Give back what nobody under way holds, and wake whoever waits for what is free: the net below `release`."""
    its = select(_d.id).where(_d.id == _l.delivery_id, _RUNS)
    query = select(lanes).where(~exists(its)).order_by(_l.lane_key).limit(MOST)
    lost = [Held(delivery_id=row.delivery_id, lane_key=row.lane_key, resource=None) for row in connection.execute(query)]
    its = select(_d.id).where(_d.id == _s.delivery_id, _RUNS)
    query = select(slots).where(_s.delivery_id.is_not(None), ~exists(its)).order_by(_s.resource, _s.n).limit(MOST)
    lost += [Held(delivery_id=row.delivery_id, lane_key=None, resource=row.resource) for row in connection.execute(query)]
    release(connection, lost, now=now)
    taken = select(_l.lane_key).where(_l.lane_key == _d.held_by)
    stranded = select(_d.id).where(_d.held_by.like("lane:%"), _WAITS, ~exists(taken)).order_by(_d.due_at).limit(MOST)
    return len(lost) + _wake(connection, list(connection.execute(stranded).scalars()), now)


def fill(connection: Connection, resources: Iterable[str], *, now: datetime) -> int:
    """Wake as many of those who wait for a resource as it has free places, found by comparing; return how many."""
    woken: list[UUID] = []
    for resource in resources:
        woken += _first(connection, resource, free(connection, resource))
    return _wake(connection, woken, now)
