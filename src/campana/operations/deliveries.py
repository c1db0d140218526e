"""Deliveries: made, looked at, cancelled. Everything happens inside the actor's tenant."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from campana import store
from campana.channels import netguard, webhook
from campana.domain import durations, instants, policies
from campana.domain.acts import Act, Deed
from campana.domain.ambiguity import CONTRACTS, OnAmbiguous
from campana.domain.deliveries import FINAL, Policies
from campana.domain.tickets import NewDelivery
from campana.errors import (
    AlreadyFinalError,
    CampanaError,
    Fault,
    InvalidError,
    NotFoundError,
    TooManyError,
    TryAgainError,
    UnavailableError,
)
from campana.operations import addresses, ceiling, projects, rendering, times
from campana.operations.office import Actor, Office
from campana.operations.rendering import Room
from campana.operations.wanted import MOST_FAULTS, PRIORITIES, DeliveryWanted, Reading, read_delivery
from campana.store.deliveries import Cancelled, Filter, Record, Window

LARGEST_PAYLOAD = 262_144
LONGEST_HANDLING = timedelta(minutes=15)
LARGEST_BATCH = 10_000
NO_DELIVERY = "there is no delivery with this id"
_CHUNK = 1_000
FIRST_STEP, LAST_STEP = 1_000, 16_000
"""How many deliveries are looked through at once for those that match."""
BREATH, LONGEST_BREATH = 50, 0.01
"""How many items of a batch are read before others may go on, or for how many seconds, where they are costly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A delivery as it stands after asking for it, and whether it was there before.

    There is no record where the delivery that holds the dedupe key is in a project that the key may not see.
    """

    record: Record | None
    deduplicated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What the items of one request share."""

    refused: Container[str]
    """Webhook URLs whose names lead to a refused address."""
    missed: set[str] | None = None
    """Projects that were looked for in vain."""
    room: Room = field(default_factory=Room)
    """For bodies that templates make."""


async def create(office: Office, actor: Actor, said: Any) -> Made:
    """Accept one delivery, durably, or find the one that holds its dedupe key."""
    new = await _resolve(office, actor, said, _Request(refused=await addresses.refused(office, [said])))
    made = (await _insert(office, actor, [new]))[0]
    if isinstance(made, CampanaError):
        raise made
    return made


async def create_many(office: Office, actor: Actor, items: Sequence[Any]) -> AsyncIterator[Sequence[Made | CampanaError]]:
    """Accept many deliveries, some at a time; one result for each, in their order, and one bad item harms no other.

    An item that is an error already stays what it is. Where the database goes away in the middle, what is durable is said.
    """
    request = _Request(refused=await addresses.refused(office, items), missed=set())
    for start in range(0, len(items), _CHUNK):
        results = await _resolve_all(office, actor, items[start : start + _CHUNK], request)
        good = [result for result in results if isinstance(result, NewDelivery)]
        try:
            came: Sequence[Made | CampanaError] = await _insert(office, actor, good) if good else ()
        except (UnavailableError, TooManyError) as error:
            if start == 0:
                raise
            came = [error] * len(good)
        made = dict(zip((new.id for new in good), came, strict=True))
        yield [made[result.id] if isinstance(result, NewDelivery) else result for result in results]


async def _resolve_all(
    office: Office, actor: Actor, items: Sequence[Any], request: _Request
) -> Sequence[Made | CampanaError | NewDelivery]:
    results: list[Made | CampanaError | NewDelivery] = []
    clock, since = office.world.clock, -math.inf
    for number, said in enumerate(items):
        if number % BREATH == 0 or clock.steady() - since > LONGEST_BREATH:
            await clock.sleep(0)
            since = clock.steady()
        try:
            results.append(said if isinstance(said, CampanaError) else await _resolve(office, actor, said, request))
        except CampanaError as error:
            results.append(error)
    return results


async def _insert(office: Office, actor: Actor, new: Sequence[NewDelivery]) -> list[Made | CampanaError]:
    await ceiling.admit(office, actor, len(new))
    made = await office.intake.put(new)
    fresh = [one.due_at for one, (was_there, _) in zip(new, made, strict=True) if not was_there]
    if fresh:
        office.ring(min(fresh))
    await projects.learn(office, actor, {record.project_id for _, record in made if record is not None})
    return [_made(actor, was_there, record) for was_there, record in made]


def _made(actor: Actor, was_there: bool, record: Record | None) -> Made | CampanaError:  # noqa: FBT001 - one row of the store's answer
    if record is None:
        return TryAgainError("the delivery that held the dedupe key was deleted in this moment: try again")
    return Made(record=record if _may_see(actor, record) else None, deduplicated=was_there)


def _may_see(actor: Actor, record: Record) -> bool:
    return actor.project_id in (None, record.project_id)


async def get(office: Office, actor: Actor, delivery_id: UUID) -> Record:
    """Return one delivery of the actor's tenant."""
    record = await office.database.read(store.deliveries.get, actor.tenant_id, delivery_id)
    return await _seen(office, actor, record)


