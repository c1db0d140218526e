"""What the receiver does with a request: seeded, so that a run can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Manner(StrEnum):
    """How a request is met."""

    ANSWER = "apply, answer 200"
    SLOW = "apply, answer 200 late"
    APPLY_AND_DROP = "apply, drop the connection"
    DROP = "drop the connection"
    FAIL = "apply, answer 500"
    BUSY = "answer 429"
    UNKNOWN = "answer 404"


APPLIES = frozenset({Manner.ANSWER, Manner.SLOW, Manner.APPLY_AND_DROP, Manner.FAIL})
_WEIGHTS = {
    Manner.ANSWER: 890,
    Manner.SLOW: 20,
    Manner.APPLY_AND_DROP: 25,
    Manner.DROP: 25,
    Manner.FAIL: 20,
    Manner.BUSY: 15,
    Manner.UNKNOWN: 5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A manner, and how long the receiver thinks before it applies and before it answers."""

    manner: Manner
    before: float
    after: float


def scene(seed: int, body: bytes, attempt: int) -> Scene:
    """The same for the same body and attempt, whenever it is asked."""
    dice = random.Random(f"{seed}|{attempt}|".encode() + body)
    manner = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    # Everybody takes some time, so that a kill finds something under way; the slowest outlast a lease of three seconds.
    after = dice.choice((0.3, 0.5, 1.0, 4.0)) if manner is Manner.SLOW else dice.uniform(0, 0.05)
    return Scene(manner=manner, before=dice.uniform(0, 0.05), after=after)
