"""What became of a delivery so far, told line by line: for people in sentences, for programs in words that do not change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from campana.domain import instants
from campana.domain.acts import MOVES, Act
from campana.domain.deliveries import CRASHES_ALLOWED, FINAL, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that happened."""

    at: datetime
    kind: str
    """`accepted`, `guard`, `attempt`, `lookup`, `lost`, `act` or `ended`."""
    text: str
    verdict: str | None = None
    number: int | None = None
    generation: int | None = None
    guards: Sequence[str] = ()
    """Who was asked before; the last one gave the verdict."""
    until: datetime | None = None
    actor: str | None = None
    note: str | None = None


def tell(record: Any, attempts: Sequence[Any], verdicts: Sequence[Any]) -> list[Line]:
    """Return everything that is on record about a delivery, in its order."""
    claims = [(row.fence, _attempt(row)) for row in attempts] + [(row.fence, _verdict(row)) for row in verdicts]
    # The fences are the order in which things happened, whatever the clocks said.
    told = [line for _, line in sorted(claims, key=lambda pair: pair[0])]
    return [_accepted(record), *told, *_ended(record)]


def said(at: datetime) -> str:
    """Return an instant as people read it, to the second."""
    return instants.show(at.replace(microsecond=0)).replace("T", " ").replace("Z", " UTC")


def _accepted(record: Any) -> Line:
    text = f"It was accepted, to be sent at {said(record.scheduled_for)}."
    return Line(at=record.created_at, kind="accepted", text=text)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple((text or "").split(",")) if text else ()


# --- attempts

_CAME = {
    "delivered": "was delivered",
    "accepted": "was accepted by the provider, who will say how it ends",
    "failed": "failed",
    "timed_out": "ran out of time before anything was sent",
    "ambiguous": "ended without an answer: it may have had its effect",
    "no_answer": "was not picked up",
    "busy": "met a busy line",
    "voicemail": "met a machine",
    "declined": "was declined by the recipient",
    "rescheduled": "was put off by the recipient",
}


def _attempt(row: Any) -> Line:
    text = f"Attempt {row.number} {_came(row)}{_why(row)}."
    if row.late:
        text += " Its outcome came after its claim was lost, and changed nothing."
    return Line(
        at=row.finished_at or row.started_at,
        kind="attempt",
        verdict=row.outcome,
        text=text + (f" ({row.reason})" if row.reason else ""),
        number=row.number,
        generation=row.generation,
        guards=_names(row.guards),
    )


def _came(row: Any) -> str:
    if row.outcome is None:
        return "began, and nothing is known of it yet"
    came = _CAME.get(row.outcome, f"came to {row.outcome}")
    return f"{came}, and may have had its effect all the same" if row.ambiguous and row.outcome != "ambiguous" else came


def _why(row: Any) -> str:
    code, error = "" if row.response_code is None else str(row.response_code), row.error or ""
    # A channel's sentence often names the answer's number itself.
    parts = [one for one in (code if code not in error.split(":")[0].split() else "", error) if one]
    return f" ({', '.join(parts)})" if parts else ""


# --- claims that came to no attempt, look-ups, and what people did

UNSIGNED = {
    "signing_secret_unreadable": "its project's signing secret could not be opened, as the log and `campana doctor` say",
    "signing_secret_unavailable": "its project's signing secret could not be made or read just then",
}
_HELD = {
    **UNSIGNED,
    "switched_off": "a switch over it was off",
    "tenant_suspended": "its tenant was suspended",
    "rate_limited": "a rate limit handed out a later instant",
    "breaker_open": "its receiver kept failing, and was left alone",
    "receiver_asked": "its receiver had asked to be left alone for a while",
    "destination_busy": "its receiver had as much under way as it takes",
    "expired": "it had expired",
    "key_too_old": "it may have had its effect, and its provider may have forgotten the key by which it would know a repeat",
    "released": "its engine stopped, or was no longer sure that it might send",
}


def _verdict(row: Any) -> Line:
    match row.verdict:
        case "lookup":
            text = f"The provider was asked what came of the attempt: {row.reason}."
            return Line(at=row.at, kind="lookup", verdict=row.reason, text=text, until=row.until)
        case "lost":
            text = "The engine that had it was lost before anything was sent."
            return Line(at=row.at, kind="lost", verdict=row.reason, text=text, until=row.until)
        case verdict if verdict in set(Act):
            return _act(row, Act(verdict))
        case verdict:
            return _guard(row, verdict)


def _guard(row: Any, verdict: str) -> Line:
    why = _HELD.get(row.reason, row.reason.replace("_", " "))
    match verdict:
        case "skip":
            text = f"It was not sent and never will be: {why}."
        case "hold":
            text = f"It was put aside: {why}."
        case _:
            text = f"It was not sent this time: {why}."
    return Line(at=row.at, kind="guard", verdict=verdict, text=text, guards=_names(row.guards), until=row.until)


def _act(row: Any, act: Act) -> Line:
    who = row.actor or "somebody"
    did = {
        Act.REDRIVE: f"It was begun anew by {who}",
        Act.DISCARD: f"It was discarded by {who}",
        Act.SENT: f"It had its effect, as {who} said",
        Act.NOT_SENT: f"It had no effect, as {who} said, and was begun anew",
        Act.RESCHEDULE: f"It was moved to {said(row.until or row.at)} by {who}",
        Act.CANCEL: f"It was cancelled by {who}",
    }[act]
    was = f" ({LETTERS[row.reason]})" if act in MOVES and row.reason in LETTERS else ""
    text = f"{did}{was}{f': {row.note}' if row.note else ''}."
    return Line(at=row.at, kind="act", verdict=act.value, text=text, actor=row.actor, note=row.note, until=row.until)


# --- its end

LETTERS = {
    "exhausted": "all its attempts are used up",
    "permanent": "the answer was final, so that another attempt would change nothing",
    "not_retried": "its policy does not try again after such an outcome",
    "ambiguous": "an attempt may have had its effect, and must not be repeated without knowing",
    "crash_loop": f"{CRASHES_ALLOWED} workers died with it in hand",
    "unreadable": "what is kept of it can't be read",
}
_CANCELLED = {"cancelled": "it was cancelled", "discarded": "it was discarded"}


def ending(record: Any) -> str:
    """Return how a delivery ended, in a sentence."""
    state, reason = State(record.state), record.reason or ""
    plain = reason.replace("_", " ") or "nobody wrote down why"
    match state:
        case State.COMPLETED:
            return "It had its effect, as a person said." if reason == "sent" else "It had its effect."
        case State.DEAD_LETTER:
            return f"It wants a person: {LETTERS.get(reason, plain)}."
        case State.DECLINED:
            return "The recipient said no."
        case State.SKIPPED:
            return f"It was skipped and is never sent: {_HELD.get(reason, plain)}."
        case _:
            return f"It is not sent any more: {_CANCELLED.get(reason, plain)}."


def _ended(record: Any) -> Iterator[Line]:
    if State(record.state) in FINAL:
        yield Line(
            at=record.finished_at or record.created_at, kind="ended", verdict=State(record.state).word, text=ending(record)
        )
