"""`Idempotency-Key`: read, and what comes under it answered once. A request without one passes untouched."""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response

from campana import operations
from campana.errors import AlreadyFinalError, ConflictError, UnreadableError
from campana.operations.idempotency import Answer
from campana.operations.office import Actor, Office
from campana.web import bodies, problems

Work = Callable[[Office, Actor], Awaitable[Response]]
LONGEST = 255
_OF_INTEREST = ("content-type", "location", "etag")
_BARE = re.compile(r"[!#-~](?:[ -~]*[!-~])?")
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')


class Unfinished(Response):
    """An answer that is not the last word: asked again under its key, the request is carried on."""


def key_of(request: Request) -> str | None:
    """Return the key, bare or as a quoted string, or None; both spellings name the same key."""
    said = request.headers.getlist("idempotency-key")
    if not said:
        return None
    text = said[0].strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    if len(said) > 1 or len(key) > LONGEST or not (quoted or _BARE.fullmatch(text)):
        raise UnreadableError(f"expected one `Idempotency-Key` of 1 to {LONGEST} printable ASCII characters, bare or quoted")
    return key


async def once(request: Request, who: tuple[Office, Actor], said: Any, work: Work) -> Response:
    """Answer a request whose body said this; under a key, as it was answered the first time."""
    office, actor = who
    key = key_of(request)
    if key is None:
        return await work(office, actor)
    asked = operations.idempotency.Request(
        key=key, where=f"{request.method} {request.url.path}", fingerprint=await _fingerprint(office, request, said)
    )

    async def answered(office: Office, actor: Actor) -> Answer:
        try:
            response = await work(office, actor)
        except ConflictError as error:
            if type(error) not in {ConflictError, AlreadyFinalError}:
                raise
            response = problems.response(error)
        headers = {name: response.headers[name] for name in _OF_INTEREST if name in response.headers}
        is_whole = not isinstance(response, Unfinished)
        return Answer(status=response.status_code, headers=headers, body=bytes(response.body), is_whole=is_whole)

    answer = await operations.idempotency.once(office, actor, asked, answered)
    headers = dict(answer.headers) | ({"idempotency-replayed": "true"} if answer.is_replayed else {})
    if answer.status >= 400:  # noqa: PLR2004 - as every problem is answered
        headers["cache-control"] = "no-store"
    return Response(answer.body, status_code=answer.status, headers=headers)


async def _fingerprint(office: Office, request: Request, said: Any) -> bytes:
    """Return a digest of what was said, whatever its spelling: order of names, blanks, escapes."""
    digest = hashlib.sha256(bodies.kind(request).encode() if said is not None else b"")
    for number, one in enumerate(said if isinstance(said, list) else [said]):
        if number % operations.deliveries.BREATH == 0:
            await office.world.clock.sleep(0)
        text = one if isinstance(one, bytes) else json.dumps(one, sort_keys=True, ensure_ascii=False, default=str).encode()
        digest.update(b"\n" + text)
    return digest.digest()
