"""Who waits for a delivery's end: remembered here, so that nobody holds a connection for it."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from campana.errors import TooManyError, UnavailableError

MOST = 1_000
"""How many may wait in one process."""
MOST_OF_ONE = 200
"""How many of one tenant, so that nobody takes all the places."""


@dataclass(slots=True, eq=False)
class Waiter:
    """One who waits; `rung` is set when it is time to look."""

    tenant_id: UUID
    delivery_id: UUID
    rung: asyncio.Event = field(default_factory=asyncio.Event)


class Waiters:
    """The waiters of this process."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._waiters: dict[UUID, set[Waiter]] = {}
        self._of: Counter[UUID] = Counter()
        self.is_over = False
        self.watcher: asyncio.Task[None] | None = None
        """Looks into the database for all of them, while there are any."""

    def __len__(self) -> int:
        """Return how many wait."""
        return self._of.total()

    @property
    def awaited(self) -> list[UUID]:
        """What is waited for."""
        return list(self._waiters)

    def come(self, tenant_id: UUID, delivery_id: UUID) -> Waiter:
        """Take a place, if there is one."""
        if self._of[tenant_id] >= MOST_OF_ONE:
            raise TooManyError(f"expected at most {MOST_OF_ONE} requests of a tenant that wait at once", retry_after=5)
        if len(self) >= MOST:
            raise UnavailableError(f"{MOST} requests wait already, more are not taken", retry_after=5)
        waiter = Waiter(tenant_id, delivery_id)
        if self.is_over:
            waiter.rung.set()
        self._waiters.setdefault(delivery_id, set()).add(waiter)
        self._of[tenant_id] += 1
        return waiter

    def go(self, waiter: Waiter) -> None:
        """Give the place back."""
        others = self._waiters[waiter.delivery_id]
        others.discard(waiter)
        if not others:
            del self._waiters[waiter.delivery_id]
        self._of[waiter.tenant_id] -= 1
        if not self._of[waiter.tenant_id]:
            del self._of[waiter.tenant_id]

    def wake(self, delivery_id: UUID) -> None:
        """Let those look who wait for this delivery."""
        for waiter in self._waiters.get(delivery_id, ()):
            waiter.rung.set()

    def heard(self, name: str, fields: Mapping[str, Any]) -> None:
        """Wake whoever waits for the delivery that an event is about."""
        if name.startswith("delivery.") and "delivery_id" in fields:
            self.wake(UUID(fields["delivery_id"]))

    def end(self) -> None:
        """Let everybody look a last time: this process stops."""
        self.is_over = True
        for delivery_id in self.awaited:
            self.wake(delivery_id)
