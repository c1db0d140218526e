"""The values that pass from stage to stage: what intake makes, what a claim hands out, what a settle writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from campana.domain.deliveries import Deaths, State, Transition
from campana.domain.outcomes import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """One thing to be delivered, with all that is needed to send it: a later edit of anything else never changes it."""

    id: UUID
    tenant_id: UUID
    project_id: UUID
    queue: str
    channel: str
    target: str
    payload: bytes | None
    policies: str
    max_attempts: int
    scheduled_for: datetime
    due_at: datetime
    created_at: datetime
    priority: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    recipient: str | None = None
    dedupe_key: str | None = None
    expires_at: datetime | None = None
    schedule_id: UUID | None = None
    lane_key: str | None = None
    """Only one delivery of a lane is under way at a time; the key begins with `lane:`."""
    resource: str | None = None
    """What bears only so much at once; the name begins with `slots:`."""


SUSPICIOUS = 2
"""Deaths that make a delivery a suspect. The first says little, since it takes a whole batch with it."""
ALONE = 3
"""Deaths from which on it goes without any other suspect: the one before took a few with it."""


class Ticket(NamedTuple):
    """A claimed delivery: whoever holds it may try once, until the lease ends. The store's columns, in their order."""

    id: UUID
    tenant_id: UUID
    project_id: UUID
    queue: str
    channel: str
    target: str
    payload: bytes | None
    policies: str
    fence: int
    generation: int
    attempt_count: int
    key_number: int
    ambiguous_attempts: int
    crash_count: int
    due_at: datetime
    expires_at: datetime | None
    recipient: str | None
    schedule_id: UUID | None
    lane_key: str | None
    resource: str | None
    key_at: datetime | None
    """When the present key was first sent, if it was."""
    slot_at: datetime | None
    """The instant that a limit handed out to it."""
    wake_at: datetime
    """When it became due to be looked at, before this claim."""
    state: int = State.SCHEDULED
    """Where it waited before this claim."""

    @property
    def number(self) -> int:
        """The attempt's number, from 1."""
        return self.attempt_count + 1

    @property
    def is_suspect(self) -> bool:
        """Say whether workers died with it in hand before, so that only a few like it go at once."""
        return self.crash_count >= SUSPICIOUS

    @property
    def goes_alone(self) -> bool:
        """Say whether it must go without any other suspect, so that a death is its own."""
        return self.crash_count >= ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try, as it will be recorded."""

    outcome: Outcome
    number: int
    key_number: int
    started_at: datetime
    finished_at: datetime
    worker: UUID
    guards: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """A claim that came to no attempt: which guards were asked and what the last one said."""

    at: datetime
    guards: str
    verdict: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What shall become of one claimed delivery. It is written only where fence and state still match."""

    delivery_id: UUID
    tenant_id: UUID
    fence: int
    generation: int
    transition: Transition
    attempt: Attempt | None = None
    withheld: Withheld | None = None
    max_attempts: int = 0
    key_number: int = 1
    """Of the next attempt."""
    ambiguous_attempts: int = 0
    deaths: Deaths | None = None
    """Set where a worker was lost; then the attempt is recorded and not counted."""
    begins: State = State.PROCESSING
    """Where the row must still stand: a look-up finds and leaves it in progress."""
    intended: bool = False
    """The attempt's row may be there already, without an outcome: it was written before the first byte left."""
    found: Outcome | None = None
    """What a look-up found."""
    silent_fence: int | None = None
    """The claim whose accepted attempt nothing was heard of: that attempt is ambiguous from now on."""
    key_at: datetime | None = None
    """When the next attempt's key was first sent, if it was."""
