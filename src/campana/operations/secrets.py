"""Signing secrets: made, shown once, kept sealed, and replaced while the older ones live on for a while."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, WithJsonSchema

from campana import sealing, store
from campana.domain import durations
from campana.domain import secrets as model
from campana.errors import ConflictError, InvalidError
from campana.operations import projects
from campana.operations.office import Actor, Office
from campana.operations.wanted import BadError, faults
from campana.sealing import Sealed
from campana.store.secrets import NewSecret

SHOWN = 100
"""How many of a project's secrets are listed: all that are in force, and the last ones that were."""
PAGE = 200


def _overlap(text: str) -> str:
    try:
        length = durations.parse(text)
    except ValueError as error:
        raise BadError("duration", error) from None
    if length > model.LONGEST_OVERLAP:
        raise BadError("duration", f"expected at most {durations.show(model.LONGEST_OVERLAP)}, got {text!r}")
    return text


class RotateWanted(BaseModel):
    """How a project's signing secret shall be replaced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    overlap: Annotated[
        str,
        StringConstraints(max_length=60),
        AfterValidator(_overlap),
        WithJsonSchema({"type": "string", "maxLength": 60, "examples": ["24h", "0s"]}),
    ] = Field(model.OVERLAP, description="For how long the older secrets sign too, at most 30d; 0s ends them at once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A new secret: its row, and its text, which exists only here."""

    row: Any
    text: str = field(repr=False)
    older_until: datetime | None = None


async def of_project(office: Office, actor: Actor, said: str) -> Sequence[Any]:
    """Return what is known of the secrets of a project, the newest first; raise where the actor has no such project."""
    project = await projects.find(office, actor, said)
    return await office.database.read(store.secrets.of_project, actor.tenant_id, project.id, limit=SHOWN)


async def rotate(office: Office, actor: Actor, project_id: UUID, said: Any) -> Made:
    """Replace the secret of a project; two seconds later every request bears a signature by the new one."""
    try:
        wanted = RotateWanted.model_validate(said)
    except ValidationError as error:
        raise InvalidError(*faults(error.errors(include_url=False))) from None
    new, text = _new(office, actor.tenant_id, project_id, actor.who)
    until = new.created_at + durations.parse(wanted.overlap)
    row = await office.database.write(store.secrets.rotate, new, until=until)
    if row is None:
        raise ConflictError(
            f"expected at most {model.MOST_IN_FORCE} secrets in force at once, one more than that was asked for: wait until one "
            "has expired, or rotate with the overlap 0s, which ends all older ones at once"
        )
    return Made(row=row, text=text, older_until=until)


async def first(office: Office, tenant_id: UUID, project_id: UUID, who: str) -> Made | None:
    """Make the first secret of a project; None where it has one already, which is not shown again."""
    new, text = _new(office, tenant_id, project_id, who)
    rows = await office.database.write(store.secrets.ensure, new)
    return next((Made(row=row, text=text) for row in rows if row.id == new.id), None)


def _new(office: Office, tenant_id: UUID, project_id: UUID, who: str) -> tuple[NewSecret, str]:
    secret = office.world.chance.token(model.SIZE)
    sealed = office.sealer.seal(secret, sealing.of_project(tenant_id, project_id))
    new = NewSecret(
        id=office.world.new_id(), tenant_id=tenant_id, project_id=project_id, sealed=sealed.data, key_id=sealed.key_id,
        created_at=office.world.clock.now(), who=who,
    )  # fmt: skip
    return new, model.text(secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resealed:
    """How many secrets are sealed under the newest key now that were not, and how many could not be opened."""

    done: int
    failed: int


async def reseal(office: Office) -> Resealed:
    """Seal every secret of the installation under the newest key; what can't be opened stays as it is."""
    done = failed = 0
    last: UUID | None = None
    newest = office.sealer.newest
    while rows := await office.database.read(store.secrets.under_others, newest, after=last, limit=PAGE):
        for row in rows:
            place = sealing.of_project(row.tenant_id, row.project_id)
            secret = office.sealer.open(Sealed(key_id=row.key_id, data=row.sealed), place)
            if secret is None:
                failed += 1
                continue
            sealed = office.sealer.seal(secret, place)
            await office.database.write(store.secrets.reseal, row.id, was=row.key_id, key_id=sealed.key_id, sealed=sealed.data)
            done += 1
        last = rows[-1].id
    return Resealed(done=done, failed=failed)


async def unreadable(office: Office) -> Sequence[Any]:
    """Return the secrets in force that can't be opened here: nothing of their projects would leave."""
    rows = await office.database.read(store.secrets.in_force, now=office.world.clock.now())
    return [
        row
        for row in rows
        if office.sealer.open(Sealed(key_id=row.key_id, data=row.sealed), sealing.of_project(row.tenant_id, row.project_id))
        is None
    ]
