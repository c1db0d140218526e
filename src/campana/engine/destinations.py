"""Destinations: what one receiver does to its deliveries is kept from everybody else's.

Each tenant has a gate to each receiver. A gate lets so many through at once: a few at first, one more with each answer, as
many as one host may have at the most. What finds no berth waits only as long as the receiver would soon come to it, judged by
how fast it has been; all else is put off, burns no attempt, and comes back a few at a time. The gate's breaker is what its
receiver's health is known by, and it is this tenant's own: nobody can close a shared host for others.
"""

import asyncio
import json
import logging
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from campana.channels.base import Addressed, Channel
from campana.domain import breakers, guards, instants, outcomes
from campana.domain.breakers import Breaker
from campana.domain.tickets import Ticket
from campana.engine.options import Options
from campana.store.crowds import Waiting
from campana.store.events import NewEvent
from campana.telemetry import Telemetry
from campana.world import World

FIRST_BERTHS = 5
"""How many go at once to a receiver of which nothing is known yet."""
RESERVED = 4
"""Retries leave one of so many berths to first attempts, so that a storm of them does not keep those out."""
DOOR = 0.5
"""Seconds that a delivery may wait for a berth while it holds a place in the engine."""
LOOK = 0.2
"""Seconds after which a receiver that has its fill and said nothing is waited for no longer, and how fast it is is known."""
GRID, COARSE = timedelta(milliseconds=250), timedelta(seconds=1)
"""What is put off comes back at these instants, where the receiver takes little at those: a claim each would cost too much."""
SLOWEST = 100.0
"""A second, so many of what was put off come back at least; more where the receiver takes more."""
AHEAD = timedelta(minutes=5)
"""Nothing is put off for longer past the instant at which it might have gone."""
LONG_AGO = 1.0
"""Seconds without having its fill after which what was measured of a receiver says nothing of it any more."""
SLOW = 20.0
"""Answers a second below which a receiver's due rows are put off many at a time: so many must not hide behind each other."""
LATE = 0.05
"""Seconds by which our own loop may be late before that time does not count against a receiver."""
MOST_KNOWN = 10_000
LONGEST_KEPT = 2_000
"""Characters of a target that is remembered with its receiver: with a body in it one may have half a million."""
MOST_TOLD = 10_000


class Host:
    """One receiver as all tenants see it: how much is under way there, and who waits at its gates."""

    __slots__ = ("busy", "gates", "name", "timer", "waiters")

    def __init__(self, name: str) -> None:
        """Know nothing of it."""
        self.name = name
        self.busy = 0
        # By their numbers: a UUID is hashed and compared in Python, for each delivery.
        self.gates: dict[int, Gate] = {}
        self.waiters: deque[_Waiter] = deque()
        self.timer: asyncio.TimerHandle | None = None


class Gate:
    """One tenant's way to one receiver."""

    __slots__ = (
        *("berth", "breaker", "brim", "busy", "cursor", "done", "free_at", "full_at", "full_for", "host", "is_probing", "limit"),
        *("probe", "rate", "tenant_id", "waiting"),
    )

    def __init__(self, host: Host, tenant_id: UUID, limit: int) -> None:
        """Let a few through."""
        self.host = host
        self.tenant_id = tenant_id
        self.breaker: Breaker = breakers.CLOSED
        self.is_probing = False
        self.busy = 0
        self.waiting = 0
        self.cursor: datetime = instants.EPOCH
        self.rate: float | None = None
        """Answers a second while it had its fill, as last measured."""
        self.done = 0
        self.full_for = 0.0
        self.full_at: float | None = None
        self.free_at = 0.0
        self.berth, self.probe = Berth(self, is_probe=False), Berth(self, is_probe=True)
        self.open_to(limit)

    def open_to(self, limit: int) -> None:
        """Let so many through at once."""
        self.limit = limit
        self.brim = limit - limit // RESERVED

    def forget(self) -> None:
        """Know nothing of how fast it is."""
        self.rate, self.done, self.full_for = None, 0, 0.0

    def has_berth(self, *, retry: bool) -> bool:
        """Say whether one more may go."""
        return self.busy < (self.brim if retry else self.limit)


@dataclass(slots=True, eq=False)
class _Waiter:
    gate: Gate
    retry: bool
    since: float
    turn: asyncio.Future[bool]


@dataclass(frozen=True, slots=True)
class Berth:
    """One delivery's place at its receiver."""

    gate: Gate
    is_probe: bool


