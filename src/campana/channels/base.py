"""What a channel is given, what it gives back, and the last look before the write."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from campana.domain.ambiguity import Contract
from campana.domain.lookups import Answer
from campana.domain.outcomes import Outcome, Withheld

Permit = Callable[[], Awaitable[bool]]
"""Asked once, after the connection is there and immediately before the write; False means that nothing may leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """One attempt as a channel sees it: what to send, where, and under which keys."""

    delivery_id: UUID
    tenant_id: UUID
    project_id: UUID
    delivery_key: str
    idempotency_key: str
    number: int
    target: Mapping[str, Any]
    payload: bytes | None
    due_at: datetime
    timeout: float
    """Seconds that the whole attempt may take."""
    provider_call_id: str | None = None
    """The provider's own id, where it gave one: what a look-up asks by, else by ours."""


class Channel(Protocol):
    """A way out. `send` returns an outcome for whatever the other side does; what it raises is a bug of the channel."""

    name: str
    contract: Contract

    async def send(self, parcel: Parcel, permit: Permit) -> Outcome | Withheld:
        """Get ready, ask the permit, write, and say what came of it."""

    async def close(self) -> None:
        """Give back connections; called once, when nothing is under way."""


@runtime_checkable
class Addressed(Channel, Protocol):
    """A channel whose receivers can be told apart: what one of them does to its deliveries is kept from the others'."""

    def destination(self, target: Mapping[str, Any]) -> str | None:
        """Return who receives this, the same text for the same receiver; None where that can't be told."""


@runtime_checkable
class Asked(Channel, Protocol):
    """A channel whose provider can be asked what came of an attempt; its contract says from when on."""

    async def lookup(self, parcel: Parcel) -> Answer:
        """Say what the provider knows of this attempt; changes nothing there."""
