"""Settling: writing what became of claimed deliveries, in groups, each only if its fence and state still match.

What was delivered is ended without a look at it; of the rest one transaction locks the rows in the order of their ids (so that
two groups rarely wait for each other in a circle, and where they do, one is run again), writes those that are still held by the
claim, and keeps the others as late evidence. It is repeatable: a row that this same settlement has already changed is
recognised by its attempt or verdict, and counted as settled.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Row, Update, bindparam, func, select, text, update
from sqlalchemy.sql.dml import ReturningUpdate

from campana.domain import deliveries as model
from campana.domain import events as told
from campana.domain import lookups, outcomes
from campana.domain.deliveries import FINAL, LOOKUP, UNDER_WAY, State, Transition
from campana.domain.tickets import Settlement
from campana.store import attempts as tries
from campana.store import dialects, events, evidence, lanes
from campana.store.columns import Instant
from campana.store.schema import deliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What really became of one delivery: a cancel requested meanwhile may have changed the transition."""

    settlement: Settlement
    state: State
    transition: Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a group came to: the settled ones, and those that had lost their claim."""

    settled: Sequence[Settled]
    late: Sequence[Settlement]


_c = deliveries.c
_LOCKED = (
    _c.id, _c.tenant_id, _c.fence, _c.state, _c.cancel_requested, _c.attempt_count, _c.expires_at, _c.reason,
    _c.lane_key, _c.resource,
)  # fmt: skip
Locked = Row[Any]
# By name: a column that a migration added stands last in the table.
_EVERY = ", ".join(column.name for column in _c)


def apply(connection: Connection, group: Sequence[Settlement], *, now: datetime) -> Applied:
    """Write the group's outcomes where fence and state match; keep the rest as late attempts that change nothing."""
    done = _complete(connection, group, now)
    ended = {(one.settlement.delivery_id, one.settlement.fence) for one in done}
    rest = [one for one in group if (one.delivery_id, one.fence) not in ended] if ended else group
    if not rest:
        return Applied(settled=done, late=[])
    dialect = dialects.of(connection)
    query = select(*_LOCKED).where(dialect.among(_c.id, "ids")).order_by(_c.id)
    found = connection.execute(dialect.locked(query), {"ids": [one.delivery_id for one in rest]})
    rows = {row.id: row for row in found}
    current: list[tuple[Locked, Settlement]] = []
    stale: list[Settlement] = []
    for settlement in rest:
        row = rows.get(settlement.delivery_id)
        if row is not None and row.fence == settlement.fence and row.state == settlement.begins:
            current.append((row, settlement))
        else:
            stale.append(settlement)
    settled = [*done, *_write(connection, current, now)]
    if not stale:
        return Applied(settled=settled, late=[])
    mine, late = _sort_out(connection, stale, rows)
    return Applied(settled=[*settled, *mine], late=late)


def _complete(connection: Connection, group: Sequence[Settlement], now: datetime) -> list[Settled]:
    """End what went well without a look at it before: nothing that may have come between changes that it was delivered."""
    dialect = dialects.of(connection)
    if not dialect.has_returning:
        return []
    alike: dict[tuple[int, _Change], list[Settlement]] = defaultdict(list)
    for one in group:
        if isinstance(one.transition, model.Completed) and one.attempt is not None and one.begins is State.PROCESSING:
            change = _change(one.attempt.number - 1, one, one.transition, State.COMPLETED, counted=True)
            alike[one.fence, change].append(one)
    pairs: list[tuple[Locked, Settlement]] = []
    for (fence, change), theirs in alike.items():
        columns = change.columns(now)
        words = {"ids": sorted(one.delivery_id for one in theirs), "its_fence": fence, "begins": int(State.PROCESSING)}
        changed = connection.execute(_where_held(dialect, tuple(columns)), words | _named(columns))
        rows = {row.id: row for row in changed}
        pairs += [(rows[one.delivery_id], one) for one in theirs if one.delivery_id in rows]
    settled = [Settled(settlement=one, state=State.COMPLETED, transition=one.transition) for _, one in pairs]
    _record(connection, pairs, settled, now)
    return settled


