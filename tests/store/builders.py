"""Values for the tests of the store: each with defaults, so that a test names only what it is about."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from campana.domain import deliveries as model
from campana.domain import outcomes
from campana.domain.deliveries import State
from campana.domain.tickets import Attempt, NewDelivery, Settlement, Withheld
from campana.store.claims import Wish
from campana.world import uuid7

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEASE = MINUTE
TENANT, OTHER_TENANT = UUID(int=1), UUID(int=2)
PROJECT, OTHER_PROJECT = UUID(int=11), UUID(int=12)
ME, YOU = UUID(int=21), UUID(int=22)

_ticks = count(7_250_000_000_000_000)


def new_id() -> UUID:
    """Later than every one before it."""
    return uuid7(next(_ticks), 0)


def delivery(
    *,
    id: UUID | None = None,  # noqa: A002 - the field's name
    tenant_id: UUID = TENANT,
    dedupe_key: str | None = None,
    due_at: datetime = NOW,
    labels: Mapping[str, str] | None = None,
    **others: Any,
) -> NewDelivery:
    fields: dict[str, Any] = {
        "project_id": PROJECT,
        "queue": "webhook",
        "channel": "webhook",
        "target": '{"url":"http://receiver.test/"}',
        "payload": b"{}",
        "policies": "{}",
        "max_attempts": 3,
        "scheduled_for": due_at,
        "created_at": NOW,
        **others,
    }
    return NewDelivery(
        id=id or new_id(), tenant_id=tenant_id, dedupe_key=dedupe_key, due_at=due_at, labels=labels or {}, **fields
    )


def columns(**others: Any) -> dict[str, Any]:
    """A row of `deliveries`, due and unclaimed unless told otherwise; one under way has an owner."""
    state = State(others.get("state", State.SCHEDULED))
    row: dict[str, Any] = {
        "id": new_id(),
        "tenant_id": TENANT,
        "project_id": PROJECT,
        "queue": "webhook",
        "channel": "webhook",
        "target": "{}",
        "policies": "{}",
        "priority": 1,
        "scheduled_for": NOW,
        "due_at": NOW,
        "created_at": NOW,
        "state": int(state),
        "wake_at": None if state in model.FINAL else NOW,
        "fence": 0 if state is State.SCHEDULED else 1,
        "lease_owner": None,
        "run_until": None,
        "cancel_requested": False,
        "generation": 1,
        "attempt_count": 0,
        "max_attempts": 3,
        "key_number": 1,
        "ambiguous_attempts": 0,
        "crash_count": 0,
        "proven_crashes": 0,
    }
    if state is State.PROCESSING:
        row |= {"lease_owner": ME, "wake_at": NOW + LEASE, "run_until": NOW + HOUR}
    if state is State.IN_PROGRESS:
        row |= {"wake_at": NOW + HOUR, "awaiting": "callback", "attempt_count": 1}
    return {**row, **others, "state": int(state)}


def wish(
    *,
    slots: Mapping[str, int] | None = None,
    free: int = 100,
    suspects: int = 1,
    me: UUID = ME,
    now: datetime = NOW,
    lease_until: datetime | None = None,
    **others: Any,
) -> Wish:
    return Wish(
        slots={"webhook": 100} if slots is None else slots,
        free=free,
        suspects=suspects,
        me=me,
        now=now,
        lease_until=lease_until or now + LEASE,
        run_until=now + HOUR,
        **others,
    )


def attempt(
    *,
    outcome: outcomes.Outcome | None = None,
    number: int = 1,
    key_number: int = 1,
    finished_at: datetime = NOW + SECOND,
    worker: UUID = ME,
    guards: str = "switches,expired",
) -> Attempt:
    return Attempt(
        outcome=outcome or outcomes.Delivered(answer=outcomes.Answer(code=204)),
        number=number,
        key_number=key_number,
        started_at=NOW,
        finished_at=finished_at,
        worker=worker,
        guards=guards,
    )


def settlement(
    delivery_id: UUID,
    *,
    fence: int = 1,
    transition: model.Transition | None = None,
    tried: Attempt | None = None,
    key_number: int = 1,
    ambiguous_attempts: int = 0,
    deaths: model.Deaths | None = None,
) -> Settlement:
    """A successful attempt, unless told otherwise."""
    return Settlement(
        delivery_id=delivery_id,
        tenant_id=TENANT,
        fence=fence,
        generation=1,
        transition=transition or model.Completed(),
        attempt=tried or attempt(),
        max_attempts=3,
        key_number=key_number,
        ambiguous_attempts=ambiguous_attempts,
        deaths=deaths,
    )


def withheld(delivery_id: UUID, *, fence: int = 1, transition: model.Transition) -> Settlement:
    """A claim that came to no attempt."""
    said = Withheld(at=NOW, guards="switches", verdict="hold")
    return Settlement(delivery_id=delivery_id, tenant_id=TENANT, fence=fence, generation=1, transition=transition, withheld=said)