class Destinations:
    """All gates of an engine. They are known to this process alone, and learnt anew by the next."""

    def __init__(
        self, *, me: UUID, world: World, channels: Mapping[str, Channel], telemetry: Telemetry, options: Options
    ) -> None:
        """Know no receiver yet."""
        self._me = me
        self._clock = world.clock
        self._telemetry = telemetry
        self._policy = options.breaker
        self._per_host = options.per_host
        self._addressed = {name: channel for name, channel in channels.items() if isinstance(channel, Addressed)}
        # Most targets of a while are the same text; reading one costs as much as all else here. Long ones are not kept for it.
        self._named = lru_cache(maxsize=4_096)(self._read)
        self._hosts: dict[str, Host] = {}
        self._known = 0
        self._crowd = options.crowd
        self._turned_away = 0
        self.has_crowd = False
        """Whether so many were turned away that many more may wait for the same."""
        self.told: deque[NewEvent] = deque(maxlen=MOST_TOLD)
        """What is to be written to the outbox."""

    def find(self, ticket: Ticket | Waiting) -> Gate | None:
        """Return the gate that a delivery goes through; None where its channel knows no receivers."""
        if ticket.channel not in self._addressed:
            return None
        read = self._named if len(ticket.target) <= LONGEST_KEPT else self._read
        name = read(ticket.channel, ticket.target)
        if name is None:
            return None
        host = self._hosts.get(name)
        gate = None if host is None else host.gates.get(ticket.tenant_id.int)
        return gate or self._learn(name, ticket.tenant_id)

    def _read(self, channel: str, target: str) -> str | None:
        return self._addressed[channel].destination(json.loads(target))

    def _learn(self, name: str, tenant_id: UUID) -> Gate:
        if self._known >= MOST_KNOWN:
            self._forget()
        host = self._hosts.setdefault(name, Host(name))
        gate = host.gates[tenant_id.int] = Gate(host, tenant_id, min(FIRST_BERTHS, self._per_host))
        self._known += 1
        return gate

    def _forget(self) -> None:
        """Keep what is in use and what is open, and if that is still too much, what is in use alone."""
        for spare_open in (True, False):
            for host in list(self._hosts.values()):
                for number, gate in list(host.gates.items()):
                    if not (gate.busy or gate.waiting or (spare_open and gate.breaker.is_open)):
                        del host.gates[number]
                        self._known -= 1
                if not host.gates:
                    del self._hosts[host.name]
            if self._known < MOST_KNOWN // 2:
                return

    def away(self, ticket: Ticket | Waiting, *, retry: bool) -> tuple[datetime, str] | None:
        """Return when and why it would be put off if it came now, with an instant of its own; None where it might go."""
        gate = self.find(ticket)
        if gate is None:
            return None
        now = self._clock.now()
        until = breakers.stands(gate.breaker, now)
        if until is not None:
            return self.turn(gate, until), guards.BREAKER_OPEN if gate.breaker.is_open else guards.RETRY_AFTER
        room = self._room(gate)
        if gate.breaker.is_open or gate.has_berth(retry=retry) or gate.waiting < room or room >= SLOW * DOOR:
            return None
        return self.turn(gate, now), guards.BUSY

    # --- in and out

    async def enter(self, gate: Gate, *, retry: bool) -> Berth | None:
        """Return a berth, at once or within moments; None where it would take longer."""
        host, breaker = gate.host, gate.breaker
        if breaker.period is not None:
            # The guards have let it through, so the period is over: this is the probe, whatever else still hangs there.
            is_full = host.busy >= self._per_host and not gate.is_probing
            # Where others fill the receiver it was not asked, and is not to be left alone for that.
            gate.breaker = breakers.probe(breaker, self._clock.now(), at_most=COARSE if is_full else None)
            if gate.is_probing or is_full:
                return None
            gate.is_probing = True
            self._take(gate)
            return gate.probe
        if gate.has_berth(retry=retry) and host.busy < self._per_host:
            self._take(gate)
        elif not await self._wait(gate, retry=retry):
            return None
        return gate.berth

    def leave(self, berth: Berth, outcome: outcomes.Outcome | None) -> None:
        """Give the berth back, and take from the outcome, if it came to one, what it says of the receiver."""
        gate = berth.gate
        gate.is_probing = gate.is_probing and not berth.is_probe
        gate.busy -= 1
        gate.host.busy -= 1
        if outcome is not None:
            if gate.full_at is not None:
                gate.done += 1
            if gate.limit < self._per_host and breakers.sign(outcome) is breakers.Sign.ALIVE:
                gate.open_to(gate.limit + 1)
        # What most deliveries find: it was well, and is.
        if gate.breaker is not breakers.CLOSED or not isinstance(outcome, outcomes.Delivered):
            self._hear(berth, outcome)
        if gate.host.waiters:
            self._hand_over(gate.host)
        if (gate.busy >= gate.brim) != (gate.full_at is not None):
            self._measure(gate)

    def _take(self, gate: Gate) -> None:
        gate.busy += 1
        gate.host.busy += 1
        if gate.full_at is None and gate.busy >= gate.brim:
            self._measure(gate)

    def _hand_over(self, host: Host) -> None:
        while host.busy < self._per_host:
            waiter = next((one for one in host.waiters if one.gate.has_berth(retry=one.retry)), None)
            if waiter is None:
                return
            self._let_go(host, waiter, may_enter=True)

    def _let_go(self, host: Host, waiter: _Waiter, *, may_enter: bool) -> None:
        host.waiters.remove(waiter)
        waiter.gate.waiting -= 1
        if waiter.turn.done():
            return
        if may_enter:
            self._take(waiter.gate)
        waiter.turn.set_result(may_enter)

    # --- the door

    async def _wait(self, gate: Gate, *, retry: bool) -> bool:
        if gate.waiting >= self._room(gate):
            return False
        host, loop = gate.host, asyncio.get_running_loop()
        waiter = _Waiter(gate, retry, self._clock.steady(), loop.create_future())
        host.waiters.append(waiter)
        gate.waiting += 1
        if host.timer is None:
            host.timer = loop.call_later(LOOK, self._clear, host, waiter.since + LOOK)
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if waiter in host.waiters:
                self._let_go(host, waiter, may_enter=False)
            elif waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.result():
                self.leave(gate.berth, None)
            raise

    def _clear(self, host: Host, due: float) -> None:
        """Turn away who has waited for as long as one may, and sooner where no answer comes at all."""
        now = self._clock.steady()
        if now - due > LATE:
            self._excuse(host, now - due)
        for waiter in list(host.waiters):
            patience = DOOR if waiter.gate.rate or waiter.gate.done else LOOK
            if now - waiter.since >= patience - 0.001:
                self._let_go(host, waiter, may_enter=False)
        host.timer = None
        if host.waiters:
            host.timer = asyncio.get_running_loop().call_later(LOOK / 2, self._clear, host, now + LOOK / 2)

    def _excuse(self, host: Host, seconds: float) -> None:
        """Take time in which this process had no turn for nobody's: it could not have heard an answer either."""
        for waiter in host.waiters:
            waiter.since += seconds
        for gate in {waiter.gate for waiter in host.waiters}:
            if gate.full_at is not None:
                gate.full_at += seconds

    def _room(self, gate: Gate) -> float:
        """Return how many may wait: those that it will come to in time, if it goes on as it did."""
        full_for = gate.full_for + (0.0 if gate.full_at is None else self._clock.steady() - gate.full_at)
        if full_for >= LOOK:
            # One poor moment of a fast receiver halves what is thought of it; saying nothing at all ends it.
            gate.rate = max(gate.done / full_for, (gate.rate or 0.0) / 2) if gate.done else 0.0
            gate.done, gate.full_for = 0, 0.0
            gate.full_at = None if gate.full_at is None else self._clock.steady()
        return math.inf if gate.rate is None else gate.rate * DOOR

    def _measure(self, gate: Gate) -> None:
        """Begin or end a stretch of time in which the gate has its fill: how fast it is shows only then."""
        now = self._clock.steady()
        if gate.full_at is not None:
            gate.full_for += now - gate.full_at
            gate.full_at, gate.free_at = None, now
        elif now - gate.free_at > LONG_AGO:
            gate.forget()
        if gate.busy >= gate.brim:
            gate.full_at = now

    def turn(self, gate: Gate, not_before: datetime) -> datetime:
        """Return the instant at which one that was put off comes back: after each other, and not as a herd."""
        self._turned_away += 1
        if self._turned_away >= self._crowd:
            self._turned_away, self.has_crowd = 0, True
        first = max(not_before, self._clock.now())
        at = gate.cursor if first <= gate.cursor <= first + AHEAD else first
        pace = 2 * (gate.rate or 0.0)
        gate.cursor = at + timedelta(seconds=1 / max(SLOWEST, pace))
        return at + (instants.EPOCH - at) % (GRID if pace > SLOWEST / 10 else COARSE)

    # --- health

    def _hear(self, berth: Berth, outcome: outcomes.Outcome | None) -> None:
        gate, now = berth.gate, self._clock.now()
        before = gate.breaker
        gate.breaker = after = breakers.heard(before, outcome, self._policy, now=now, was_probe=berth.is_probe)
        if after is before or (after.until == before.until and after.is_open == before.is_open):
            return
        if outcome is not None:
            # After a rest it begins with one, whatever it took before.
            gate.open_to(1)
            gate.forget()
        if breakers.stands(after, now) is not None:
            for waiter in [one for one in gate.host.waiters if one.gate is gate]:
                self._let_go(gate.host, waiter, may_enter=False)
        if after.is_open != before.is_open:
            self._tell(gate, outcome, now)

    def _tell(self, gate: Gate, outcome: outcomes.Outcome | None, now: datetime) -> None:
        breaker, destination = gate.breaker, gate.host.name
        if breaker.until is None or not breaker.is_open:
            name, level, said = "breaker.closed", logging.INFO, {"destination": destination}
        else:
            error = (outcomes.error(outcome) if outcome is not None else None) or ""
            name, level = "breaker.tripped", logging.WARNING
            said = {
                "destination": destination,
                "failures": str(breaker.failures),
                "until": instants.show(breaker.until),
                "error": error[:300],
            }
        self._telemetry.emit(level, name, tenant_id=str(gate.tenant_id), **said)
        self.told.append(NewEvent(tenant_id=gate.tenant_id, kind=name, at=now, data={**said, "engine": str(self._me)}))
