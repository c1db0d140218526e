"""Look-ups: what a provider knows of an attempt that nobody else can tell about, and what becomes of the delivery."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from campana.domain import deliveries, outcomes
from campana.domain.deliveries import HOLD_REASON, LOOKUP, Awaiting, Buried, Facts, Retried, Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """It has the request, and this is what came of it."""

    outcome: outcomes.Outcome


@dataclass(frozen=True, slots=True)
class Absent:
    """It never got the request, and says so with authority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """It is still at it; ask again at this instant."""

    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsure:
    """It did not answer, or said nothing that decides (nor does a found `ambiguous`): a failed look-up is no absence."""

    error: str


Answer = Found | Absent | Going | Unsure

LONGEST = timedelta(hours=24)
"""Look-ups that fail for so long end in hold."""
FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(minutes=15)


def judge(facts: Facts, answer: Answer, *, since: datetime, now: datetime, chance: float = 0.0) -> Transition:
    """Return what becomes of a delivery that is looked up since then; its last attempt counts in `attempt_count` + 1."""
    match answer:
        case Found(outcome=outcome) if not outcomes.is_ambiguous(outcome):
            return deliveries.judge(facts, outcome, now=now, chance=chance)
        case Absent():
            return _repeat(facts, now)
        case Going(until=until):
            return Awaiting(what=LOOKUP, until=until, since=now)
        case Unsure() | Found():
            if now - since >= LONGEST:
                return Buried(reason=HOLD_REASON)
            pause = min(max(FIRST_PAUSE, (now - since) / 2), LONGEST_PAUSE)
            return Awaiting(what=LOOKUP, until=now + pause, since=since)
        case other:
            assert_never(other)


def _repeat(facts: Facts, now: datetime) -> Transition:
    policy = facts.policies.retry
    if policy.enabled and facts.attempt_count + 1 < policy.max_attempts:
        return Retried(at=now)
    return Buried(reason="exhausted")


def words(answer: Answer) -> str:
    """Return what a look-up came to, in words for the record."""
    match answer:
        case Found(outcome=outcome):
            return f"found: {outcomes.name(outcome)}"
        case Absent():
            return "absent"
        case Going():
            return "still going on"
        case Unsure(error=error):
            return f"unsure: {error}"[:100]
        case other:
            assert_never(other)
