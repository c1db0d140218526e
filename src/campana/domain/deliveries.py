"""Deliveries: their states, the one table of transitions, and `judge`, which turns an outcome into a transition.

A retry is not a loop but a row that becomes claimable again. So the judge returns a value that says what the row shall
become; the store writes it where the claim's fence still matches. Nothing else changes a state: every write asks `after`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import assert_never

from campana.domain import outcomes, retries
from campana.domain.ambiguity import Contract, OnAmbiguous
from campana.errors import IllegalTransitionError


class State(IntEnum):
    """Where a delivery stands; the numbers are what the database holds."""

    SCHEDULED = 0
    PROCESSING = 1
    IN_PROGRESS = 2
    PENDING_RETRY = 3
    COMPLETED = 4
    DEAD_LETTER = 5
    DECLINED = 6
    SKIPPED = 7
    CANCELLED = 8

    @property
    def word(self) -> str:
        """The state's name in the API, the logs and the dashboard."""
        return self.name.lower()


WORDS: Mapping[str, State] = {state.word: state for state in State}
WAITING = frozenset({State.SCHEDULED, State.PENDING_RETRY})
"""Claimed by the reader of sends."""
UNDER_WAY = frozenset({State.PROCESSING, State.IN_PROGRESS})
"""Looked at by the reader of timers."""
LIVE = WAITING | UNDER_WAY
FINAL = frozenset(State) - LIVE


class Move(StrEnum):
    """What can happen to a delivery."""

    CLAIM = "claim"
    COMPLETE = "complete"
    AWAIT = "await"
    RETRY = "retry"
    RETURN_UNTRIED = "return untried"
    RETURN_TRIED = "return tried"
    BURY = "bury"
    DECLINE = "decline"
    SKIP = "skip"
    CANCEL = "cancel"
    REDRIVE = "redrive"
    DISCARD = "discard"


def _table() -> dict[tuple[State, Move], State]:
    table = {
        (State.SCHEDULED, Move.CLAIM): State.PROCESSING,
        (State.PENDING_RETRY, Move.CLAIM): State.PROCESSING,
        (State.PROCESSING, Move.AWAIT): State.IN_PROGRESS,
        (State.IN_PROGRESS, Move.AWAIT): State.IN_PROGRESS,
        # A deferral, a release and a lost claim burn nothing: the row goes back to where it waited.
        (State.PROCESSING, Move.RETURN_UNTRIED): State.SCHEDULED,
        (State.PROCESSING, Move.RETURN_TRIED): State.PENDING_RETRY,
        # A late callback of a real effect beats a retry that was not sent yet.
        (State.PENDING_RETRY, Move.COMPLETE): State.COMPLETED,
        # The only ways out of a final state are a person's.
        (State.DEAD_LETTER, Move.REDRIVE): State.SCHEDULED,
        (State.DEAD_LETTER, Move.COMPLETE): State.COMPLETED,
        (State.DEAD_LETTER, Move.DISCARD): State.CANCELLED,
    }
    for state in UNDER_WAY:
        table[state, Move.COMPLETE] = State.COMPLETED
        table[state, Move.RETRY] = State.PENDING_RETRY
        table[state, Move.BURY] = State.DEAD_LETTER
        table[state, Move.DECLINE] = State.DECLINED
    for state in LIVE:
        table[state, Move.CANCEL] = State.CANCELLED
    for state in WAITING | {State.PROCESSING}:
        # Guards speak before a send: what a provider has accepted may have its effect, and can't be skipped any more.
        table[state, Move.SKIP] = State.SKIPPED
    return table


TRANSITIONS: Mapping[tuple[State, Move], State] = _table()


def after(state: State, move: Move) -> State:
    """Return the state that a move leads to; raise where the table has no such row."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        message = f"expected a move that is legal in {state.word}, got {move.value!r}"
        raise IllegalTransitionError(message) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """It had its effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaiting:
    """A provider has it; `what` is awaited (a callback, a look-up) until this instant."""

    what: str
    until: datetime
    since: datetime | None = None
    """Since when it is looked up: look-ups that fail for too long end in hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """It failed and is tried again at this instant."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """It wants a person, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The recipient said no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A guard said never, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A user withdrew it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """Not tried this time: back to waiting until `at`, under the scope that holds it, if any."""

    at: datetime
    reason: str
    held_by: str | None = None
    slot_at: datetime | None = None
    """The instant that a limit handed out: then it needs no other one."""


Transition = Completed | Awaiting | Retried | Buried | Declined | Skipped | Cancelled | Returned


def move_of(transition: Transition, *, tried: bool) -> Move:
    """Return the table's move for a transition of a delivery that was, or was not, attempted before."""
    match transition:
        case Completed():
            return Move.COMPLETE
        case Awaiting():
            return Move.AWAIT
        case Retried():
            return Move.RETRY
        case Buried():
            return Move.BURY
        case Declined():
            return Move.DECLINE
        case Skipped():
            return Move.SKIP
        case Cancelled():
            return Move.CANCEL
        case Returned():
            return Move.RETURN_TRIED if tried else Move.RETURN_UNTRIED
        case other:
            assert_never(other)


def wake_at(transition: Transition) -> datetime | None:
    """Return when the engine must look again: every live state has an instant, every final one has none."""
    match transition:
        case Retried(at=at) | Returned(at=at) | Awaiting(until=at):
            return at
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What was resolved when the delivery was made, so that no later edit changes it."""

    retry: retries.Policy
    on_ambiguous: OnAmbiguous


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the judge may know of a delivery besides the outcome."""

    attempt_count: int
    policies: Policies
    contract: Contract
    key_since: datetime | None = None
    """When the key of this attempt was first sent: a provider honours it only so long."""
    request_until: datetime | None = None
    """When its request is over at the latest: only then can a look-up tell that it never came."""


