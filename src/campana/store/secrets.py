"""Signing secrets of projects: sealed, numbered from 1 within their project, and kept after their end as a record."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select, update

from campana.domain import instants
from campana.domain import secrets as model
from campana.store import dialects, events, versions
from campana.store.events import NewEvent
from campana.store.schema import secrets

VERSION = "secrets"
_c = secrets.c


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    """A secret as it is kept, before it has its number."""

    id: UUID
    tenant_id: UUID
    project_id: UUID
    sealed: bytes
    key_id: str
    created_at: datetime
    who: str


def ensure(connection: Connection, new: NewSecret) -> Sequence[Row[Any]]:
    """Keep it as the project's first secret unless there is one; return what is in force, whoever made it."""
    if not (found := _in_force(connection, new.project_id, new.created_at)):
        # Engines need not be told: whoever misses the first secret comes here, and finds it.
        _insert(connection, new, 1)
        found = _in_force(connection, new.project_id, new.created_at)
    return found


def rotate(connection: Connection, new: NewSecret, *, until: datetime) -> Row[Any] | None:
    """Make it the project's current secret, while the older ones end by then; engines sign so from their next tick on.

    None, and nothing is changed, if more would be in force at once than a request should bear signatures.
    """
    versions.lock(connection, VERSION)
    if (done := _by_id(connection, new.id)) is not None:
        return done
    now = new.created_at
    older = _in_force(connection, new.project_id, now)
    if until > now and len(older) >= model.MOST_IN_FORCE:
        return None
    while (row := _by_id(connection, new.id)) is None:
        # An engine may make the first one meanwhile: then the next number is tried.
        last = connection.execute(select(func.max(_c.number)).where(_c.project_id == new.project_id)).scalar()
        _insert(connection, new, (last or 0) + 1)
    later = (_c.project_id == new.project_id, _c.number < row.number, or_(_c.expires_at.is_(None), _c.expires_at > until))
    connection.execute(update(secrets).where(*later).values(expires_at=until))
    versions.rise(connection, VERSION)
    _tell(connection, new, row.number, until)
    return row


def _tell(connection: Connection, new: NewSecret, number: int, until: datetime) -> None:
    said = {"project_id": str(new.project_id), "number": number, "older_until": instants.show(until), "actor": new.who}
    kind = "project.secret_rotated"
    events.write(connection, [NewEvent(tenant_id=new.tenant_id, kind=kind, at=new.created_at, data=said)])


def in_force(connection: Connection, *, now: datetime) -> Sequence[Row[Any]]:
    """Return what requests of all projects are signed with, the newest first in each."""
    query = select(secrets).where(_lives(now)).order_by(_c.project_id, _c.number.desc())
    return connection.execute(query).all()


def of_project(connection: Connection, tenant_id: UUID, project_id: UUID, *, limit: int) -> Sequence[Row[Any]]:
    """Return a project's secrets, the newest first, expired ones too."""
    mine = (_c.tenant_id == tenant_id, _c.project_id == project_id)
    return connection.execute(select(secrets).where(*mine).order_by(_c.number.desc()).limit(limit)).all()


def under_others(connection: Connection, key_id: str, *, after: UUID | None, limit: int) -> Sequence[Row[Any]]:
    """Return a page of secrets that are sealed under another key, in the order of their ids."""
    past = () if after is None else (_c.id > after,)
    return connection.execute(select(secrets).where(_c.key_id != key_id, *past).order_by(_c.id).limit(limit)).all()


def reseal(connection: Connection, secret_id: UUID, *, was: str, key_id: str, sealed: bytes) -> None:
    """Keep a secret sealed under another key than it was."""
    connection.execute(update(secrets).where(_c.id == secret_id, _c.key_id == was).values(key_id=key_id, sealed=sealed))


def _lives(now: datetime) -> ColumnElement[bool]:
    return or_(_c.expires_at.is_(None), _c.expires_at > now)


def _in_force(connection: Connection, project_id: UUID, now: datetime) -> Sequence[Row[Any]]:
    query = select(secrets).where(_c.project_id == project_id, _lives(now)).order_by(_c.number.desc())
    return connection.execute(query).all()


def _by_id(connection: Connection, secret_id: UUID) -> Row[Any] | None:
    return connection.execute(select(secrets).where(_c.id == secret_id)).first()


def _insert(connection: Connection, new: NewSecret, number: int) -> None:
    row = {name: getattr(new, name) for name in NewSecret.__slots__} | {"number": number, "expires_at": None}
    connection.execute(dialects.of(connection).insert_absent(secrets, "id"), row)
