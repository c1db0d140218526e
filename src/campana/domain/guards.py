"""Guards: checks before every send. Each allows, defers, holds or skips with a reason; all that was looked at is kept.

A guard is a name and a pure function of facts. The pipeline is data, in the order in which the checks are made; the first
that does not allow decides. What a guard needs is read for a whole batch at once and handed in as facts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from campana.domain import breakers, switches


@dataclass(frozen=True, slots=True)
class Allow:
    """Nothing stands against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """Not now; the answer changes by itself at this instant."""

    until: datetime
    reason: str
    slot_at: datetime | None = None
    """Where a limit handed out this instant: at it, the delivery needs no other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Not while this scope is closed; it is parked under the scope's name."""

    scope: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Never."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Not by sending: it may have had its effect already, and what would make a repeat safe is over."""

    reason: str


Verdict = Allow | Defer | Hold | Skip | Doubt
ALLOW = Allow()
BREAKER_OPEN, RETRY_AFTER, BUSY = "breaker_open", "receiver_asked", "destination_busy"
"""Why a delivery is put off for its receiver's sake: it keeps failing, it named an instant, it has its fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What guards may look at: the delivery's place in the world, and the world at `now`."""

    now: datetime
    tenant_id: UUID
    project_id: UUID
    channel: str
    expires_at: datetime | None
    switched_off: frozenset[str]
    suspended: frozenset[UUID]
    schedule_id: UUID | None = None
    slot_at: datetime | None = None
    """What the limits above it handed out."""
    key_until: datetime | None = None
    """From when on the provider may have forgotten the key under which it was sent before."""
    breaker: breakers.Breaker = breakers.CLOSED
    """What is known of its receiver's health."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A named check."""

    name: str
    check: Callable[[Facts], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The deciding verdict, and the names of the guards that were asked, the last of which gave it."""

    verdict: Verdict
    asked: tuple[str, ...]


def rule(pipeline: Sequence[Guard], facts: Facts) -> Ruling:
    """Ask the guards in order until one does not allow."""
    asked: list[str] = []
    for guard in pipeline:
        asked.append(guard.name)
        verdict = guard.check(facts)
        if not isinstance(verdict, Allow):
            return Ruling(verdict=verdict, asked=tuple(asked))
    return Ruling(verdict=ALLOW, asked=tuple(asked))


def _switch(facts: Facts) -> Verdict:
    if not facts.switched_off:
        return ALLOW
    place = switches.above(
        tenant_id=facts.tenant_id, project_id=facts.project_id, channel=facts.channel, schedule_id=facts.schedule_id
    )
    for scope in place:
        if scope in facts.switched_off:
            return _hold(facts, scope=scope, reason="switched_off")
    return ALLOW


def _suspension(facts: Facts) -> Verdict:
    if facts.tenant_id in facts.suspended:
        return _hold(facts, scope=f"suspended:{facts.tenant_id}", reason="tenant_suspended")
    return ALLOW


def _hold(facts: Facts, *, scope: str, reason: str) -> Verdict:
    # What is parked wakes at its expiry. Parked again after it, it would wake at once, and again, without end.
    return Skip(reason="expired") if _is_expired(facts) else Hold(scope=scope, reason=reason)


def _expiry(facts: Facts) -> Verdict:
    return Skip(reason="expired") if _is_expired(facts) else ALLOW


def _rate(facts: Facts) -> Verdict:
    if facts.slot_at is None or facts.slot_at <= facts.now:
        return ALLOW
    return Defer(until=facts.slot_at, reason="rate_limited", slot_at=facts.slot_at)


def _breaker(facts: Facts) -> Verdict:
    until = breakers.stands(facts.breaker, facts.now)
    if until is None:
        return ALLOW
    return Defer(until=until, reason=BREAKER_OPEN if facts.breaker.is_open else RETRY_AFTER)


def _key(facts: Facts) -> Verdict:
    if facts.key_until is None or facts.now < facts.key_until:
        return ALLOW
    return Doubt(reason="key_too_old")


def _is_expired(facts: Facts) -> bool:
    return facts.expires_at is not None and facts.expires_at <= facts.now


_STOPS = (Guard("switch", _switch), Guard("suspension", _suspension), Guard("expiry", _expiry))
PIPELINE: tuple[Guard, ...] = (*_STOPS, Guard("rate", _rate), Guard("breaker", _breaker), Guard("key", _key))
EDGE: tuple[Guard, ...] = (*_STOPS, Guard("key", _key))
"""What is looked at once more at the very edge, since it may change at any moment."""