HOLD_REASON = "ambiguous"
CALLBACK, LOOKUP = "callback", "lookup"
"""What a delivery under way can await."""
CRASH_LOOP = "crash_loop"
CRASHES_ALLOWED = 3


def judge(facts: Facts, outcome: outcomes.Outcome, *, now: datetime, chance: float = 0.0) -> Transition:
    """Return what becomes of a delivery whose attempt number `attempt_count` + 1 came to this outcome."""
    match outcome:
        case outcomes.Delivered():
            return Completed()
        case outcomes.Accepted(until=until):
            return Awaiting(what=CALLBACK, until=until)
        case outcomes.Declined():
            return Declined()
        case outcomes.Ambiguous():
            return _judge_ambiguous(facts, outcome, now=now, chance=chance)
        case outcomes.Failed(permanent=True):
            return Buried(reason="permanent")
        case outcomes.Failed(ambiguous=True) if not facts.contract.repeatable:
            return _judge_ambiguous(facts, outcome, now=now, chance=chance)
        case outcomes.Rescheduled(at=at) if at is not None and _allowed(facts, outcome):
            return Retried(at=max(at, now))
        case _:
            return _again(facts, outcome, now=now, chance=chance)


def _judge_ambiguous(facts: Facts, outcome: outcomes.Outcome, *, now: datetime, chance: float) -> Transition:
    match facts.policies.on_ambiguous:
        case OnAmbiguous.RETRY:
            again = _again(facts, outcome, now=now, chance=chance)
            return hold(facts, now=now) if _outlives_key(facts, again) else again
        case OnAmbiguous.RECONCILE | OnAmbiguous.HOLD:
            return hold(facts, now=now)
        case other:
            assert_never(other)


def _outlives_key(facts: Facts, transition: Transition) -> bool:
    lifetime, since = facts.contract.key_lifetime, facts.key_since
    return isinstance(transition, Retried) and lifetime is not None and since is not None and transition.at >= since + lifetime


def hold(facts: Facts, *, now: datetime) -> Transition:
    """Return what becomes of a delivery that may have had its effect: its provider is asked, else a person."""
    after_end = facts.contract.lookup_after
    if facts.policies.on_ambiguous is not OnAmbiguous.HOLD and after_end is not None:
        return Awaiting(what=LOOKUP, until=max(now, facts.request_until or now) + after_end, since=now)
    return Buried(reason=HOLD_REASON)


def _allowed(facts: Facts, outcome: outcomes.Outcome) -> bool:
    return retries.allows(facts.policies.retry, outcomes.name(outcome), facts.attempt_count + 1)


def _again(facts: Facts, outcome: outcomes.Outcome, *, now: datetime, chance: float) -> Transition:
    policy, number = facts.policies.retry, facts.attempt_count + 1
    if not _allowed(facts, outcome):
        return Buried(reason="exhausted" if number >= policy.max_attempts else "not_retried")
    asked = outcome.retry_after if isinstance(outcome, outcomes.Failed) else None
    wait = retries.delay(policy, number, outcome=outcomes.name(outcome), chance=chance, retry_after=asked)
    return Retried(at=now + wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """How often a worker died with this delivery in hand, and how often after it had written that it starts just this one."""

    all: int = 0
    proven: int = 0


def judge_lost(facts: Facts, deaths: Deaths, *, now: datetime, sent: bool = True) -> Transition:
    """Return what becomes of a delivery whose worker was lost; `deaths` count this one too.

    It is due again at once, from its second death on after the policy's delays, unless it may have been `sent` and must not
    be repeated. Only deaths that are proven to be its own count to the crash loop: its neighbours in a batch are innocent.
    """
    if deaths.proven >= CRASHES_ALLOWED:
        return Buried(reason=CRASH_LOOP)
    if sent and (facts.policies.on_ambiguous is not OnAmbiguous.RETRY or _outlives_key(facts, Retried(at=now))):
        return hold(facts, now=now)
    if deaths.all <= 1:
        return Returned(at=now, reason="worker_lost")
    return Returned(at=now + retries.delay(facts.policies.retry, deaths.all - 1, chance=0.5), reason="worker_lost")


def heed_cancel(transition: Transition) -> Transition:
    """Return what becomes of a delivery whose cancelling was requested under way: the outcome stands, no retry follows."""
    match transition:
        case Retried() | Returned():
            return Cancelled(reason="cancelled")
        case _:
            return transition


def next_key_number(facts: Facts, key_number: int, outcome: outcomes.Outcome, *, unknown: int = 0) -> int:
    """Return the key number of the following attempt: the same bytes and key again until a failure is known.

    An attempt that was never sent tells nothing of the `unknown` ones before it, so it does not end their key.
    """
    if isinstance(outcome, outcomes.Ambiguous | outcomes.Delivered | outcomes.Accepted):
        return key_number
    if unknown and not outcomes.was_sent(outcome):
        return key_number
    return facts.attempt_count + 2


def expire(transition: Transition, expires_at: datetime | None) -> Transition:
    """Wake a parked or deferred delivery no later than its expiry, so that it ends on time."""
    if expires_at is not None and isinstance(transition, Returned) and transition.at > expires_at:
        return replace(transition, at=expires_at)
    return transition


PARKED = timedelta(hours=24)
"""How far ahead a parked row looks again if nothing lifts what holds it."""
