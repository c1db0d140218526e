"""Retry policies: whether an attempt is followed by another one, and how long after."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

MICROSECOND = timedelta(microseconds=1)


class Backoff(StrEnum):
    """How the delay grows from attempt to attempt."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When to try again. `only` names the outcomes that are retried (None: all that can be), `delays` overrides by outcome."""

    max_attempts: int = 3
    backoff: Backoff = Backoff.EXPONENTIAL
    base: timedelta = timedelta(seconds=60)
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.0
    delays: Mapping[str, timedelta] = field(default_factory=dict)
    only: frozenset[str] | None = None
    enabled: bool = True


def allows(policy: Policy, outcome: str, attempts: int) -> bool:
    """Say whether another attempt follows after `attempts` of them, the last of which came to `outcome`."""
    if not policy.enabled or attempts >= policy.max_attempts:
        return False
    # The person asked for it: `only` speaks of failures and does not bind it. A machine that answers is nobody answering.
    if outcome == "rescheduled" or policy.only is None:
        return True
    return ("no_answer" if outcome == "voicemail" else outcome) in policy.only


def delay(
    policy: Policy, attempt: int, *, outcome: str = "failed", chance: float = 0.0, retry_after: timedelta | None = None
) -> timedelta:
    """Return how long to wait after attempt number `attempt` (from 1); `chance` in [0, 1) places it within the jitter.

    A receiver's Retry-After can lengthen the wait up to the cap, never shorten it.
    """
    named = policy.delays.get("no_answer" if outcome == "voicemail" and outcome not in policy.delays else outcome)
    plain = named if named is not None else min(_grown(policy, max(attempt, 1)), policy.cap)
    spread = plain * (1 + policy.jitter * (2 * chance - 1)) if policy.jitter else plain
    asked = min(retry_after, policy.cap) if retry_after is not None else timedelta(0)
    return max(spread, asked, MICROSECOND)


def _grown(policy: Policy, attempt: int) -> timedelta:
    match policy.backoff:
        case Backoff.FIXED:
            return policy.base
        case Backoff.LINEAR:
            # Past cap / base the product can only be more than the cap; a millionth attempt must not overflow.
            return policy.base * min(attempt, policy.cap // max(policy.base, MICROSECOND) + 1)
        case Backoff.EXPONENTIAL:
            # The cap bounds the power before it is taken: 2^k with k bits of cap / base already exceeds the cap.
            doublings = (policy.cap // max(policy.base, MICROSECOND)).bit_length()
            return policy.base * (1 << min(attempt - 1, doublings))