async def story(office: Office, actor: Actor, delivery_id: UUID) -> tuple[Record, Sequence[Any]]:
    """Return one delivery of the actor's tenant and its attempts, the first one first, both at the same moment."""
    record, attempts = await office.database.read(_delivery_and_attempts, actor.tenant_id, delivery_id)
    return await _seen(office, actor, record), attempts


def _delivery_and_attempts(connection: Any, tenant_id: UUID, delivery_id: UUID) -> tuple[Record | None, Sequence[Any]]:
    # The attempts first: on a server each statement sees its own moment, and no outcome may be told before its attempt.
    attempts = store.attempts.of_delivery(connection, tenant_id, delivery_id)
    return store.deliveries.get(connection, tenant_id, delivery_id), attempts


async def _seen(office: Office, actor: Actor, record: Record | None) -> Record:
    if record is None or not _may_see(actor, record):
        raise NotFoundError(NO_DELIVERY)
    await projects.learn(office, actor, {record.project_id})
    return record


async def newest(office: Office, actor: Actor, wanted: Filter, *, before: UUID | None, limit: int) -> list[Record]:
    """Return the tenant's deliveries, the newest first."""
    found = await office.database.read(store.deliveries.newest, actor.tenant_id, wanted, before=before, limit=limit)
    await projects.learn(office, actor, {record.project_id for record in found})
    return found


PATIENCE = 5.0
"""Seconds for one page, and half of it for looking through what does not match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some deliveries of a list, and after which one to go on; None at the end."""

    records: Sequence[Record]
    after: UUID | None


async def page(office: Office, actor: Actor, wanted: Filter, *, before: UUID | None, limit: int) -> Page:
    """Return a page of the tenant's deliveries, the newest first.

    What matches rarely is looked for in bounded steps and for a bounded time: a page may hold less than asked for, and go on.
    """
    clock, found = office.world.clock, list[Record]()
    until, step = clock.steady() + PATIENCE / 2, FIRST_STEP
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                wish = Window(before=before, limit=limit + 1 - len(found), size=step)
                seen = await office.database.read(store.deliveries.window, actor.tenant_id, wanted, wish)
                found += seen.records
                before, step = seen.end, min(step * 4, LAST_STEP)
                if len(found) > limit or before is None or clock.steady() > until:
                    break
    except TimeoutError:
        raise UnavailableError(f"the list was not read within {PATIENCE:g} seconds: narrow it, or try again later") from None
    if len(found) > limit:
        found, before = found[:limit], found[limit - 1].id
    await projects.learn(office, actor, {record.project_id for record in found})
    return Page(records=found, after=before)


async def cancel(office: Office, actor: Actor, delivery_id: UUID) -> tuple[Record, bool]:
    """End a waiting delivery, or request it of one under way; return it, and whether it has ended."""
    found, now = await get(office, actor, delivery_id), office.world.clock.now()
    deed = Deed(act=Act.CANCEL, actor=actor.who)
    if not await office.database.read(store.acts.is_done, delivery_id, deed, now=now):
        _refuse_final(found)
    came = await office.database.write(store.deliveries.cancel, actor.tenant_id, delivery_id, now=now, actor=actor.who)
    if came is Cancelled.UNKNOWN:
        raise NotFoundError(NO_DELIVERY)
    office.waiters.wake(delivery_id)
    record = await get(office, actor, delivery_id)
    if came is Cancelled.ALREADY_FINAL:
        _refuse_final(record)
    return record, came is Cancelled.NOW


def _refuse_final(record: Record) -> None:
    state = store.deliveries.state(record)
    if state in FINAL:
        raise AlreadyFinalError(f"the delivery has already ended as {state.word}")


async def _resolve(office: Office, actor: Actor, said: Any, request: _Request) -> NewDelivery:
    """Turn what was said into a delivery that carries all it needs; raise InvalidError with every fault."""
    # Before anything can be refused: said again, each item of a batch has the id that it had, whatever is refused by then.
    delivery_id = office.world.new_id()
    reading = read_delivery(said)
    wanted, found = reading.wanted, reading.faults
    now = office.world.clock.now()
    due_at = times.due(wanted, reading.unread, now, found)
    queue = wanted.channel if reading.unread & {"channel", "target"} else _check_target(office, wanted, found, request.refused)
    expires_at = _expiry(wanted, due_at, found)
    project_id = await projects.resolve(office, actor, wanted.project, found, missed=request.missed)
    instants_of_it = {"scheduled_for": due_at, "due_at": due_at, "expires_at": expires_at, "created_at": now}
    payload = _body(reading, instants_of_it, delivery_id, request.room)
    if found:
        raise InvalidError(*found[:MOST_FAULTS])
    resolved = _policies(office, wanted)
    return NewDelivery(
        id=delivery_id,
        tenant_id=actor.tenant_id,
        project_id=project_id,
        queue=queue,
        channel=wanted.channel,
        target=compact(wanted.target).decode(),
        payload=payload,
        policies=policies.dump(resolved),
        max_attempts=resolved.retry.max_attempts,
        scheduled_for=due_at,
        due_at=due_at,
        created_at=now,
        priority=PRIORITIES[wanted.priority],
        labels=wanted.labels,
        recipient=wanted.recipient,
        dedupe_key=wanted.dedupe_key,
        expires_at=expires_at,
    )


