"""Explain: where a delivery stands, what keeps it there now, what happens next and when, and its story so far."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from campana import store
from campana.domain import guards, switches
from campana.domain.deliveries import FINAL, LOOKUP, State
from campana.domain.tickets import ALONE, SUSPICIOUS
from campana.errors import NotFoundError
from campana.operations import stories
from campana.operations.deliveries import NO_DELIVERY
from campana.operations.office import Actor, Office
from campana.operations.stories import Line, said
from campana.store.explains import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One thing that keeps a delivery from being sent now."""

    kind: str
    """`not_due`, `retry`, `deferred`, `switch`, `suspension`, `parked`, `lane`, `slots`, `limit`, `breaker`, `destination`,
    `engine`, `suspect` or `queue`."""
    text: str
    scope: str | None = None
    until: datetime | None = None
    """When this alone ends by itself, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What happens next, and when at the latest."""

    at: datetime
    what: str
    """`attempt`, `look`, `skip`, `callback`, `lookup` or `lease`."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that can be said of a delivery."""

    status: str
    reason: str | None
    text: str
    holds: Sequence[Held]
    following: Next | None
    story: Sequence[Line]


async def explain(office: Office, actor: Actor, delivery_id: UUID) -> Explanation:
    """Explain a delivery of the actor's tenant."""
    now = office.world.clock.now()
    facts = await office.database.read(store.explains.facts, actor.tenant_id, delivery_id, now=now)
    if facts is None or actor.project_id not in (None, facts.record.project_id):
        raise NotFoundError(NO_DELIVERY)
    return of(facts, now)


async def owner(office: Office, operator: Actor, delivery_id: UUID) -> Actor:
    """Return the operator inside the tenant whose delivery this is: on the command line nobody is shut out."""
    tenant_id = await office.database.read(store.explains.tenant_of, delivery_id)
    return operator if tenant_id is None else replace(operator, tenant_id=tenant_id)


def of(facts: Facts, now: datetime) -> Explanation:
    """Return what these facts come to."""
    record, state = facts.record, State(facts.record.state)
    holds = list(_holds(facts, now)) if state in (State.SCHEDULED, State.PENDING_RETRY) else []
    following = _next(record, state, holds, now)
    sentences = [_standing(record, state, now), *(one.text for one in holds), *([following.text] if following else [])]
    return Explanation(
        status=state.word,
        reason=record.reason,
        text=" ".join(sentences),
        holds=[replace(one, scope=switches.spoken(one.scope, record.tenant_id)) if one.scope else one for one in holds],
        following=following,
        story=stories.tell(record, facts.attempts, facts.verdicts),
    )


# --- where it stands


def _standing(record: Any, state: State, now: datetime) -> str:
    match state:
        case State.SCHEDULED if record.generation > 1 and not record.attempt_count:
            return "It waits to be sent, anew."
        case State.SCHEDULED:
            return "It waits to be sent."
        case State.PENDING_RETRY if not record.attempt_count:
            return "It waits to be tried again."
        case State.PENDING_RETRY:
            return f"It has used {record.attempt_count} of its {record.max_attempts} attempts and waits to be tried again."
        case State.PROCESSING:
            lost = " That engine has not been heard of since." if record.wake_at <= now else ""
            return (
                f"An engine has it in hand, as attempt {record.attempt_count + 1} of {record.max_attempts}.{lost}{_asked(record)}"
            )
        case State.IN_PROGRESS if record.awaiting == LOOKUP:
            return f"An attempt may have had its effect; the provider is asked about it.{_asked(record)}"
        case State.IN_PROGRESS:
            return f"The provider has accepted it and will say how it ends.{_asked(record)}"
        case State.DEAD_LETTER:
            return f"{stories.ending(record)} {_ways_out(record)}"
        case _:
            return stories.ending(record)


def _asked(record: Any) -> str:
    return " Cancelling was asked for: if it is not sent yet it ends, and no retry follows." if record.cancel_requested else ""


