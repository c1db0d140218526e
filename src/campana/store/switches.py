"""Switches: one row per scope that was ever thrown, and a version that rises with every change."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, or_, select, update

from campana.domain import switches as scopes
from campana.store import dialects, events, versions
from campana.store.events import NewEvent
from campana.store.schema import switches

VERSION = "switches"
_c = switches.c


def throw(
    connection: Connection, scope: str, *, off: bool, reason: str, actor: str, now: datetime, tenant_id: UUID | None = None
) -> Row[Any]:
    """Set a switch and return it; engines see the new version with their next tick. The tenant named is told of it."""
    row = {"off": off, "reason": reason, "actor": actor, "changed_at": now}
    found = get(connection, scope)
    if found is not None and all(getattr(found, name) == value for name, value in row.items()):
        return found
    connection.execute(dialects.of(connection).insert_absent(switches, "scope"), {"scope": scope, **row})
    connection.execute(update(switches).where(_c.scope == scope).values(**row))
    changed(connection)
    if tenant_id is not None:
        said = {"scope": scopes.spoken(scope, tenant_id), "off": off, "reason": reason, "actor": actor}
        events.write(connection, [NewEvent(tenant_id=tenant_id, kind="switch.changed", at=now, data=said)])
    return connection.execute(select(switches).where(_c.scope == scope)).one()


def get(connection: Connection, scope: str) -> Row[Any] | None:
    """Return the switch of this very scope, if it was ever thrown."""
    return connection.execute(select(switches).where(_c.scope == scope)).first()


def changed(connection: Connection) -> None:
    """Say that something has changed which engines cache: they read it anew with their next tick."""
    versions.rise(connection, VERSION)


def off(connection: Connection) -> frozenset[str]:
    """Return every scope that is switched off."""
    return frozenset(connection.execute(select(switches.c.scope).where(switches.c.off.is_(True))).scalars())


def every(connection: Connection) -> Sequence[Row[Any]]:
    """Return all switches by scope."""
    return connection.execute(select(switches).order_by(switches.c.scope)).all()


def under(connection: Connection, roots: Sequence[str]) -> Sequence[Row[Any]]:
    """Return the switches of these scopes and of what stands under them."""
    # The order is that of bytes, in which `0` follows `/`.
    ranges = [(_c.scope == root) | ((_c.scope >= f"{root}/") & (_c.scope < f"{root}0")) for root in roots]
    return connection.execute(select(switches).where(or_(*ranges)).order_by(_c.scope)).all()
