"""All that can be known of one delivery and of what stands around it, read at one moment."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, func, select

from campana.domain.switches import above
from campana.store import attempts as tries
from campana.store import deliveries as rows
from campana.store.engines import alive
from campana.store.schema import deliveries, engines, lanes, slots, switches, tenants

ALIVE = timedelta(seconds=10)
"""An engine that was not seen for longer is not counted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has the lane that a delivery needs."""

    delivery_id: UUID | None
    """None where it is not the asking tenant's."""
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A delivery, what became of its claims, and what stands over it now."""

    record: Row[Any]
    attempts: Sequence[Row[Any]]
    verdicts: Sequence[Row[Any]]
    scopes: Sequence[str]
    """Every switch that could hold it, widest first."""
    off: Sequence[Row[Any]]
    suspended_at: datetime | None
    holder: Holder | None
    places: int | None
    """Free places of the resource that it needs."""
    engines: int
    serving: int | None
    """Engines that take its queue; None where an engine does not say what it takes."""


def facts(connection: Connection, tenant_id: UUID, delivery_id: UUID, *, now: datetime) -> Facts | None:
    """Return what can be known of one delivery of this tenant."""
    # The attempts first: on a server each statement sees its own moment, and no outcome may be told before its attempt.
    attempts = tries.of_delivery(connection, tenant_id, delivery_id)
    verdicts = tries.verdicts_of_delivery(connection, tenant_id, delivery_id)
    record = rows.get(connection, tenant_id, delivery_id)
    if record is None:
        return None
    scopes = above(tenant_id=tenant_id, project_id=record.project_id, channel=record.channel, schedule_id=record.schedule_id)
    running, serving = _engines(connection, record.queue, now)
    return Facts(
        record=record,
        attempts=attempts,
        verdicts=verdicts,
        scopes=scopes,
        off=_off(connection, scopes),
        suspended_at=connection.execute(select(tenants.c.suspended_at).where(tenants.c.id == tenant_id)).scalar(),
        holder=_holder(connection, record),
        places=_places(connection, record.resource),
        engines=running,
        serving=serving,
    )


def tenant_of(connection: Connection, delivery_id: UUID) -> UUID | None:
    """Return whose delivery this is; for operators, who stand above tenants."""
    c = deliveries.c
    found: UUID | None = connection.execute(select(c.tenant_id).where(c.id == delivery_id)).scalar()
    return found


def _off(connection: Connection, scopes: Sequence[str]) -> list[Row[Any]]:
    c = switches.c
    found = connection.execute(select(switches).where(c.scope.in_(scopes), c.off.is_(True)))
    return sorted(found, key=lambda row: scopes.index(row.scope))


def _holder(connection: Connection, record: Row[Any]) -> Holder | None:
    if record.lane_key is None:
        return None
    row = connection.execute(select(lanes).where(lanes.c.lane_key == record.lane_key)).first()
    if row is None or row.delivery_id == record.id:
        return None
    is_mine = tenant_of(connection, row.delivery_id) == record.tenant_id
    return Holder(delivery_id=row.delivery_id if is_mine else None, until=row.until)


def _places(connection: Connection, resource: str | None) -> int | None:
    if resource is None:
        return None
    free = select(func.count()).select_from(slots).where(slots.c.resource == resource, slots.c.delivery_id.is_(None))
    return connection.execute(free).scalar_one()


def _engines(connection: Connection, queue: str, now: datetime) -> tuple[int, int | None]:
    found = connection.execute(select(engines.c.queues).where(*alive(now - ALIVE))).scalars().all()
    if any(said is None for said in found):
        return len(found), None
    return len(found), sum(queue in json.loads(said) for said in found if said is not None)
