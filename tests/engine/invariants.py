"""What must be true after every commit, at every send, and at the end; see the promises on reliability."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import select

from campana.channels.base import Parcel
from campana.domain import deliveries as model
from campana.domain import instants, switches
from campana.domain.deliveries import FINAL, LOOKUP, UNDER_WAY, WAITING, State
from campana.domain.tickets import NewDelivery
from campana.store import schema
from campana.testing.channel import Receiver
from campana.testing.clock import VirtualClock
from campana.testing.runner import InlineRunner
from tests.engine.processes import Process

STOP_BOUND = 2.0
BLUR = timedelta(microseconds=2)
"""What floats of this size can't tell apart."""
LEGAL = {(start, end) for (start, _), end in model.TRANSITIONS.items()}
COLUMNS = (
    "id, state, fence, generation, attempt_count, wake_at, lease_owner, ambiguous_attempts, cancel_requested, awaiting,"
    " held_by, lane_key, resource"
)


class Row(NamedTuple):
    """One delivery as it stands in the file."""

    id: bytes
    state: int
    fence: int
    generation: int
    attempt_count: int
    wake_at: int | None
    lease_owner: bytes | None
    ambiguous_attempts: int
    cancel_requested: int
    awaiting: str | None
    held_by: str | None
    lane_key: str | None
    resource: str | None

    @property
    def waits_for_another(self) -> bool:
        return (self.held_by or "").startswith(("lane:", "slots:"))


