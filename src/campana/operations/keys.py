"""API keys: made, shown once, kept as a hash, and turned into an actor when they come back."""

import base64
import hashlib
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from campana import store
from campana.errors import ConflictError, Fault, NotFoundError, UnauthenticatedError
from campana.operations import projects, secrets
from campana.operations.office import Actor, Office
from campana.operations.projects import DEFAULT
from campana.store.tenants import NewKey

PREFIX = "cmp_"
REFUSED = "send a key that is valid as `Authorization: Bearer cmp_...`; this one is missing, wrong, expired or revoked"
"""One text for all of these: who guesses learns nothing."""
_SHOWN = 12
TOUCH_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A new key; its text exists only here."""

    id: UUID
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What a start has made, and may show this once."""

    key: Issued | None
    """None if somebody has one."""
    signing_secret: str | None = field(repr=False)
    """Of the default project; None if it has had one before."""


async def bootstrap(office: Office, given: str | None) -> Bootstrap:
    """Make the tenant `default`, its project with a signing secret, and an owner key if there is no key at all."""
    tenant_id, project_id = await _own(office)
    made = await secrets.first(office, tenant_id, project_id, "the first start")
    key = None
    if given is not None or not await office.database.read(store.tenants.has_keys):
        key = await issue(office, tenant_id, name="owner", scopes=("owner", "installation"), text=given)
    return Bootstrap(key=key, signing_secret=None if made is None else made.text)


async def issue(office: Office, tenant_id: UUID, *, name: str, scopes: tuple[str, ...], text: str | None = None) -> Issued:
    """Make a key of a tenant; a given text that is already this tenant's key stays what it is."""
    said = text or PREFIX + "live_" + _readable(office.world.chance.token(24))
    key = NewKey(
        id=office.world.new_id(),
        tenant_id=tenant_id,
        name=name,
        prefix=said[:_SHOWN],
        hash=digest(said),
        scopes=" ".join(scopes),
        created_at=office.world.clock.now(),
    )
    if not await office.database.write(store.tenants.add_key, key):
        holder = await office.database.read(store.tenants.key_by_hash, key.hash)
        if holder is None or holder.tenant_id != tenant_id:
            raise ConflictError("this key is already in use")
        return Issued(id=holder.id, text=said)
    return Issued(id=key.id, text=said)


async def issue_for_default(office: Office, *, name: str, installation: bool) -> Issued:
    """Make another key of the tenant `default`, as an operator at the machine may."""
    now = office.world.clock.now()
    tenant_id = await office.database.write(store.tenants.ensure, DEFAULT, tenant_id=office.world.new_id(), now=now)
    scopes = ("owner", "installation") if installation else ("owner",)
    return await issue(office, tenant_id, name=name, scopes=scopes)


async def operator(office: Office, *, tenant: str | None = None, project: str | None = None) -> Actor:
    """Return who acts on the command line: whoever reaches the database may do everything.

    It is done in the tenant `default`, unless another one is named, and within the project that is named.
    """
    is_own = tenant is None or tenant == DEFAULT
    tenant_id = (await _own(office))[0] if is_own else await office.database.read(store.tenants.named, str(tenant))
    if tenant_id is None:
        raise NotFoundError(f"there is no tenant {str(tenant)[:60]!r}")
    scopes = frozenset({"owner", "installation"})
    actor = Actor(tenant_id=tenant_id, project_id=None, key_id=UUID(int=0), scopes=scopes, name="the command line")
    if project is None:
        return actor
    found: list[Fault] = []
    project_id = await projects.named(office, actor, project, found)
    if found:
        raise NotFoundError(f"there is no project {project[:60]!r} in this tenant")
    return replace(actor, project_id=project_id)


async def _own(office: Office) -> tuple[UUID, UUID]:
    now, new_id = office.world.clock.now(), office.world.new_id
    tenant_id = await office.database.write(store.tenants.ensure, DEFAULT, tenant_id=new_id(), now=now)
    return tenant_id, await office.database.write(store.tenants.ensure_project, tenant_id, DEFAULT, project_id=new_id(), now=now)


async def authenticate(office: Office, text: str) -> Actor:
    """Return who this key belongs to; one answer for keys that are wrong, expired and revoked."""
    now = office.world.clock.now()
    row = await office.database.read(store.tenants.key_by_hash, digest(text)) if text.startswith(PREFIX) else None
    expired = row is not None and row.expires_at is not None and row.expires_at <= now
    if row is None or row.revoked_at is not None or expired:
        raise UnauthenticatedError(REFUSED)
    if row.last_used_at is None or row.last_used_at < now - TOUCH_EVERY:
        await office.database.write(store.tenants.touch_key, row.id, now=now)
    return Actor(tenant_id=row.tenant_id, project_id=row.project_id, key_id=row.id, scopes=frozenset(row.scopes.split()))


def digest(text: str) -> bytes:
    """Return what is kept of a key; keys are long and random, so a plain hash is enough."""
    return hashlib.sha256(text.encode()).digest()


def _readable(token: bytes) -> str:
    return base64.b32encode(token).decode().rstrip("=").lower()
