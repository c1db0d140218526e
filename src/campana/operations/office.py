"""What every operation works with, and on whose behalf."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from campana.channels.netguard import Rules, Url
from campana.domain import retries
from campana.operations.intake import Intake
from campana.operations.waiters import Waiters
from campana.sealing import Sealer
from campana.store.database import Database
from campana.telemetry import Telemetry
from campana.world import World


@dataclass(slots=True, kw_only=True)
class Load:
    """What is known of a tenant's live deliveries: the last count, and what this process has added since."""

    live: int = 0
    added: int = 0
    counted_at: float = -math.inf
    took: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """The database, the world, and what was configured."""

    world: World
    database: Database
    telemetry: Telemetry
    rules: Rules
    """Where webhooks may go."""
    leads_inside: Callable[[Url], Awaitable[bool]]
    """Say whether a URL's name leads to an address that webhooks may not go to; one that doesn't resolve leads nowhere."""
    retry: retries.Policy
    """The policy of a delivery that says nothing itself."""
    secret: bytes
    intake: Intake
    """Where new deliveries become durable."""
    sealer: Sealer
    ring: Callable[[datetime], None]
    """Tell the engine that something is due at this instant, after it is durable."""
    most_live: int = 20_000_000
    """How many deliveries of one tenant may wait at once."""
    loads: dict[UUID, Load] = field(default_factory=dict)
    waiters: Waiters = field(default_factory=Waiters)
    """Who waits for a delivery's end."""
    known_projects: dict[tuple[UUID, str], UUID] = field(default_factory=dict)
    """Names are never given to another project, so what was once found stays true."""
    project_names: dict[UUID, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whose key this is: everything happens inside its tenant."""

    tenant_id: UUID
    project_id: UUID | None
    key_id: UUID
    scopes: frozenset[str]
    name: str = ""
    """Where it is not a key who acts."""

    @property
    def who(self) -> str:
        """What is written down of who did it."""
        return self.name or f"key:{self.key_id}"

    def may(self, scope: str) -> bool:
        """Say whether the key has this scope; `owner` has all of its tenant's."""
        return scope in self.scopes or ("owner" in self.scopes and scope != "installation")
