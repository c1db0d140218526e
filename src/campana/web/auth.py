"""Who is asking: the bearer key of a request, turned into an actor."""

import base64
import hmac
from uuid import UUID

from fastapi import Request

from campana.errors import ForbiddenError, UnauthenticatedError
from campana.operations import keys
from campana.operations.office import Actor, Office

REMEMBERED = 5.0
_MOST = 10_000


class Doorkeeper:
    """Knows the keys of the last few seconds, so that not every request asks the database; a revoked one lives no longer."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._known: dict[bytes, tuple[float, Actor]] = {}

    async def admit(self, request: Request, scope: str) -> Actor:
        """Return the actor of a request that may do this, or raise."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not text:
            raise UnauthenticatedError(keys.REFUSED)
        actor = await self._actor(text)
        if not actor.may(scope):
            raise ForbiddenError(
                f"expected a key with the scope `{scope}`, got one with {' '.join(sorted(actor.scopes)) or 'none'}"
            )
        return actor

    async def _actor(self, text: str) -> Actor:
        now, seen = self._office.world.clock.steady(), keys.digest(text)
        known = self._known.get(seen)
        if known is not None and now - known[0] < REMEMBERED:
            return known[1]
        actor = await keys.authenticate(self._office, text)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[seen] = (now, actor)
        return actor


async def admit(request: Request, scope: str) -> tuple[Office, Actor]:
    """Return what a route works with: the office, and an actor who may do this."""
    actor = await request.app.state.doorkeeper.admit(request, scope)
    office: Office = request.app.state.office
    return office, actor


def cursor(office: Office, actor: Actor, asked: bytes, last: UUID) -> str:
    """Return an opaque cursor that only this tenant can use, and only with what it asked."""
    return base64.urlsafe_b64encode(last.bytes + _seal(office, actor, asked, last)).decode()


def read_cursor(office: Office, actor: Actor, asked: bytes, text: str) -> UUID:
    """Return where a cursor points; raise ValueError for one that was not made for this tenant and these filters."""
    try:
        said = base64.b64decode(text, altchars=b"-_", validate=True)
        last = UUID(bytes=said[:16])
    except ValueError:
        said, last = b"", UUID(int=0)
    if not hmac.compare_digest(said[16:], _seal(office, actor, asked, last)):
        message = f"expected a `next_cursor` of this list, with the filters that it came from, got {text[:60]!r}"
        raise ValueError(message)
    return last


def _seal(office: Office, actor: Actor, asked: bytes, last: UUID) -> bytes:
    return hmac.digest(office.secret, b"cursor" + actor.tenant_id.bytes + last.bytes + asked, "sha256")[:8]