def _ways_out(record: Any) -> str:
    resolve = "Resolve it as `sent` or `not_sent`, or redrive or discard it." if record.ambiguous_attempts else ""
    return resolve or "Redrive it, or discard it."


# --- what keeps it


def _holds(facts: Facts, now: datetime) -> Iterator[Held]:
    record = facts.record
    found = [*_closed(facts), *_full(facts, now)]
    yield from found
    if record.slot_at is not None and record.slot_at > now:
        text = f"A rate limit has given it its turn at {said(record.slot_at)}."
        yield Held(kind="limit", text=text, until=record.slot_at)
    elif record.held_by is not None:
        if record.held_by not in {one.scope for one in found}:
            yield _parked(facts)
    elif record.wake_at > now:
        yield _later(record, now)
    yield from _unserved(facts)
    if record.wake_at <= now:
        yield from _ready(facts, is_kept=bool(found or record.held_by) or facts.serving == 0 or not facts.engines)


def _closed(facts: Facts) -> Iterator[Held]:
    for row in facts.off:
        why = f": {row.reason}" if row.reason else ""
        text = f"The switch of {_named(row.scope)} is off since {said(row.changed_at)}{why}."
        yield Held(kind="switch", scope=row.scope, text=text)
    if facts.suspended_at is not None:
        scope = f"suspended:{facts.record.tenant_id}"
        yield Held(kind="suspension", scope=scope, text=f"Its tenant is suspended since {said(facts.suspended_at)}.")


def _full(facts: Facts, now: datetime) -> Iterator[Held]:
    record, holder = facts.record, facts.holder
    if record.due_at > now:
        return
    if holder is not None:
        who = f"Delivery {holder.delivery_id}" if holder.delivery_id else "Another delivery"
        text = f"{who} is under way in the same lane `{record.lane_key}`, until {said(holder.until)} at the latest."
        yield Held(kind="lane", scope=record.lane_key, text=text, until=holder.until)
    if facts.places == 0:
        yield Held(kind="slots", scope=record.resource, text=f"All places of `{record.resource}` are taken.")


def _parked(facts: Facts) -> Held:
    """Tell of a scope that holds it by its row, though nothing that is known here keeps that scope closed."""
    scope = facts.record.held_by
    # What the environment of the engines stops has no row, so nobody here can tell that it is free again.
    known = {*facts.scopes, f"suspended:{facts.record.tenant_id}", facts.record.lane_key, facts.record.resource}
    known.discard(switches.DISABLED_CALLS)
    if scope in known:
        text = f"It was held by {_named(scope)}, which is free again: it is released within seconds."
    else:
        text = f"It is held by {_named(scope)}."
    return Held(kind="parked", scope=scope, text=text)


_DEFERRED = {"worker_lost": "workers were lost with it in hand", **stories.UNSIGNED}


def _later(record: Any, now: datetime) -> Held:
    at = said(record.wake_at)
    if record.reason in _RECEIVERS:
        kind, text = _RECEIVERS[record.reason]
        return Held(kind=kind, text=text.format(at=at), until=record.wake_at)
    if State(record.state) is State.PENDING_RETRY and record.reason not in _DEFERRED:
        return Held(kind="retry", text=f"Its next attempt is at {at}.", until=record.wake_at)
    if record.due_at > now:
        return Held(kind="not_due", text=f"It is due at {at}.", until=record.wake_at)
    why = _DEFERRED.get(record.reason or "", (record.reason or "").replace("_", " "))
    return Held(kind="deferred", text=f"It was put off until {at}{f': {why}' if why else ''}.", until=record.wake_at)


_RECEIVERS = {
    guards.BREAKER_OPEN: (
        "breaker",
        "Its receiver keeps failing, so it is left alone; this one waits until {at}. After each rest one delivery is tried.",
    ),
    guards.RETRY_AFTER: ("breaker", "Its receiver has asked to be left alone for a while; this one waits until {at}."),
    guards.BUSY: ("destination", "Its receiver has as much under way as it takes; this one comes again at {at}."),
}
"""What keeps it for its receiver's sake, by its reason."""


