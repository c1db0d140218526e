"""What people do to a delivery by hand: redrive, discard, decide, reschedule. Each is on record with who did it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from campana import store
from campana.domain import instants
from campana.domain.acts import Act, Came, Deed
from campana.domain.deliveries import FINAL
from campana.errors import AlreadyFinalError, CampanaError, ConflictError, Fault, InvalidError, NotFoundError
from campana.operations import deliveries, times
from campana.operations.office import Actor, Office
from campana.operations.wanted import RescheduleWanted, ResolveWanted, read
from campana.store.deliveries import Record


async def redrive(office: Office, actor: Actor, delivery_id: UUID) -> Record:
    """Begin a dead letter anew: another generation, with a budget of its own, due now."""
    return await _perform(office, actor, delivery_id, Deed(act=Act.REDRIVE, actor=actor.who))


async def discard(office: Office, actor: Actor, delivery_id: UUID) -> Record:
    """Put a dead letter away for good."""
    return await _perform(office, actor, delivery_id, Deed(act=Act.DISCARD, actor=actor.who))


async def resolve(office: Office, actor: Actor, delivery_id: UUID, said: Any) -> Record:
    """Decide about a dead letter that may have had effect: it had, and is completed; or it had none, and begins anew."""
    reading = read(ResolveWanted, said, {"effect": "sent"})
    if reading.faults:
        raise InvalidError(*reading.faults)
    deed = Deed(act=Act(reading.wanted.effect), actor=actor.who, note=reading.wanted.note)
    return await _perform(office, actor, delivery_id, deed)


async def reschedule(office: Office, actor: Actor, delivery_id: UUID, said: Any) -> Record:
    """Move what waits to another instant."""
    now = office.world.clock.now()
    reading = read(RescheduleWanted, said, {"at": instants.show(now)})
    found = reading.faults
    at = times.due(reading.wanted, reading.unread, now, found)
    if found:
        raise InvalidError(*found)
    return await _perform(office, actor, delivery_id, Deed(act=Act.RESCHEDULE, actor=actor.who, at=at))


async def _perform(office: Office, actor: Actor, delivery_id: UUID, deed: Deed) -> Record:
    await deliveries.get(office, actor, delivery_id)
    now = office.world.clock.now()
    came = (await office.database.write(store.acts.perform, actor.tenant_id, [delivery_id], deed, now=now))[delivery_id]
    office.waiters.wake(delivery_id)
    record = await deliveries.get(office, actor, delivery_id)
    if came is not Came.DONE:
        raise _refused(came, deed, record)
    if record.wake_at is not None:
        office.ring(record.wake_at)
    return record


_NEEDED = {
    Act.REDRIVE: "only a dead letter can be redriven",
    Act.DISCARD: "only a dead letter can be discarded; cancel what has not ended",
    Act.SENT: "only a dead letter can be resolved",
    Act.NOT_SENT: "only a dead letter can be resolved",
    Act.RESCHEDULE: "only what waits can be rescheduled",
}


def _refused(came: Came, deed: Deed, record: Record) -> CampanaError:
    state = store.deliveries.state(record)
    match came:
        case Came.UNKNOWN:
            return NotFoundError(deliveries.NO_DELIVERY)
        case Came.EXPIRED if deed.act is Act.RESCHEDULE:
            said = f"expected an instant before the delivery expires at {_shown(record.expires_at)}"
            return InvalidError(Fault(pointer="/at", code="after_expiry", detail=said))
        case Came.EXPIRED:
            return ConflictError(f"the delivery expired at {_shown(record.expires_at)} and would be skipped: post a new one")
        case Came.CERTAIN:
            return ConflictError("no attempt of the delivery is ambiguous, so there is nothing to resolve: redrive or discard it")
        case _ if deed.act is Act.RESCHEDULE and state in FINAL:
            return AlreadyFinalError(f"the delivery has already ended as {state.word}")
        case _:
            return ConflictError(f"{_NEEDED[deed.act]}, this delivery is {state.word}")


def _shown(at: datetime | None) -> str:
    return "" if at is None else instants.show(at)
