"""What people do to deliveries by hand: which state each act needs, and what stands against it.

The only ways out of a dead letter are a person's. A redrive begins a new generation: the same row and stable key, a budget and
attempt keys of its own; the attempts before it stay on record, ambiguous ones too.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum

from campana.domain.deliveries import LIVE, WAITING, Move, State


class Act(StrEnum):
    """What can be done; the words are those of the record."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    SENT = "sent"
    NOT_SENT = "not_sent"
    RESCHEDULE = "reschedule"
    CANCEL = "cancel"


MOVES = {Act.REDRIVE: Move.REDRIVE, Act.NOT_SENT: Move.REDRIVE, Act.DISCARD: Move.DISCARD, Act.SENT: Move.COMPLETE}
"""The acts on dead letters, and where they lead."""
REASONS = {
    Act.REDRIVE: "redriven",
    Act.NOT_SENT: "not_sent",
    Act.DISCARD: "discarded",
    Act.SENT: "sent",
    Act.RESCHEDULE: "rescheduled",
    Act.CANCEL: "cancelled",
}
VERDICTS = frozenset({Act.SENT, Act.NOT_SENT})
"""What a person says of an attempt that nobody else can tell about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One act, by whom, and with which words."""

    act: Act
    actor: str
    note: str | None = None
    at: datetime | None = None
    """For when it is rescheduled."""


class Came(Enum):
    """What came of an act on one delivery."""

    DONE = "done"
    REQUESTED = "requested"
    WRONG_STATE = "its state does not allow this"
    CERTAIN = "no attempt of it is ambiguous"
    EXPIRED = "it would have expired by then"
    UNKNOWN = "unknown"


_NEEDED = {Act.RESCHEDULE: WAITING, Act.CANCEL: LIVE}
_SENDING = frozenset({Act.REDRIVE, Act.NOT_SENT, Act.RESCHEDULE})


def refusal(deed: Deed, *, state: State, ambiguous_attempts: int, expires_at: datetime | None, now: datetime) -> Came | None:
    """Return what stands against an act on a delivery, if anything does."""
    if state not in _NEEDED.get(deed.act, {State.DEAD_LETTER}):
        return Came.WRONG_STATE
    if deed.act in VERDICTS and not ambiguous_attempts:
        return Came.CERTAIN
    sends_at = max(deed.at or now, now)
    if deed.act in _SENDING and expires_at is not None and expires_at <= sends_at:
        # It would be skipped at once, and from there is no way back.
        return Came.EXPIRED
    return None