def _unserved(facts: Facts) -> Iterator[Held]:
    if not facts.engines:
        yield Held(kind="engine", text="No engine is running.")
    elif facts.serving == 0:
        text = f"No engine that is running serves the queue `{facts.record.queue}`."
        yield Held(kind="engine", scope=facts.record.queue, text=text)


def _ready(facts: Facts, *, is_kept: bool) -> Iterator[Held]:
    if facts.record.crash_count >= SUSPICIOUS:
        count = facts.record.crash_count
        way = (
            "alone: when an engine has no other such delivery under way"
            if count >= ALONE
            else "with few others like it at a time"
        )
        text = f"{count} workers died with it in hand, so it goes {way}."
        yield Held(kind="suspect", text=text)
    elif not is_kept:
        yield Held(kind="queue", text="It is due, and waits for a free place in an engine.")


def _named(scope: str | None) -> str:
    """Return a scope in words."""
    match (scope or "").split("/"):
        case [switches.ALL]:
            return "everything"
        case ["all", "hold"]:
            return "the safe hold (calls and messages wait until it is released)"
        case ["all", "DISABLE_ALL_CALLS"]:
            return "the setting DISABLE_ALL_CALLS of an engine (no call is placed there)"
        case ["all", rest] if rest.startswith("tenant:"):
            return "its tenant (a switch of the installation's operators)"
        case ["all", rest]:
            return f"the whole installation's {rest.replace(':', ' ')}"
        case [one] if one.startswith("tenant:"):
            return "its tenant"
        case [one, rest] if one.startswith("tenant:"):
            kind, _, name = rest.partition(":")
            return f"its {kind}" if kind in {"project", "schedule"} else f"its tenant's {kind} {name}"
        case [one] if one.startswith("suspended:"):
            return "the suspension of its tenant"
        case [one] if one.startswith(("lane:", "slots:")):
            return f"the {'lane' if one.startswith('lane:') else 'resource'} `{one}`"
        case _:
            return f"`{scope}`"


# --- what comes next


def _next(record: Any, state: State, holds: Sequence[Held], now: datetime) -> Next | None:
    if state in FINAL:
        return None
    if state is State.PROCESSING:
        text = f"If nothing is heard of it, its lease ends at {said(record.wake_at)} and another engine judges it."
        return Next(at=record.wake_at, what="lease", text=text)
    if state is State.IN_PROGRESS and record.awaiting == LOOKUP:
        return Next(at=record.wake_at, what="lookup", text=f"The provider is asked at {said(record.wake_at)}.")
    if state is State.IN_PROGRESS:
        text = f"If nothing is heard by {said(record.wake_at)}, that attempt is ambiguous and is judged so."
        return Next(at=record.wake_at, what="callback", text=text)
    return _next_send(record, holds, max(record.wake_at, now), now)


def _next_send(record: Any, holds: Sequence[Held], at: datetime, now: datetime) -> Next:
    if record.expires_at is not None and record.expires_at <= at:
        return Next(at=at, what="skip", text=_expiring(record, now))
    if record.held_by is not None:
        return Next(at=at, what="look", text=f"It is looked at again at {said(at)} at the latest, sooner if that changes.")
    if any(one.kind in {"switch", "suspension", "lane", "slots", "breaker", "destination"} for one in holds):
        return Next(at=at, what="look", text=f"It is looked at next at {said(at)}, and sent if nothing stands against it then.")
    if any(one.kind == "engine" for one in holds):
        return Next(at=at, what="attempt", text="It is sent once it is due and an engine serves it.")
    return Next(at=at, what="attempt", text=f"Attempt {record.attempt_count + 1} of {record.max_attempts} follows at {said(at)}.")


def _expiring(record: Any, now: datetime) -> str:
    if record.expires_at <= now:
        return f"It expired at {said(record.expires_at)}: an engine skips it as soon as it looks at it."
    before = "unless it is let go before" if record.held_by else "before it would be tried"
    return f"It expires at {said(record.expires_at)}, {before}: then it is skipped."