@lru_cache
def _where_held(dialect: dialects.Dialect, names: Sequence[str]) -> ReturningUpdate[Any]:
    # Made once. The state is hidden from PostgreSQL's planner, which may else take the index of timers for it, and read
    # all the dead entries there.
    mine = (dialect.among(_c.id, "ids"), _c.fence == bindparam("its_fence"), func.coalesce(_c.state, -1) == bindparam("begins"))
    return _changing(names).where(*mine).returning(_c.id, _c.lane_key, _c.resource)


@lru_cache
def _where_locked(dialect: dialects.Dialect, names: Sequence[str]) -> Update:
    return _changing(names).where(dialect.among(_c.id, "ids"))


def _changing(names: Sequence[str]) -> Update:
    return update(deliveries).values({name: bindparam(f"to_{name}", type_=_c[name].type) for name in names})


def _named(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {f"to_{name}": value for name, value in columns.items()}


Judge = Callable[[Locked, Row[Any] | None], Settlement | None]
"""Says what becomes of a row whose time is up, from the row and its last attempt; None leaves it alone."""
ABANDONED = lookups.LONGEST + timedelta(hours=1)
"""Look-ups that are older are nobody's: whoever could ask would have ended them."""


def reclaim(
    connection: Connection, judge: Judge, channels: Sequence[str], *, now: datetime, limit: int, sparing: UUID | None
) -> Sequence[Settled]:
    """End leases and callbacks of these channels whose time is up, as `judge` says; leases of other engines only if not spared.

    Look-ups are asked about by those who can, and end here only where nobody did.
    """
    dialect = dialects.of(connection)
    others = "" if sparing is None else " and (state <> 1 or lease_owner = :me)"
    query = (
        text(
            f"select {_EVERY} from {dialect.timers_index} where state in (1, 2) and {dialect.timer_at} <= :now{others}"
            f" and channel in :channels and (state = 1 or coalesce(awaiting, '') <> '{LOOKUP}' or awaiting_since <= :abandoned)"
            f" order by {dialect.timer_at} limit :limit {dialect.skip_locked}"
        )
        .bindparams(bindparam("now", type_=Instant), bindparam("abandoned", type_=Instant), bindparam("channels", expanding=True))
        .columns(*deliveries.c)
    )
    words: dict[str, Any] = {"now": now, "limit": limit, "channels": list(channels), "abandoned": now - ABANDONED}
    if sparing is not None:
        query = query.bindparams(bindparam("me", type_=_c.lease_owner.type))
        words["me"] = sparing
    rows = connection.execute(query, words).all()
    last = tries.newest(connection, [row.id for row in rows]) if rows else {}
    judged = [(row, judge(row, last.get(row.id))) for row in rows]
    return _write(connection, [(row, settlement) for row, settlement in judged if settlement is not None], now)


def _write(connection: Connection, pairs: Sequence[tuple[Locked, Settlement]], now: datetime) -> list[Settled]:
    changes: dict[_Change, list[UUID]] = defaultdict(list)
    settled: list[Settled] = []
    for row, settlement in pairs:
        counted = settlement.attempt is not None and settlement.deaths is None
        transition, state = _end(row, settlement, State(row.state), tried=counted or row.attempt_count > 0)
        changes[_change(row.attempt_count, settlement, transition, state, counted=counted)].append(row.id)
        settled.append(Settled(settlement=settlement, state=state, transition=transition))
    # Most of a group changes alike: one statement for all that share their values.
    dialect = dialects.of(connection)
    for change, ids in changes.items():
        columns = change.columns(now)
        connection.execute(_where_locked(dialect, tuple(columns)), {"ids": ids, **_named(columns)})
    _record(connection, pairs, settled, now)
    return settled


def _record(
    connection: Connection, pairs: Sequence[tuple[Locked, Settlement]], settled: Sequence[Settled], now: datetime
) -> None:
    """Keep the evidence of what was just changed, tell of it, and give back what it held."""
    evidence.keep(connection, [settlement for _, settlement in pairs])
    events.tell(connection, [_event(one) for one in settled if one.state is not one.settlement.begins], now=now)
    _give_back(connection, [(row, one) for (row, _), one in zip(pairs, settled, strict=True)], now)


def _event(one: Settled) -> events.Change:
    settlement, attempt = one.settlement, one.settlement.attempt
    outcome = settlement.found if attempt is None else attempt.outcome
    return events.Change(
        settlement.tenant_id,
        settlement.delivery_id,
        told.kind(one.state, was_tried=outcome is not None),
        one.state,
        settlement.fence,
        attempt=None if attempt is None else attempt.number,
        outcome=None if outcome is None else outcomes.name(outcome),
        reason=getattr(one.transition, "reason", None),
    )


def _give_back(connection: Connection, pairs: Sequence[tuple[Locked, Settled]], now: datetime) -> None:
    """Release the lanes and slots of what is under way no more; those of the others are held for as long as they are."""
    bound = [(row, one) for row, one in pairs if row.lane_key or row.resource]
    if not bound:
        return
    held = [(lanes.Held(delivery_id=row.id, lane_key=row.lane_key, resource=row.resource), one) for row, one in bound]
    lanes.extend(connection, [(it, at) for it, one in held if one.state in UNDER_WAY and (at := model.wake_at(one.transition))])
    lanes.release(connection, [it for it, one in held if one.state not in UNDER_WAY], now=now)


def _end(row: Locked, settlement: Settlement, begin: State, *, tried: bool) -> tuple[Transition, State]:
    transition = settlement.transition
    if row.cancel_requested:
        transition = model.heed_cancel(transition)
    transition = model.expire(transition, row.expires_at)
    return transition, model.after(begin, model.move_of(transition, tried=tried))


class _Change(NamedTuple):
    """What a settlement does to a row, as a value: rows that change alike are written together."""

    state: State
    transition: Transition
    ambiguous_attempts: int
    attempted: tuple[str | None, str | None] | None
    """The error, and the provider's id, of an attempt."""
    counted: tuple[int, int] | None
    """The attempts so far, and the next one's key number, where the attempt counts."""
    deaths: model.Deaths | None
    key_at: datetime | None

    def columns(self, now: datetime) -> dict[str, Any]:
        transition = self.transition
        change: dict[str, Any] = {
            "state": int(self.state),
            "wake_at": model.wake_at(transition),
            "lease_owner": None,
            "run_until": None,
            "held_by": transition.held_by if isinstance(transition, model.Returned) else None,
            "slot_at": transition.slot_at if isinstance(transition, model.Returned) else None,
            "awaiting": transition.what if isinstance(transition, model.Awaiting) else None,
            "awaiting_since": transition.since if isinstance(transition, model.Awaiting) else None,
            "reason": getattr(transition, "reason", None),
            "ambiguous_attempts": self.ambiguous_attempts,
            "key_at": self.key_at,
        }
        if self.state in FINAL:
            change["finished_at"] = now
        if self.attempted is not None:
            error, provider_call_id = self.attempted
            change["last_error"] = (error or "")[:2000] or None
            if provider_call_id is not None:
                change["provider_call_id"] = provider_call_id
        if self.counted is not None:
            change["attempt_count"], change["key_number"] = self.counted
        if self.deaths is not None:
            change["crash_count"], change["proven_crashes"] = self.deaths.all, self.deaths.proven
        return change


def _change(before: int, settlement: Settlement, transition: Transition, state: State, *, counted: bool) -> _Change:
    outcome = settlement.found if settlement.attempt is None else settlement.attempt.outcome
    attempt_count = before + counted
    return _Change(
        state,
        transition,
        settlement.ambiguous_attempts,
        None if outcome is None else (outcomes.error(outcome), outcome.answer.provider_call_id),
        (attempt_count, settlement.key_number) if counted or settlement.found else None,
        settlement.deaths,
        settlement.key_at,
    )


def _sort_out(
    connection: Connection, stale: Sequence[Settlement], rows: Mapping[UUID, Locked]
) -> tuple[list[Settled], list[Settlement]]:
    """Tell what this very settlement has already written from what came too late, and keep the latter as evidence."""
    known = evidence.recorded(connection, stale)
    mine: list[Settled] = []
    late: list[Settlement] = []
    for settlement in stale:
        row, record = rows.get(settlement.delivery_id), known.get((settlement.delivery_id, settlement.fence))
        if row is not None and evidence.is_ours(settlement, record):
            transition, state = _end(row, settlement, settlement.begins, tried=row.attempt_count > 0)
            # Where the row went on under a later claim, it says nothing of this one any more.
            now = State(row.state) if row.fence == settlement.fence else state
            mine.append(Settled(settlement=settlement, state=now, transition=transition))
        else:
            late.append(settlement)
            if row is not None and settlement.attempt is not None:
                evidence.keep_late(connection, settlement, settlement.attempt, is_recorded=record is not None)
    return mine, late
