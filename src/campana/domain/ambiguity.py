"""Which failures prove that nothing happened, and which prove nothing: a table, and each provider's contract as data."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum
from typing import assert_never

from campana.domain import outcomes


class Trouble(Enum):
    """Everything that can come between a request and its complete answer."""

    UNRESOLVED = "the name did not resolve"
    REFUSED_ADDRESS = "the address is not allowed"
    NO_CONNECTION = "the connection was refused or lost before the request"
    CONNECT_TIMEOUT = "no connection in time"
    TLS = "TLS failed before the request"
    NOT_TAKEN = "the receiver refused the request before it acted on it"
    WRITE_TIMEOUT = "the request could not be written in time"
    RESET = "the connection was lost after the request"
    READ_TIMEOUT = "no complete answer in time"
    TRUNCATED = "the answer ended early"
    UNREADABLE = "the answer can't be read"
    WORKER_LOST = "the worker died or lost its lease"


class Certainty(Enum):
    """What a trouble proves about the effect."""

    NOT_SENT = "nothing left"
    UNKNOWN = "it may have been acted on"


CERTAINTY: dict[Trouble, Certainty] = {
    Trouble.UNRESOLVED: Certainty.NOT_SENT,
    Trouble.REFUSED_ADDRESS: Certainty.NOT_SENT,
    Trouble.NO_CONNECTION: Certainty.NOT_SENT,
    Trouble.CONNECT_TIMEOUT: Certainty.NOT_SENT,
    Trouble.TLS: Certainty.NOT_SENT,
    Trouble.NOT_TAKEN: Certainty.NOT_SENT,
    Trouble.WRITE_TIMEOUT: Certainty.UNKNOWN,
    Trouble.RESET: Certainty.UNKNOWN,
    Trouble.READ_TIMEOUT: Certainty.UNKNOWN,
    Trouble.TRUNCATED: Certainty.UNKNOWN,
    Trouble.UNREADABLE: Certainty.UNKNOWN,
    Trouble.WORKER_LOST: Certainty.UNKNOWN,
}

# Deadlines are `timed_out`, an address that we refuse is final, all else that was not sent is a plain failure.
_DEADLINES = frozenset({Trouble.CONNECT_TIMEOUT})
_PERMANENT = frozenset({Trouble.REFUSED_ADDRESS})


def outcome_of(trouble: Trouble, detail: str, answer: outcomes.Answer = outcomes.NOTHING) -> outcomes.Outcome:
    """Return the outcome of an attempt that ended in this trouble."""
    error = f"{trouble.value}: {detail}" if detail else trouble.value
    match CERTAINTY[trouble]:
        case Certainty.UNKNOWN:
            return outcomes.Ambiguous(error=error, answer=answer)
        case Certainty.NOT_SENT if trouble in _DEADLINES:
            return outcomes.TimedOut(error=error, answer=answer)
        case Certainty.NOT_SENT:
            return outcomes.Failed(error=error, sent=False, permanent=trouble in _PERMANENT, answer=answer)
        case other:
            assert_never(other)


class OnAmbiguous(StrEnum):
    """What becomes of an ambiguous attempt."""

    RECONCILE = "reconcile"
    RETRY = "retry"
    HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a provider promises, as data: the engine reads it and never guesses."""

    repeatable: bool
    """The claim is the whole intent: a send may be repeated under the same key."""
    on_ambiguous: OnAmbiguous
    key_lifetime: timedelta | None = None
    """How long it honours an idempotency key; None where it promises nothing."""
    lookup_after: timedelta | None = None
    """How long after a request's end it can be asked about it by our id; None where it can't."""
    unknown_statuses: frozenset[int] = frozenset({408, *range(500, 600)})
    """Statuses after which it may have acted all the same."""
    cancellable: bool = False
    plans_ahead: timedelta = timedelta(0)

    def is_unknown(self, status: int) -> bool:
        """Say whether this status leaves open if the receiver acted."""
        return status in self.unknown_statuses


CONTRACTS: dict[str, Contract] = {
    # Our receivers get the stable key in every attempt, so they can deduplicate.
    "webhook": Contract(repeatable=True, on_ambiguous=OnAmbiguous.RETRY),
    "python": Contract(repeatable=True, on_ambiguous=OnAmbiguous.RETRY),
    # A log line has nobody on the other side.
    "log": Contract(repeatable=True, on_ambiguous=OnAmbiguous.RETRY, unknown_statuses=frozenset()),
}
