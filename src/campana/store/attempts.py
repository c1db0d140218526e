"""Attempts: one row per try at a delivery, keyed by the claim's fence, so that a late one never overwrites another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, func, select

from campana.domain.deliveries import State
from campana.store import dialects
from campana.store.schema import attempts, deliveries, switches, tenants, verdicts


def of_delivery(connection: Connection, tenant_id: UUID, delivery_id: UUID) -> Sequence[Row[Any]]:
    """Return a delivery's attempts, the first one first."""
    c = attempts.c
    mine = (c.delivery_id == delivery_id, c.tenant_id == tenant_id)
    return connection.execute(select(attempts).where(*mine).order_by(c.fence)).all()


def verdicts_of_delivery(connection: Connection, tenant_id: UUID, delivery_id: UUID) -> Sequence[Row[Any]]:
    """Return the claims of a delivery that came to no attempt, with what the guards said."""
    c = verdicts.c
    mine = (c.delivery_id == delivery_id, c.tenant_id == tenant_id)
    return connection.execute(select(verdicts).where(*mine).order_by(c.fence)).all()


def newest(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, Row[Any]]:
    """Return the last attempt of each of these deliveries that has one."""
    c, theirs = attempts.c, dialects.of(connection).among(attempts.c.delivery_id, "ids")
    last = select(c.delivery_id, func.max(c.fence).label("fence")).where(theirs).group_by(c.delivery_id).subquery()
    query = select(attempts).join(last, and_(last.c.delivery_id == c.delivery_id, last.c.fence == c.fence))
    return {row.delivery_id: row for row in connection.execute(query, {"ids": list(ids)})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An attempt that is about to leave: what must be durable before its first byte does."""

    delivery_id: UUID
    tenant_id: UUID
    fence: int
    generation: int
    number: int
    key_number: int
    worker: UUID
    guards: str
    started_at: datetime
    until: datetime
    """When it has ended at the latest; the lease must last as long."""
    scopes: Sequence[str]
    """Whatever could stop it."""


def intend(connection: Connection, intent: Intent) -> bool:
    """Write an intent where fence, state, lease and switches still hold; False means that nothing may leave."""
    dialect, d, c = dialects.of(connection), deliveries.c, attempts.c
    query = select(d.fence, d.state, d.wake_at, d.cancel_requested).where(d.id == intent.delivery_id)
    row = connection.execute(dialect.locked(query)).first()
    if row is None or (row.fence, row.state, row.cancel_requested) != (intent.fence, State.PROCESSING, False):
        return False
    if row.wake_at <= intent.until or _is_stopped(connection, intent):
        return False
    said = {name: getattr(intent, name) for name in Intent.__slots__ if name not in {"until", "scopes"}}
    connection.execute(dialect.insert_absent(attempts, "delivery_id"), {**said, "ambiguous": False, "late": False})
    mine = (c.delivery_id == intent.delivery_id, c.fence == intent.fence)
    return connection.execute(select(c.worker).where(*mine)).scalar() == intent.worker


def _is_stopped(connection: Connection, intent: Intent) -> bool:
    off = select(switches.c.scope).where(switches.c.scope.in_(intent.scopes), switches.c.off.is_(True)).limit(1)
    rests = select(tenants.c.id).where(tenants.c.id == intent.tenant_id, tenants.c.suspended_at.is_not(None))
    return connection.execute(off).first() is not None or connection.execute(rests).first() is not None
