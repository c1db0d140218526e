"""Tenants, their projects and their API keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select, update

from campana.store import dialects, switches
from campana.store.schema import keys, projects, tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key as it is kept: its hash, and a prefix by which people tell it from others."""

    id: UUID
    tenant_id: UUID
    name: str
    prefix: str
    hash: bytes
    scopes: str
    created_at: datetime
    project_id: UUID | None = None
    expires_at: datetime | None = None


def ensure(connection: Connection, name: str, *, tenant_id: UUID, now: datetime) -> UUID:
    """Make a tenant of this name unless there is one; return its id. Engines know it with their next tick."""
    absent = dialects.of(connection).insert_absent(tenants, "id")
    if connection.execute(absent, {"id": tenant_id, "name": name, "created_at": now}).rowcount > 0:
        switches.changed(connection)
    found: UUID = connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar_one()
    return found


def named(connection: Connection, name: str) -> UUID | None:
    """Return the tenant of this name, if there is one."""
    return connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar_one_or_none()


def ensure_project(connection: Connection, tenant_id: UUID, name: str, *, project_id: UUID, now: datetime) -> UUID:
    """Make a project of this name in the tenant unless there is one; return its id."""
    absent = dialects.of(connection).insert_absent(projects, "id")
    connection.execute(absent, {"id": project_id, "tenant_id": tenant_id, "name": name, "created_at": now})
    mine = (projects.c.tenant_id == tenant_id, projects.c.name == name)
    found: UUID = connection.execute(select(projects.c.id).where(*mine)).scalar_one()
    return found


def projects_of(connection: Connection, tenant_id: UUID) -> Sequence[Row[Any]]:
    """Return a tenant's projects by name."""
    query = select(projects).where(projects.c.tenant_id == tenant_id).order_by(projects.c.name)
    return connection.execute(query).all()


def every(connection: Connection) -> Sequence[UUID]:
    """Return all tenants in the order of their ids."""
    return sorted(connection.execute(select(tenants.c.id)).scalars())


def suspended(connection: Connection) -> frozenset[UUID]:
    """Return the tenants whose deliveries wait."""
    query = select(tenants.c.id).where(tenants.c.suspended_at.is_not(None))
    return frozenset(connection.execute(query).scalars())


def add_key(connection: Connection, key: NewKey) -> bool:
    """Keep a key; True if it is the first with this hash or was added by this very call before."""
    absent = dialects.of(connection).insert_absent(keys, "id")
    connection.execute(absent, {name: getattr(key, name) for name in NewKey.__slots__})
    holder = connection.execute(select(keys.c.id).where(keys.c.hash == key.hash)).scalar_one()
    return bool(holder == key.id)


def key_by_hash(connection: Connection, digest: bytes) -> Row[Any] | None:
    """Return the key with this hash, revoked and expired ones too."""
    return connection.execute(select(keys).where(keys.c.hash == digest)).first()


def has_keys(connection: Connection) -> bool:
    """Say whether anybody can sign in at all."""
    return connection.execute(select(keys.c.id).limit(1)).first() is not None


def touch_key(connection: Connection, key_id: UUID, *, now: datetime) -> None:
    """Remember when the key was last used."""
    connection.execute(update(keys).where(keys.c.id == key_id).values(last_used_at=now))
