"""Requests that are carried out once however often they are sent: the first answer is kept and given again.

What a request makes is named from a seed that was durable before it began. So a request that was carried out in part, or
whole and never answered, is simply carried out again: it finds what it made.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from campana import sealing, store, world
from campana.errors import (
    CampanaError,
    ForbiddenError,
    InProgressError,
    InvalidError,
    KeyReusedError,
    NotFoundError,
    TooLargeError,
    TooManyError,
    TryAgainError,
    UnavailableError,
)
from campana.operations.intake import Intake
from campana.operations.office import Actor, Office
from campana.store.idempotency import Answered, Asking, Held, Refused

HOLD = timedelta(seconds=60)
"""How long nobody else may carry a request out: who takes longer is thought dead, and both do the same."""
WITHOUT_EFFECT = (InvalidError, NotFoundError, ForbiddenError, TooLargeError, TooManyError, TryAgainError)
"""What is said before anything is done: the key is as good as new."""
_SMALL = 16_384
"""Bytes that are packed at once; more in a thread, since others wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a face answers, and whether that is the end of it: in a batch some items may be worth another try."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True
    is_replayed: bool = False


Work = Callable[[Office, Actor], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request by its key, where it went, and a digest of what it said."""

    key: str
    where: str
    fingerprint: bytes


async def once(office: Office, actor: Actor, request: Request, work: Work) -> Answer:
    """Carry a request out unless it was before; return its first answer."""
    me = office.world.new_id()
    came = await office.database.write(store.idempotency.take, _asking(office, actor, request, me))
    match came:
        case Answered():
            return await _again(office, came)
        case Refused.OTHER_BODY:
            raise KeyReusedError("this `Idempotency-Key` was used for another request: expected the same one, or a fresh key")
        case Refused.RUNNING:
            raise InProgressError("the first request with this `Idempotency-Key` is still being carried out: ask again")
    try:
        answer = await work(*_same(office, actor, came))
    except BaseException as error:
        # Forgotten only by whoever was first: who repeats can't know that nothing is there.
        forget = came.is_first and isinstance(error, WITHOUT_EFFECT)
        await _give_back(office, came, me, forget=forget)
        raise
    await _keep(office, came, me, answer)
    return answer


def _asking(office: Office, actor: Actor, request: Request, me: UUID) -> Asking:
    # Keys of different projects never meet, nor do those who may rule the installation and those who may not.
    apart = [str(actor.project_id), actor.may("installation"), request.where, request.key]
    now = office.world.clock.now()
    return Asking(
        id=me,
        tenant_id=actor.tenant_id,
        place=hashlib.sha256(json.dumps(apart).encode()).digest(),
        fingerprint=request.fingerprint,
        seed=office.world.chance.token(32),
        actor=actor.who,
        now=now,
        until=now + HOLD,
    )


def _same(office: Office, actor: Actor, held: Held) -> tuple[Office, Actor]:
    """Return office and actor as they were when the request first came."""
    seed = _secret(office, b"names", held.seed)
    then = world.again(office.world, at=held.began_at, seed=seed, first=held.id)
    # Alone: what was there before the request came again is told from what is new by whole transactions.
    alone = Intake(office.database, then.clock, together=1)
    return dataclasses.replace(office, world=then, intake=alone), dataclasses.replace(actor, name=held.actor)


async def _keep(office: Office, held: Held, me: UUID, answer: Answer) -> None:
    if not answer.is_whole:
        await _give_back(office, held, me, forget=False)
        return
    body = await _apart(len(answer.body), _pack, _secret(office, b"answer", held.seed), answer.body)
    kept = Answered(status=answer.status, headers=store.idempotency.said(answer.headers), body=body)
    try:
        await office.database.write(store.idempotency.finish, held.id, me, kept)
    except CampanaError as error:
        # What was done is durable. Who asks again in a minute finds it, and the same answer.
        office.telemetry.emit(logging.WARNING, "idempotency.not_kept", error=str(error)[:300])


async def _give_back(office: Office, held: Held, me: UUID, *, forget: bool) -> None:
    now = office.world.clock.now()
    # If it can't be given back now, the hold ends by itself.
    with contextlib.suppress(UnavailableError):
        await office.database.write(store.idempotency.give_back, held.id, me, now=now, forget=forget)


async def _again(office: Office, kept: Answered) -> Answer:
    body = await _apart(len(kept.body), _unpack, _secret(office, b"answer", kept.seed), kept.body)
    if body is None:
        raise KeyReusedError("the answer was kept under another SECRET_KEY and can't be read: expected a fresh key")
    return Answer(status=kept.status, headers=json.loads(kept.headers), body=body, is_replayed=True)


def _secret(office: Office, purpose: bytes, seed: bytes) -> bytes:
    return hmac.digest(office.secret, b"idempotency " + purpose + seed, "sha256")


# An answer may hold what is shown only once, so each is kept sealed, under a key of its own.


def _pack(secret: bytes, body: bytes) -> bytes:
    return sealing.seal_once(secret, zlib.compress(body, 1))


def _unpack(secret: bytes, kept: bytes) -> bytes | None:
    packed = sealing.open_once(secret, kept)
    return None if packed is None else zlib.decompress(packed)


T = TypeVar("T")


async def _apart(size: int, work: Callable[[bytes, bytes], T], secret: bytes, body: bytes) -> T:
    return await asyncio.to_thread(work, secret, body) if size > _SMALL else work(secret, body)
