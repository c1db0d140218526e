"""What an attempt came to: a closed union of values. A channel returns one of them and never raises for what a receiver does."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back from the other side, as far as it came: evidence for the attempt's record."""

    code: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    provider: str | None = None
    provider_call_id: str | None = None
    cost: Decimal | None = None


NOTHING = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """It had its effect."""

    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A provider took it; a callback will say how it ended, or this deadline will."""

    until: datetime
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A complete answer came and it was no, or nothing left at all (not `sent`).

    It is `ambiguous` where the receiver may have acted all the same (408, 5xx).
    """

    error: str
    sent: bool = True
    permanent: bool = False
    ambiguous: bool = False
    retry_after: timedelta | None = None
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """A deadline ended before the request was out: nothing was sent."""

    error: str
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """The request was out and no complete answer came, or the worker died: it may have had its effect."""

    error: str
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Nobody picked up."""

    error: str = "no answer"
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The line was busy."""

    error: str = "busy"
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Voicemail:
    """A machine picked up."""

    error: str = "voicemail"
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The recipient said no."""

    error: str = "declined"
    answer: Answer = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescheduled:
    """The recipient asked to be reached later, at a named time or not."""

    at: datetime | None = None
    error: str = "rescheduled by the recipient"
    answer: Answer = NOTHING


Outcome = Delivered | Accepted | Failed | TimedOut | Ambiguous | NoAnswer | Busy | Voicemail | Declined | Rescheduled


@dataclass(frozen=True, slots=True)
class Withheld:
    """Nothing left this process: the last look before the write said no. It is no attempt, so it is no outcome."""

    reason: str | None = None
    """Where it is the channel that can't send now: what it waits for."""


NAMES: dict[type[Outcome], str] = {
    Delivered: "delivered",
    Accepted: "accepted",
    Failed: "failed",
    TimedOut: "timed_out",
    Ambiguous: "ambiguous",
    NoAnswer: "no_answer",
    Busy: "busy",
    Voicemail: "voicemail",
    Declined: "declined",
    Rescheduled: "rescheduled",
}


def name(outcome: Outcome) -> str:
    """Return the outcome's word, the same in the API, the database and the logs."""
    return NAMES[type(outcome)]


def error(outcome: Outcome) -> str | None:
    """Return what went wrong, in words, or None where nothing did."""
    return None if isinstance(outcome, Delivered | Accepted) else outcome.error


def was_sent(outcome: Outcome) -> bool:
    """Say whether anything of the attempt may have left this process."""
    return not isinstance(outcome, TimedOut) and (not isinstance(outcome, Failed) or outcome.sent)


def is_ambiguous(outcome: Outcome) -> bool:
    """Say whether the attempt may have had an effect that no answer proves."""
    return isinstance(outcome, Ambiguous) or (isinstance(outcome, Failed) and outcome.ambiguous)
