"""Requests that carry an `Idempotency-Key`: who carries one out, and what it was answered.

A row is written before the work. It holds a random seed from which every id of the work is made, and the instant at which
the work believes to be: whoever does it again, after a crash, makes the same rows under the same ids and finds them there.
So the work needs no transaction in common with the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, delete, insert, select, update

from campana.store import dialects
from campana.store.schema import idempotency_keys, idempotency_pieces

KEPT = timedelta(hours=24)
"""How long an answer is given again."""
PIECE = 1 << 20
"""Bytes of an answer in one row: more than that, and MariaDB's packets are too small for it."""
_c, _p = idempotency_keys.c, idempotency_pieces.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Somebody who wants to carry out a request; `id` is theirs alone, `place` is where the key is unique."""

    id: UUID
    tenant_id: UUID
    place: bytes
    fingerprint: bytes
    seed: bytes
    actor: str
    now: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """It is the asker's to carry out: as this actor, at this instant, with ids from this seed."""

    id: UUID
    seed: bytes
    actor: str
    began_at: datetime
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """It was carried out before, and this was the answer."""

    status: int
    headers: str
    body: bytes
    seed: bytes = field(default=b"", compare=False, repr=False)


class Refused(Enum):
    """Why it is neither."""

    OTHER_BODY = "the key was used for another request"
    RUNNING = "somebody is at it"


def take(connection: Connection, asking: Asking) -> Held | Answered | Refused:
    """Let one asker at a time carry out a request; run again, it says the same."""
    dialect = dialects.of(connection)
    mine = (_c.tenant_id == asking.tenant_id, _c.place == asking.place)
    connection.execute(dialect.insert_absent(idempotency_keys, "id"), _row(asking))
    row = connection.execute(dialect.locked(select(idempotency_keys).where(*mine))).first()
    if row is not None and row.id != asking.id and _is_over(row, asking.now):
        _forget(connection, row.id)
        connection.execute(insert(idempotency_keys), _row(asking))
        row = connection.execute(select(idempotency_keys).where(*mine)).one()
    if row is None:
        # Forgotten between the insert and this look: it is as if it were still there.
        return Refused.RUNNING
    return _found(connection, row, asking)


def _found(connection: Connection, row: Row[Any], asking: Asking) -> Held | Answered | Refused:
    if row.fingerprint != asking.fingerprint:
        return Refused.OTHER_BODY
    if row.status is not None:
        return Answered(status=row.status, headers=row.headers, body=_body(connection, row), seed=bytes(row.seed))
    if row.holder != asking.id:
        if row.held_until > asking.now:
            return Refused.RUNNING
        connection.execute(update(idempotency_keys).where(_c.id == row.id).values(holder=asking.id, held_until=asking.until))
    return Held(id=row.id, seed=row.seed, actor=row.actor, began_at=row.created_at, is_first=row.id == asking.id)


def _is_over(row: Row[Any], now: datetime) -> bool:
    return bool(row.created_at <= now - KEPT) and (row.status is not None or row.held_until <= now)


def _row(asking: Asking) -> dict[str, Any]:
    return {
        "id": asking.id,
        "tenant_id": asking.tenant_id,
        "place": asking.place,
        "fingerprint": asking.fingerprint,
        "seed": asking.seed,
        "actor": asking.actor,
        "created_at": asking.now,
        "holder": asking.id,
        "held_until": asking.until,
    }


def _body(connection: Connection, row: Row[Any]) -> bytes:
    rest = connection.execute(select(_p.piece).where(_p.key_id == row.id).order_by(_p.n)).scalars()
    return b"".join((bytes(row.body or b""), *map(bytes, rest)))


def finish(connection: Connection, key_id: UUID, holder: UUID, answer: Answered) -> bool:
    """Keep the answer; False where somebody else has taken the request over, who will say the same."""
    row = _locked(connection, key_id)
    if row is None or row.holder != holder:
        return False
    if row.status is None:
        pieces = [answer.body[start : start + PIECE] for start in range(0, len(answer.body), PIECE)]
        for n, piece in enumerate(pieces[1:], 1):
            connection.execute(insert(idempotency_pieces), {"key_id": key_id, "n": n, "piece": piece})
        said = {"status": answer.status, "headers": answer.headers, "body": pieces[0] if pieces else b""}
        connection.execute(update(idempotency_keys).where(_c.id == key_id).values(**said))
    return True


def give_back(connection: Connection, key_id: UUID, holder: UUID, *, now: datetime, forget: bool) -> None:
    """End a hold without an answer: the next asker goes on from the same seed, or begins anew where nothing was done."""
    row = _locked(connection, key_id)
    if row is None or row.holder != holder or row.status is not None:
        return
    if forget:
        _forget(connection, key_id)
    else:
        connection.execute(update(idempotency_keys).where(_c.id == key_id).values(held_until=now))


def _locked(connection: Connection, key_id: UUID) -> Row[Any] | None:
    query = select(_c.holder, _c.status).where(_c.id == key_id)
    return connection.execute(dialects.of(connection).locked(query)).first()


def _forget(connection: Connection, key_id: UUID) -> None:
    connection.execute(delete(idempotency_pieces).where(_p.key_id == key_id))
    connection.execute(delete(idempotency_keys).where(_c.id == key_id))


def said(headers: Mapping[str, str]) -> str:
    """Return headers as they are kept."""
    return dialects.json_text(dict(headers))
