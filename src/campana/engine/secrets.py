"""The keyring: what the requests of every project are signed with, in memory, as of the last tick.

A secret is opened once, when it is first needed. One that has expired is not used from that instant on, whatever was read when.
Where a secret that is in force can't be opened, nothing of its project leaves: receivers may rely on every signature.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from campana import sealing, store
from campana.domain import secrets as model
from campana.domain.outcomes import Withheld
from campana.errors import UnavailableError
from campana.sealing import Sealed, Sealer
from campana.store.database import Database
from campana.store.secrets import NewSecret
from campana.telemetry import Telemetry
from campana.world import World

WHO = "an engine"
ADVICE = "give ENCRYPTION_KEYS the key that sealed it too, or rotate the project's secret with an overlap of 0s"


@dataclass(frozen=True, slots=True)
class Key:
    """A secret that is open; no text of it shows it."""

    secret: bytes = field(repr=False)
    expires_at: datetime | None


class Keyring:
    """The signing secrets of all projects."""

    def __init__(self, *, world: World, database: Database, sealer: Sealer, telemetry: Telemetry) -> None:
        """Know none: the first tick brings them."""
        self._world = world
        self._database = database
        self._sealer = sealer
        self._telemetry = telemetry
        self._rows: dict[UUID, Sequence[Any]] = {}
        self._open: dict[UUID, Sequence[Key]] = {}
        self._secrets: dict[UUID, bytes] = {}
        self._told: set[UUID] = set()
        self._making: dict[UUID, asyncio.Lock] = {}
        self.version: int | None = None

    def take(self, rows: Sequence[Any], version: int) -> None:
        """Sign by these from now on, and by no others."""
        self._rows = {project_id: tuple(of_it) for project_id, of_it in groupby(rows, lambda row: row.project_id)}
        kept = {row.id for row in rows}
        self._secrets = {secret_id: secret for secret_id, secret in self._secrets.items() if secret_id in kept}
        self._open, self._told, self.version = {}, set(), version

    async def keys(self, tenant_id: UUID, project_id: UUID) -> Sequence[bytes] | Withheld:
        """Return what a request of the project is signed with now, the newest first, or why it may not leave."""
        keys = self._open.get(project_id)
        if keys is None:
            try:
                rows = self._rows.get(project_id) or await self._first(tenant_id, project_id)
            except UnavailableError:
                return Withheld(reason="signing_secret_unavailable")
            keys = self._opened(rows)
            if keys is None:
                return Withheld(reason="signing_secret_unreadable")
            self._open[project_id] = keys
        clock = self._world.clock
        return [key.secret for key in keys if key.expires_at is None or model.is_in_force(key.expires_at, clock.now())]

    def _opened(self, rows: Sequence[Any]) -> Sequence[Key] | None:
        keys = []
        for row in rows:
            secret = self._secrets.get(row.id) or self._sealer.open(
                Sealed(key_id=row.key_id, data=row.sealed), sealing.of_project(row.tenant_id, row.project_id)
            )
            if secret is None:
                self._tell(row)
                return None
            self._secrets[row.id] = secret
            keys.append(Key(secret, row.expires_at))
        return keys

    def _tell(self, row: Any) -> None:
        if row.id not in self._told:
            self._told.add(row.id)
            said = {"project_id": str(row.project_id), "number": row.number, "sealed_under": row.key_id, "advice": ADVICE}
            self._telemetry.emit(logging.ERROR, "signing.unreadable", **said)

    async def _first(self, tenant_id: UUID, project_id: UUID) -> Sequence[Any]:
        """Make the project's first secret, unless somebody else has; of many deliveries that need it here one asks."""
        async with self._making.setdefault(project_id, asyncio.Lock()):
            if project_id not in self._rows:
                place = sealing.of_project(tenant_id, project_id)
                sealed = self._sealer.seal(self._world.chance.token(model.SIZE), place)
                new = NewSecret(
                    id=self._world.new_id(), tenant_id=tenant_id, project_id=project_id, sealed=sealed.data,
                    key_id=sealed.key_id, created_at=self._world.clock.now(), who=WHO,
                )  # fmt: skip
                found = await self._database.write(store.secrets.ensure, new)
                # What a tick has brought meanwhile is newer.
                self._rows.setdefault(project_id, found)
        self._making.pop(project_id, None)
        return self._rows[project_id]
