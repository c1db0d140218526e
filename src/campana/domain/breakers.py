"""Breakers: a receiver that keeps failing is left alone for a while, and then asked by one delivery.

A breaker is a value, and what an attempt came to makes the next one of it. Closed, everything goes. After so many failures in
a row that speak of the receiver it is open: until the end of a period nothing goes, then one delivery, the probe. What answers
closes it, what fails again doubles the period. A receiver that names an instant itself (Retry-After) is left alone until then.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from campana.domain import outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a breaker opens, and how long it stays so."""

    trip_after: int = 5
    """Failures in a row; with 0 it never opens by itself."""
    first: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(minutes=5)
    """No period is longer, and no receiver's own wish holds back more than the delivery that met it for longer."""


DEFAULT = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What is known of a receiver's health."""

    failures: int = 0
    """In a row, the latest ones."""
    period: timedelta | None = None
    """How long it is left alone each time; None while the breaker is closed."""
    until: datetime | None = None
    """Before this instant nothing goes; while a probe is under way, when the next one may at the latest."""

    @property
    def is_open(self) -> bool:
        """Say whether it has tripped, and nothing has closed it yet."""
        return self.period is not None


CLOSED = Breaker()


class Sign(Enum):
    """What an attempt says of its receiver, whatever it means for the delivery."""

    ALIVE = "it answered"
    FAILING = "it can't be reached, or can't do its work"
    NOTHING = "it says nothing of the receiver"


TOO_MANY, TIMED_OUT, BROKEN = 429, 408, 500


def sign(outcome: outcomes.Outcome) -> Sign:
    """Return what an outcome says of the receiver: an answer shows that it lives, also one that refuses."""
    code = outcome.answer.code
    match outcome:
        case outcomes.Failed(retry_after=asked) if code == TOO_MANY and asked is not None:
            return Sign.NOTHING
        case outcomes.Failed(sent=False, permanent=True):
            return Sign.NOTHING
        case outcomes.Failed(sent=sent) if code is None:
            return Sign.NOTHING if sent else Sign.FAILING
        case outcomes.Failed():
            return Sign.FAILING if code in {TIMED_OUT, TOO_MANY} or (code or 0) >= BROKEN else Sign.ALIVE
        case outcomes.TimedOut() | outcomes.Ambiguous():
            return Sign.FAILING
        case _:
            return Sign.ALIVE


def stands(breaker: Breaker, now: datetime) -> datetime | None:
    """Return the instant before which nothing may go, or None where something may go now."""
    return breaker.until if breaker.until is not None and now < breaker.until else None


def probe(breaker: Breaker, now: datetime, *, at_most: timedelta | None = None) -> Breaker:
    """Let one go where it is open: until its end is known, at most for a period, or for less, no other one may."""
    return breaker if breaker.period is None else replace(breaker, until=now + min(breaker.period, at_most or breaker.period))


def heard(
    breaker: Breaker, outcome: outcomes.Outcome | None, policy: Policy, *, now: datetime, was_probe: bool = False
) -> Breaker:
    """Return the breaker after an attempt; None is one that came to nothing, so that after a probe another one may go."""
    if outcome is None:
        return replace(breaker, until=now) if was_probe and breaker.is_open else breaker
    match sign(outcome):
        case Sign.ALIVE if breaker.is_open:
            return CLOSED
        case Sign.ALIVE:
            # Most deliveries find the one that is compared with by identity.
            return breaker if not breaker.failures else CLOSED if breaker.until is None else replace(breaker, failures=0)
        case Sign.FAILING:
            breaker = _worse(breaker, policy, now, was_probe=was_probe)
        case Sign.NOTHING if was_probe and breaker.is_open:
            breaker = replace(breaker, until=now)
    asked = outcome.retry_after if isinstance(outcome, outcomes.Failed) else None
    if asked is None:
        return breaker
    until = now + min(asked, policy.longest)
    return breaker if breaker.until is not None and breaker.until >= until else replace(breaker, until=until)


def _worse(breaker: Breaker, policy: Policy, now: datetime, *, was_probe: bool) -> Breaker:
    failures = breaker.failures + 1
    if breaker.period is not None and was_probe:
        period = min(2 * breaker.period, policy.longest)
    elif breaker.period is None and policy.trip_after and failures >= policy.trip_after:
        period = min(policy.first, policy.longest)
    else:
        # What was under way when it tripped says nothing new.
        return replace(breaker, failures=failures)
    return Breaker(failures=failures, period=period, until=now + period)
