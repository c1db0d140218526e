"""Operations: one act on all deliveries that match, done in the background, to be watched and stopped."""

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any
from uuid import UUID

from campana import store
from campana.domain import instants
from campana.domain.acts import Act
from campana.domain.deliveries import LIVE, WORDS, State
from campana.errors import ConflictError, Fault, InvalidError, NotFoundError
from campana.operations import projects
from campana.operations.office import Actor, Office
from campana.operations.wanted import CancelManyWanted, LettersWanted, read
from campana.store.bulk import NewOperation, Status
from campana.store.deliveries import Filter

NO_OPERATION = "there is no operation with this id"
Record = Any


async def begin(office: Office, actor: Actor, act: Act, said: Any) -> UUID:
    """Write down that this be done to all that match now; engines do it, and the operation's id says how far they are."""
    wanted = await (_cancelling(office, actor, said) if act is Act.CANCEL else _letters(office, actor, said))
    new = NewOperation(
        id=office.world.new_id(),
        tenant_id=actor.tenant_id,
        act=act,
        wanted=wanted,
        actor=actor.who,
        created_at=office.world.clock.now(),
    )
    await office.database.write(store.bulk.begin, new)
    return new.id


async def get(office: Office, actor: Actor, operation_id: UUID) -> Record:
    """Return an operation of the actor's tenant, and project."""
    return _seen(actor, await office.database.read(store.bulk.get, actor.tenant_id, operation_id))


async def stop(office: Office, actor: Actor, operation_id: UUID) -> Record:
    """Stop an operation; what it has done stays done."""
    await get(office, actor, operation_id)
    now = office.world.clock.now()
    record = _seen(actor, await office.database.write(store.bulk.stop, actor.tenant_id, operation_id, now=now))
    if record.status != Status.CANCELLED:
        raise ConflictError(f"the operation has already ended as {record.status}")
    return record


async def work(office: Office, actor: Actor, operation_id: UUID) -> Record:
    """Move an operation on by one batch, as an engine would; return it as it is then."""
    now = office.world.clock.now()
    if await office.database.write(store.bulk.advance, operation_id, now=now):
        office.ring(now)
    return await get(office, actor, operation_id)


def _seen(actor: Actor, record: Record | None) -> Record:
    if record is None or actor.project_id not in (None, record.project_id):
        raise NotFoundError(NO_OPERATION)
    return record


async def _letters(office: Office, actor: Actor, said: Any) -> Filter:
    reading = read(LettersWanted, said, {})
    return await _filter(office, actor, reading.wanted, reading.faults, {State.DEAD_LETTER})


async def _cancelling(office: Office, actor: Actor, said: Any) -> Filter:
    reading = read(CancelManyWanted, said, {})
    if not reading.faults and not reading.wanted.model_dump(exclude_defaults=True):
        detail = "expected at least one filter: nobody should cancel everything by leaving something out"
        raise InvalidError(Fault(pointer="", code="required", detail=detail))
    found = {WORDS[word] for word in reading.wanted.status}
    return await _filter(office, actor, reading.wanted, reading.faults, found or LIVE)


async def _filter(office: Office, actor: Actor, wanted: LettersWanted, found: list[Fault], states: AbstractSet[State]) -> Filter:
    project_id = await projects.named(office, actor, wanted.project, found)
    if found:
        raise InvalidError(*found)
    return Filter(
        states=frozenset(states),
        channel=wanted.channel,
        recipient=wanted.recipient,
        project_id=project_id,
        dedupe_key=wanted.dedupe_key,
        provider_call_id=wanted.provider_call_id,
        schedule_id=None if wanted.schedule_id is None else UUID(wanted.schedule_id),
        due_from=_instant(wanted.due_from),
        due_to=_instant(wanted.due_to),
        labels=wanted.labels,
    )


def _instant(said: str | None) -> datetime | None:
    return None if said is None else instants.parse(said)