def _body(
    reading: Reading[DeliveryWanted], its_times: Mapping[str, datetime | None], delivery_id: UUID, room: Room
) -> bytes | None:
    """Return the bytes that every attempt sends: the payload, or what the template makes of it."""
    wanted, found = reading.wanted, reading.faults
    payload = None if wanted.payload is None else compact(wanted.payload)
    if payload is not None and len(payload) > LARGEST_PAYLOAD:
        found.append(_fault("/payload", "too_large", f"expected at most {LARGEST_PAYLOAD} bytes, got {len(payload)}"))
        return payload
    template = rendering.read(wanted.target, found) if wanted.channel == "webhook" else None
    # What could not be read would be blamed a second time, as something that is missing.
    if template is None or reading.unread or any(fault.pointer == "/timezone" for fault in found):
        return payload
    try:
        body = rendering.fill(template, wanted, its_times, delivery_id)
        room.take(len(body))
    except InvalidError as error:
        found += error.faults
        return payload
    return body


def compact(value: Any) -> bytes:
    """Return JSON without blanks: these very bytes are kept, signed and sent."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _fault(pointer: str, code: str, detail: str) -> Fault:
    return Fault(pointer=pointer, code=code, detail=detail)


def _expiry(wanted: DeliveryWanted, due_at: datetime, found: list[Fault]) -> datetime | None:
    if wanted.expires_at is not None and wanted.expires_after is not None:
        found.append(_fault("/expires_after", "conflict", "give either `expires_at` or `expires_after`"))
    expires_at = instants.parse(wanted.expires_at) if wanted.expires_at is not None else None
    if wanted.expires_after is not None:
        expires_at = min(due_at + durations.parse(wanted.expires_after), instants.LAST)
    if wanted.expires_at is not None and expires_at is not None and expires_at <= due_at:
        found.append(_fault("/expires_at", "before_due", "expected an instant after the delivery is due"))
    if wanted.late == "skip":
        expires_at = min(expires_at or instants.LAST, due_at + times.NOW_MEANS)
    return expires_at


def _check_target(office: Office, wanted: DeliveryWanted, found: list[Fault], refused: Container[str]) -> str:
    target: Mapping[str, Any] = wanted.target
    match wanted.channel:
        case "webhook":
            said = webhook.validate(target, office.rules)
            found += [_fault(f"/target{pointer}", code, detail) for pointer, code, detail in said]
            if target.get("url") in refused:
                found.append(_fault("/target/url", "address_refused", netguard.REFUSED))
        case "python":
            name = target.get("handler")
            if not isinstance(name, str) or not 0 < len(name) <= 80:  # noqa: PLR2004 - a queue's name holds it
                found.append(_fault("/target/handler", "required", "expected the name of a handler, up to 80 characters"))
            found += _unknown(target, {"handler", "timeout"})
            _check_timeout(target, found)
            return f"python:{name}"
        case "log":
            if not isinstance(target.get("message", ""), str):
                found.append(_fault("/target/message", "wrong_type", "expected text; anything else fits in `payload`"))
            found += _unknown(target, {"message"})
    return wanted.channel


def _check_timeout(target: Mapping[str, Any], found: list[Fault]) -> None:
    said = target.get("timeout", "15m")
    try:
        if not isinstance(said, str) or not timedelta(0) < durations.parse(said) <= LONGEST_HANDLING:
            found.append(_fault("/target/timeout", "duration", "expected a duration such as 30s, up to 15m"))
    except ValueError as error:
        found.append(_fault("/target/timeout", "duration", str(error)))


def _unknown(target: Mapping[str, Any], known: set[str]) -> list[Fault]:
    names = [
        name.replace("~", "~0").replace("/", "~1") for name in islice((one for one in target if one not in known), MOST_FAULTS)
    ]
    return [_fault(f"/target/{name}", "unknown_field", "there is no such field") for name in names]


def _policies(office: Office, wanted: DeliveryWanted) -> Policies:
    said = {} if wanted.retry is None else wanted.retry.model_dump(exclude_none=True)
    if "base" in said and "cap" not in said and durations.parse(said["base"]) > office.retry.cap:
        said["cap"] = said["base"]
    contract = CONTRACTS[wanted.channel]
    return Policies(
        retry=policies.retry_from(said, office.retry),
        on_ambiguous=OnAmbiguous(wanted.on_ambiguous or contract.on_ambiguous),
    )
