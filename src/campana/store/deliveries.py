"""Deliveries as rows: made, read, listed, cancelled. How they are claimed and settled stands beside, in a module each."""

import json
from collections import defaultdict, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, cast
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select

from campana.domain.acts import Act, Came, Deed
from campana.domain.deliveries import LIVE, State
from campana.domain.tickets import NewDelivery
from campana.store import acts, dialects, events
from campana.store.schema import deliveries

Record = Row[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Where a new delivery ended up: its own id, or that of the one which already holds its dedupe key."""

    id: UUID
    deduplicated: bool


def create(connection: Connection, new: Sequence[NewDelivery], *, now: datetime) -> list[Made]:
    """Insert deliveries, each unless its dedupe key is taken; run again, it finds its own rows and says the same."""
    dialect = dialects.of(connection)
    is_first = dialect.insert_new(connection, deliveries, [_row(one, now) for one in new])
    keyed = [one for one in new if one.dedupe_key is not None]
    holders = _holders(connection, keyed) if keyed else {}
    made = []
    for one in new:
        holder = holders.get((one.tenant_id, one.dedupe_key), one.id)
        made.append(Made(id=holder, deduplicated=holder != one.id))
    if is_first:
        fresh = [one for one, it in zip(new, made, strict=True) if not it.deduplicated]
        events.tell(connection, [_taken_in(one) for one in fresh], now=now)
    return made


class Entered(NamedTuple):
    """What became of a new delivery: whether its dedupe key was taken, and the row that it is, or that holds the key."""

    was_there: bool
    record: Record | None


def enter(connection: Connection, new: Sequence[NewDelivery], *, now: datetime) -> list[Entered]:
    """Make deliveries, perhaps of several tenants, and return the row of each; none where its key's holder went away just now."""
    made = create(connection, new, now=now)
    there: dict[UUID, set[UUID]] = defaultdict(set)
    for wanted, one in zip(new, made, strict=True):
        if one.deduplicated:
            there[wanted.tenant_id].add(one.id)
    holders = {tenant_id: get_many(connection, tenant_id, sorted(ids)) for tenant_id, ids in there.items()}
    return [
        Entered(one.deduplicated, holders[wanted.tenant_id].get(one.id) if one.deduplicated else as_made(wanted, now))
        for wanted, one in zip(new, made, strict=True)
    ]


def _taken_in(new: NewDelivery) -> events.Change:
    return events.Change(new.tenant_id, new.id, "delivery.scheduled", State.SCHEDULED, 0)


_Fresh = namedtuple("_Fresh", [column.name for column in deliveries.columns])  # type: ignore[misc]  # noqa: PYI024 - the table names the fields
_NOTHING: dict[str, Any] = dict.fromkeys(_Fresh._fields)


def as_made(new: NewDelivery, now: datetime) -> Record:
    """Return the row that `create` has just inserted, without asking for it again."""
    return cast("Record", _Fresh(**(_NOTHING | _row(new, now))))


def _row(new: NewDelivery, now: datetime) -> dict[str, Any]:
    return {
        "id": new.id,
        "tenant_id": new.tenant_id,
        "project_id": new.project_id,
        "queue": new.queue,
        "channel": new.channel,
        "target": new.target,
        "payload": new.payload,
        "policies": new.policies,
        "labels": json.dumps(new.labels, ensure_ascii=False) if new.labels else None,
        "recipient": new.recipient,
        "dedupe_key": new.dedupe_key,
        "schedule_id": new.schedule_id,
        "lane_key": new.lane_key,
        "resource": new.resource,
        "priority": new.priority,
        "scheduled_for": new.scheduled_for,
        "due_at": new.due_at,
        "expires_at": new.expires_at,
        "created_at": new.created_at,
        "state": int(State.SCHEDULED),
        # Never into the past: what is long due starts its wait for a worker now.
        "wake_at": max(new.due_at, now),
        "fence": 0,
        "cancel_requested": False,
        "generation": 1,
        "attempt_count": 0,
        "max_attempts": new.max_attempts,
        "key_number": 1,
        "ambiguous_attempts": 0,
        "crash_count": 0,
        "proven_crashes": 0,
    }


_CHUNK = 500


def _holders(connection: Connection, keyed: Sequence[NewDelivery]) -> Mapping[tuple[UUID, str | None], UUID]:
    found: dict[tuple[UUID, str | None], UUID] = {}
    c = deliveries.c
    for tenant_id in {one.tenant_id for one in keyed}:
        keys = [one.dedupe_key for one in keyed if one.tenant_id == tenant_id]
        for start in range(0, len(keys), _CHUNK):
            taken = and_(c.tenant_id == tenant_id, c.dedupe_key.in_(keys[start : start + _CHUNK]))
            for row in connection.execute(select(c.id, c.dedupe_key).where(taken)):
                found[tenant_id, row.dedupe_key] = row.id
    return found


def get(connection: Connection, tenant_id: UUID, delivery_id: UUID) -> Record | None:
    """Return one delivery of this tenant."""
    c = deliveries.c
    return connection.execute(select(deliveries).where(c.id == delivery_id, c.tenant_id == tenant_id)).first()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which deliveries a list shows; what is empty or None does not narrow."""

    states: frozenset[State] = frozenset()
    channel: str | None = None
    recipient: str | None = None
    project_id: UUID | None = None
    dedupe_key: str | None = None
    provider_call_id: str | None = None
    schedule_id: UUID | None = None
    due_from: datetime | None = None
    due_to: datetime | None = None
    labels: Mapping[str, str] | None = None


def newest(
    connection: Connection, tenant_id: UUID, wanted: Filter, *, before: UUID | None, limit: int, down_to: UUID | None = None
) -> list[Record]:
    """Return a tenant's deliveries, the newest first, those after the cursor `before`, none older than `down_to`."""
    c = deliveries.c
    query = select(deliveries).where(c.tenant_id == tenant_id).order_by(c.id.desc()).limit(limit)
    if wanted.dedupe_key is None:
        # Left alone, MariaDB reads all of a tenant's rows from the newest on until it comes to the cursor.
        query = query.with_hint(deliveries, "force index (deliveries_list)", "mysql")
    if before is not None:
        query = query.where(c.id < before)
    if down_to is not None:
        query = query.where(c.id >= down_to)
    return list(connection.execute(query.where(*matching(connection, wanted))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which part of a list is looked through: so many rows after `before`, until so many are found."""

    before: UUID | None
    limit: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was found in a window, and where the next one begins; None where nothing is left."""

    records: Sequence[Record]
    end: UUID | None


_LAST = UUID(int=(1 << 128) - 1)


def window(connection: Connection, tenant_id: UUID, wanted: Filter, asked: Window) -> Seen:
    """Return what matches in one window of a tenant's deliveries, the newest first: however little, it costs no more."""
    c, end = deliveries.c, None
    if wanted != Filter() and wanted.dedupe_key is None:
        below = dialects.of(connection).below(c.tenant_id, tenant_id, c.id, asked.before or _LAST)
        walk = select(c.id).where(*below).order_by(c.tenant_id.desc(), c.id.desc())
        walk = walk.with_hint(deliveries, "force index (deliveries_list)", "mysql")
        end = connection.execute(walk.offset(asked.size - 1).limit(1)).scalar()
    records = newest(connection, tenant_id, wanted, before=asked.before, limit=asked.limit, down_to=end)
    return Seen(records=records, end=end if len(records) < asked.limit else records[-1].id)


def matching(connection: Connection, wanted: Filter) -> list[ColumnElement[bool]]:
    """Return what is true of the deliveries that a filter leaves."""
    c = deliveries.c
    columns = (c.channel, c.recipient, c.project_id, c.dedupe_key, c.provider_call_id, c.schedule_id)
    true = [column == value for column in columns if (value := getattr(wanted, column.name)) is not None]
    if wanted.states:
        true.append(c.state.in_(sorted(int(state) for state in wanted.states)))
    if wanted.due_from is not None:
        true.append(c.due_at >= wanted.due_from)
    if wanted.due_to is not None:
        true.append(c.due_at < wanted.due_to)
    position = getattr(func, dialects.of(connection).position)
    for name, value in (wanted.labels or {}).items():
        # Labels are JSON with one spelling: an exact member between its neighbours is an exact piece of the text. Not LIKE,
        # which on SQLite takes no notice of case.
        member = json.dumps({name: value}, ensure_ascii=False)[1:-1]
        pieces = [start + member + end for start in ("{", " ") for end in (",", "}")]
        true.append(or_(*(position(c.labels, piece) > 0 for piece in pieces)))
    return true


class Cancelled(Enum):
    """What came of a wish to cancel."""

    NOW = "cancelled"
    REQUESTED = "requested"
    ALREADY_FINAL = "already final"
    UNKNOWN = "unknown"


_CANCELLED = {
    Came.DONE: Cancelled.NOW,
    Came.REQUESTED: Cancelled.REQUESTED,
    Came.WRONG_STATE: Cancelled.ALREADY_FINAL,
    Came.UNKNOWN: Cancelled.UNKNOWN,
}


def cancel(connection: Connection, tenant_id: UUID, delivery_id: UUID, *, now: datetime, actor: str = "") -> Cancelled:
    """End a waiting delivery; of one under way request it. Run again, it says the same."""
    deed = Deed(act=Act.CANCEL, actor=actor)
    return _CANCELLED[acts.perform(connection, tenant_id, [delivery_id], deed, now=now)[delivery_id]]


def get_many(connection: Connection, tenant_id: UUID, ids: Sequence[UUID]) -> Mapping[UUID, Record]:
    """Return these deliveries of the tenant by id."""
    c = deliveries.c
    found: dict[UUID, Record] = {}
    for start in range(0, len(ids), _CHUNK):
        wanted = (c.tenant_id == tenant_id, c.id.in_(ids[start : start + _CHUNK]))
        found |= {row.id: row for row in connection.execute(select(deliveries).where(*wanted))}
    return found


def ended(connection: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """Return those of these deliveries that have ended, or are not there any more."""
    there: set[UUID] = set()
    live = deliveries.c.state.in_(sorted(int(state) for state in LIVE))
    for start in range(0, len(ids), _CHUNK):
        query = select(deliveries.c.id).where(deliveries.c.id.in_(ids[start : start + _CHUNK]), live)
        there.update(connection.execute(query).scalars())
    return [one for one in ids if one not in there]


def state(record: Record) -> State:
    """Return where a delivery stands."""
    return State(record.state)