class BrokenError(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class Watcher:
    """Sees every commit and every send, remembers what was before, and keeps one hash of all that happened."""

    inner: InlineRunner
    clock: VirtualClock
    engines: dict[str, UUID] = field(default_factory=dict)
    """Which engine lives in which process."""
    deliveries: dict[UUID, NewDelivery] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """How many of a resource may be under way at once."""
    closed: dict[str, float] = field(default_factory=dict)
    """Scopes that are off, and since when."""
    clock_error: float = 0.0
    """The worst by which any engine's clock was wrong when it mattered."""
    sending_error: float = 0.0
    """The worst of it at a claim or a send: those wait for a tick that is fresh, so that its answer was quick."""
    broken: BrokenError | None = None
    commits: int = 0
    sends: int = 0
    _rows: dict[bytes, Row] = field(default_factory=dict)
    _history: dict[bytes, list[tuple[str, int]]] = field(default_factory=dict)
    """The states that each delivery was seen to come to, and under which fence; a claim is no news."""
    _numbered: list[int] = field(default_factory=list)
    """The ids of the events that have a number, in the order of their numbers."""
    _left: dict[tuple[UUID, str], float] = field(default_factory=dict)
    _changes: int = -1
    _trace: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    @property
    def trace(self) -> str:
        return str(self._trace.hexdigest())

    def note(self, *said: object) -> None:
        """Make this a part of the trace."""
        self._trace.update(repr((round(self.clock.steady(), 6), *said)).encode())

    def expect(self, holds: object, said: str, *values: object) -> None:
        if not holds:
            error = BrokenError(f"second {self.clock.steady():.6f}: {said}: {' '.join(map(str, values))}")
            # Where it is raised the engine may catch it, as it catches what a channel raises: `check` will raise it again.
            self.broken = self.broken or error
            raise error

    def check(self) -> None:
        """Raise whatever was found broken so far."""
        if self.broken is not None:
            raise self.broken

    # --- after each commit

    def committed(self, process: Process, name: str) -> None:
        """Compare every row with what it was."""
        self.commits += 1
        self.note(process.name, name)
        connection = self.inner._connection
        changes = connection.connection.dbapi_connection.total_changes  # type: ignore[union-attr]  # it is sqlite3's
        if changes == self._changes:
            return
        self._changes = changes
        for found in connection.exec_driver_sql(f"select {COLUMNS} from deliveries"):  # noqa: S608 - our own words
            row = Row._make(found)
            before = self._rows.get(row.id)
            if before != row:
                self._rows[row.id] = row
                self.note(row)
                self._check_row(row)
                if (before is None or before.state != row.state) and row.state != State.PROCESSING:
                    self._history.setdefault(row.id, []).append((State(row.state).word, row.fence))
                if before is not None:
                    self._check_change(process, name, before, row)
        self._check_lanes()
        if name == "number":
            self._check_numbers()

    def _check_lanes(self) -> None:
        # What has expired is only told so, and needs neither.
        busy = [row for row in self._rows.values() if row.state in UNDER_WAY and not self._is_expired(row)]
        lanes = Counter(row.lane_key for row in busy if row.lane_key)
        self.expect(
            all(count == 1 for count in lanes.values()), "one at a time in a lane", lanes, [row for row in busy if row.lane_key]
        )
        used = Counter(row.resource for row in busy if row.resource)
        self.expect(all(count <= self.places[name] for name, count in used.items()), "no more than there are places", used)

    def _is_expired(self, row: Row) -> bool:
        expires_at = self.deliveries[UUID(bytes=row.id)].expires_at
        return expires_at is not None and expires_at <= self.clock.true() + timedelta(seconds=self.clock_error)

    def _check_numbers(self) -> None:
        found = self.inner._connection.exec_driver_sql("select number, id from events where number is not null order by number")
        rows = found.all()
        self.expect([row.number for row in rows] == list(range(1, len(rows) + 1)), "numbers have no gap", rows)
        ids = [row.id for row in rows]
        self.expect(ids[: len(self._numbered)] == self._numbered, "a number is given once", self._numbered, ids)
        self._numbered = ids

    def _check_row(self, row: Row) -> None:
        self.expect((row.wake_at is None) == (row.state in FINAL), "a live row has an instant, a final one none", row)
        self.expect((row.lease_owner is not None) == (row.state == State.PROCESSING), "who processes has a lease", row)
        one = self.deliveries[UUID(bytes=row.id)]
        self.expect(row.attempt_count <= one.max_attempts, "no more attempts than allowed", row)

    def _check_change(self, process: Process, name: str, before: Row, row: Row) -> None:
        said = (process.name, name, before, row)
        is_act = name == "perform" and before.state == State.DEAD_LETTER
        self.expect(before.state not in FINAL or is_act, "final states absorb, but for what people do to dead letters", *said)
        anew = is_act and row.state == State.SCHEDULED
        self.expect(row.generation == before.generation + anew, "only a redrive begins a generation", *said)
        self.expect(not anew or row.attempt_count == 0, "a generation has its whole budget", *said)
        parked = name == "claim" and {before.state, row.state} <= WAITING  # two moves in one transaction
        if row.state != before.state and not parked:
            self.expect((State(before.state), State(row.state)) in LEGAL, "only legal moves", *said)
        if row.fence != before.fence:
            self.expect(row.fence == before.fence + 1, "fences rise by one", *said)
            self._check_taken(process, name, before, row, said)
        elif before.state in UNDER_WAY and row.state != before.state:
            self._check_end(process, name, before, said)
        elif before.state in WAITING:
            woken = before.waits_for_another and name in {"claim", "apply", "reclaim", "fill", "turn"}
            put_off = name == "put_off" and (row.wake_at or 0) > (before.wake_at or 0)
            known = woken or put_off or name in {"cancel", "release"}
            self.expect(known, "only a claim, a crowd, a person and a release touch what waits", *said)
        elif name in {"renew", "start_suspect"}:
            self.expect(before.lease_owner == self.engines[process.name].bytes, "touched by one who does not hold it", *said)

    def _check_taken(self, process: Process, name: str, before: Row, row: Row, said: tuple[object, ...]) -> None:
        if name == "take":
            self.expect((before.state, before.awaiting) == (State.IN_PROGRESS, LOOKUP), "taken to be looked up", *said)
            self.expect(row.state == before.state, "a look-up's start changes no state", *said)
            self.expect(instants.from_micros(before.wake_at or 0) <= process.clock.now(), "asked before its instant", *said)
        elif name in {"cancel", "perform"}:
            ended = before.state in WAITING and row.state == State.CANCELLED
            self.expect(
                ended or before.state == State.DEAD_LETTER, "a person takes a fence only where nobody else has one", *said
            )
        else:
            # One of a lane or resource that is taken waits on, and may be the next in the same breath.
            took = row.state == State.PROCESSING or (row.state in WAITING and (row.lane_key or row.resource))
            self.expect(before.state in WAITING and took, "only a claim, a look-up and a person raise a fence", *said)
            self._check_claim(process, before, said)

    def _check_claim(self, process: Process, before: Row, said: tuple[object, ...]) -> None:
        self._learn_error(process, sends=True)
        wake_at = instants.from_micros(before.wake_at or 0)
        self.expect(wake_at <= self.clock.true() + BLUR, "claimed before its instant by the database's clock", *said)
        self._left[UUID(bytes=before.id), process.name] = float("inf")

    def _check_end(self, process: Process, name: str, before: Row, said: tuple[object, ...]) -> None:
        self._learn_error(process, sends=False)
        for key in [key for key in self._left if key[0] == UUID(bytes=before.id)]:
            self._left[key] = self.clock.steady()
        if name == "apply" and before.state == State.IN_PROGRESS:
            self.expect(before.awaiting == LOOKUP, "only what is looked up is settled in progress", *said)
        elif name == "apply":
            mine = self.engines[process.name].bytes
            self.expect(before.lease_owner == mine, "settled by one who does not hold it", *said)
        else:
            self.expect(name == "reclaim", "nothing else ends a claim", *said)
            over = instants.from_micros(before.wake_at or 0)
            # A tick may have put the clock right while this was written.
            slack = timedelta(seconds=2 * self.clock_error)
            self.expect(over <= process.clock.now() + slack, "ended before its time", *said)

    def _learn_error(self, process: Process, *, sends: bool) -> None:
        error = abs((process.clock.now() - process.clock.true()).total_seconds())
        self.clock_error = max(self.clock_error, error)
        if sends:
            self.sending_error = max(self.sending_error, error)

    # --- at each send

    def sent(self, process: Process, parcel: Parcel) -> None:
        """Something leaves a process now."""
        self.sends += 1
        self.note(process.name, "sends", parcel.delivery_key, parcel.idempotency_key)
        self._learn_error(process, sends=True)
        one, now = self.deliveries[parcel.delivery_id], process.clock.now()
        said = (process.name, parcel.delivery_id)
        scopes = switches.above(tenant_id=one.tenant_id, project_id=one.project_id, channel=one.channel)
        for scope in (*scopes, f"suspended:{one.tenant_id}"):
            since = self.closed.get(scope)
            self.expect(since is None or self.clock.steady() - since <= STOP_BOUND, "left a closed scope", scope, *said)
        self.expect(one.expires_at is None or now < one.expires_at, "left after its expiry", *said)
        self.expect(one.due_at <= self.clock.true() + BLUR, "left before it was due by the database's clock", *said)
        slack = 2 * self.clock_error + 0.001
        left = self._left.get((parcel.delivery_id, process.name), 0.0)
        self.expect(self.clock.steady() - left <= slack, "left without a lease", *said)

    # --- at the end

    def unnumbered(self) -> int:
        """How many events have no number yet."""
        return int(self.inner._connection.exec_driver_sql("select count(*) from events where number is null").scalar_one())

    def left(self) -> list[object]:
        """What has not come to its end yet."""
        return [*self.unfinished(), *(["events without a number"] if self.unnumbered() else [])]

    def _check_events(self) -> None:
        """Each delivery's events tell exactly the states that it was seen to come to."""
        e = schema.events.c
        told: dict[bytes, list[tuple[str, int]]] = {}
        mine = select(e.delivery_id, e.data).where(e.delivery_id.is_not(None))
        for row in self.inner._connection.execute(mine.order_by(e.number)):
            said = json.loads(row.data)
            told.setdefault(row.delivery_id.bytes, []).append((said["state"], said["fence"]))
        for it, history in self._history.items():
            self.expect(told.get(it) == history, "events tell what happened", self._rows[it], history, told.get(it))
        self.expect(told.keys() == self._history.keys(), "events are of deliveries")

    def letters(self) -> list[UUID]:
        """Whatever wants a person now."""
        return [UUID(bytes=row.id) for row in self._rows.values() if row.state == State.DEAD_LETTER]

    def unfinished(self) -> list[Row]:
        found = [row for row in self._rows.values() if row.state not in FINAL]
        missing = len(self.deliveries) - len(self._rows)
        self.expect(missing >= 0, "rows out of nowhere", missing)
        return found

    def finish(self, receivers: Mapping[str, Receiver], kinds: Mapping[UUID, str]) -> None:
        """Faults have stopped and everything had its time."""
        self.check()
        self.expect(not self.unfinished(), "everything ends", self.unfinished())
        self.expect(not self.unnumbered(), "every event gets its number", self.unnumbered())
        self._check_events()
        connection, a = self.inner._connection, schema.attempts.c
        every = connection.execute(select(a.delivery_id, a.ambiguous, a.late, a.reason, a.outcome)).all()
        for identity, kind in kinds.items():
            row = self._rows.get(identity.bytes)
            self.expect(row is not None, "a delivery was lost", identity)
            assert row is not None
            attempts = [attempt for attempt in every if attempt.delivery_id == identity]
            # A late result stands beside the lost attempt; where there is none it was never counted.
            unknown = sum(one.ambiguous and (not one.late or one.reason is not None) for one in attempts)
            known = [one for one in attempts if one.late and one.reason is not None and not one.ambiguous]
            self.expect(not known, "a known end is no late evidence", row, known)
            self.expect(unknown == row.ambiguous_attempts, "every unknown end is recorded", row, attempts)
            effects = receivers[kind.partition(" ")[0]].effects[f"dlv_{identity.hex}"]
            bound = row.generation + (row.ambiguous_attempts if kind == "plain" else 0)
            self.expect(effects <= bound, "too many effects", kind, effects, row, attempts)
            if row.state == State.COMPLETED:
                self.expect(effects, "completed without an effect", kind, row, attempts)
            self.note(identity, kind, row, effects)
        left = [
            row for table in (schema.lanes, schema.slots) for row in connection.execute(select(table.c.delivery_id)).scalars()
        ]
        self.expect(not any(left), "nobody holds a lane or a place any more", left)
        # A clock is behind by the round trip of its first tick at most, and who claims or sends has one that is fresh.
        self.expect(self.sending_error < STOP_BOUND, "a clock too wrong to send by", timedelta(seconds=self.sending_error))
