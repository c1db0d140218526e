"""What people do to deliveries, as rows: each only where its state allows it, under a fence of its own, and on record.

The record (a verdict with an actor) is what makes it repeatable: run again after a lost COMMIT, an act finds its own and says
the same. A fence more, and whoever still holds an older claim changes nothing.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, case, insert, select, update

from campana.domain.acts import MOVES, REASONS, Act, Came, Deed, refusal
from campana.domain.deliveries import UNDER_WAY, Move, State, after
from campana.domain.tickets import ALONE
from campana.store import dialects, events
from campana.store.events import Change
from campana.store.schema import deliveries, verdicts

_c = deliveries.c
_LOOKED_AT = (_c.id, _c.state, _c.fence, _c.generation, _c.ambiguous_attempts, _c.expires_at, _c.reason)
KINDS = {
    Act.REDRIVE: "delivery.redriven",
    Act.NOT_SENT: "delivery.redriven",
    Act.DISCARD: "delivery.cancelled",
    Act.SENT: "delivery.completed",
    Act.CANCEL: "delivery.cancelled",
}
"""What each is called in the outbox; to be moved is no change of a state, and no news."""


def perform(connection: Connection, tenant_id: UUID, ids: Sequence[UUID], deed: Deed, *, now: datetime) -> Mapping[UUID, Came]:
    """Do this to each of a tenant's deliveries whose state allows it; say of each what came of it."""
    dialect = dialects.of(connection)
    query = select(*_LOOKED_AT).where(dialect.among(_c.id, "ids"), _c.tenant_id == tenant_id).order_by(_c.id)
    rows = connection.execute(dialect.locked(query), {"ids": list(ids)}).all()
    done = _done(connection, rows, deed, now)
    came = dict.fromkeys(ids, Came.UNKNOWN) | {row.id: Came.DONE if row.id in done else _came(row, deed, now) for row in rows}
    _write(connection, tenant_id, [row for row in rows if came[row.id] is Came.DONE and row.id not in done], deed, now)
    _request(connection, [row.id for row in rows if came[row.id] is Came.REQUESTED])
    return came


def is_done(connection: Connection, delivery_id: UUID, deed: Deed, *, now: datetime) -> bool:
    """Say whether this very act, at this instant, is on record."""
    v = verdicts.c
    said = (v.delivery_id == delivery_id, v.verdict == deed.act.value, v.at == now, v.actor == deed.actor)
    return connection.execute(select(v.fence).where(*said)).first() is not None


def _done(connection: Connection, rows: Sequence[Row[Any]], deed: Deed, now: datetime) -> AbstractSet[UUID]:
    """Return where there is nothing left to do: by this very act, run before; and who cancels what is cancelled has it."""
    v = verdicts.c
    said = (v.verdict == deed.act.value, v.at == now, v.actor == deed.actor)
    query = select(v.delivery_id).where(dialects.of(connection).among(v.delivery_id, "ids"), *said)
    recorded = connection.execute(query, {"ids": [row.id for row in rows]}).scalars() if rows else ()
    return {*recorded, *(row.id for row in rows if deed.act is Act.CANCEL and row.state == State.CANCELLED)}


def _came(row: Row[Any], deed: Deed, now: datetime) -> Came:
    state = State(row.state)
    against = refusal(deed, state=state, ambiguous_attempts=row.ambiguous_attempts, expires_at=row.expires_at, now=now)
    is_asked = against is None and deed.act is Act.CANCEL and state in UNDER_WAY
    return Came.REQUESTED if is_asked else against or Came.DONE


def _request(connection: Connection, ids: Sequence[UUID]) -> None:
    """Ask for the end of what is under way: under the fence of whoever has it, who must see it through."""
    if ids:
        theirs = dialects.of(connection).among(_c.id, "ids")
        connection.execute(update(deliveries).where(theirs).values(cancel_requested=True), {"ids": list(ids)})


def _write(connection: Connection, tenant_id: UUID, rows: Sequence[Row[Any]], deed: Deed, now: datetime) -> None:
    if not rows:
        return
    theirs = dialects.of(connection).among(_c.id, "ids")
    change = _change(deed, now)
    connection.execute(update(deliveries).where(theirs).values(change), {"ids": [row.id for row in rows]})
    connection.execute(insert(verdicts), [_record(tenant_id, row, deed, now) for row in rows])
    if deed.act in KINDS:
        to = State(change["state"])
        events.tell(connection, [_told(tenant_id, row, deed, to) for row in rows], now=now)


def _change(deed: Deed, now: datetime) -> dict[str, Any]:
    change: dict[str, Any] = {"fence": _c.fence + 1, "reason": REASONS[deed.act]}
    match deed.act:
        case Act.RESCHEDULE:
            at = deed.at or now
            # What holds it is met again when it wakes, if it is still there.
            return change | {"due_at": at, "wake_at": max(at, now), "held_by": None, "slot_at": None}
        case Act.CANCEL:
            change |= {"cancel_requested": True, "wake_at": None, "held_by": None, "finished_at": now}
            return change | {"state": int(after(State.SCHEDULED, Move.CANCEL))}
        case act:
            to = after(State.DEAD_LETTER, MOVES[act])
            return change | {"state": int(to)} | (_anew(now) if to is State.SCHEDULED else {"finished_at": now})


def _anew(now: datetime) -> dict[str, Any]:
    """Return what a new generation begins with."""
    return {
        "wake_at": now,
        "finished_at": None,
        "generation": _c.generation + 1,
        "attempt_count": 0,
        "key_number": 1,
        "key_at": None,
        "slot_at": None,
        "cancel_requested": False,
        # A look-up asks by this id, and must not find the call of the generation before.
        "provider_call_id": None,
        # What killed workers goes alone until it has shown that it does so no more, with all its lives.
        "crash_count": case((_c.crash_count > ALONE, ALONE), else_=_c.crash_count),
        "proven_crashes": 0,
        "suspect_fence": None,
    }


def _record(tenant_id: UUID, row: Row[Any], deed: Deed, now: datetime) -> dict[str, Any]:
    return {
        "delivery_id": row.id,
        "fence": row.fence + 1,
        "tenant_id": tenant_id,
        "at": now,
        "guards": "",
        "verdict": deed.act.value,
        # Why it had come to where it was; what became of it says the verdict.
        "reason": row.reason or "",
        "until": deed.at,
        "actor": deed.actor,
        "note": deed.note,
    }


def _told(tenant_id: UUID, row: Row[Any], deed: Deed, to: State) -> Change:
    reason, actor = REASONS[deed.act], deed.actor or None
    return Change(tenant_id, row.id, KINDS[deed.act], to, row.fence + 1, reason=reason, actor=actor)
