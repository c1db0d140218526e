"""The ledger: what was sent to whom about what. Its unique key makes 'never twice' a fact of the database.

A claim is a row under a token of the claimer's. It stands for good (`sent_at`), for as long as a lease (`held_until`), or for
as long as the delivery that holds it. Quotas are claims too: the n-th of so many that one recipient may get in a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, delete, insert, or_, select, update

from campana.store import dialects
from campana.store.schema import ledger

_c = ledger.c
_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Who is told what: the values are the caller's own."""

    tenant_id: UUID
    entity_type: str
    entity_id: str
    reminder_type: str
    user_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A wish to be the first: under this token, for good unless a lease or a delivery holds it."""

    token: UUID
    key: Key
    held_until: datetime | None = None
    delivery_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether this claim was the first, and else what is known of the one that was."""

    first: bool
    sent_at: datetime | None = None
    held_until: datetime | None = None
    delivery_id: UUID | None = None


def claim(connection: Connection, wanted: Sequence[Claim], *, now: datetime) -> list[Answer]:
    """Claim each key unless it is taken; a lease that has ended is no obstacle. Exactly one claimer is first, in any race."""
    if not wanted:
        return []
    dialect = dialects.of(connection)
    # In the order of their keys, so that two batches never wait for each other in a circle.
    in_order = sorted(wanted, key=lambda one: _tuple(one.key))
    new = dialect.insert_telling(connection, ledger, [_row(one, now) for one in in_order])
    told = [one for one in wanted if one.token not in new]
    mine = _by_token(connection, [one.token for one in told]) if told else {}
    lost = [one for one in in_order if one.token not in new and one.token not in mine]
    holders = {} if not lost else _take_over(connection, lost, now)
    answers = []
    for one in wanted:
        if one.token in new:
            answers.append(Answer(first=True, sent_at=_sent_at(one, now)))
            continue
        row = mine.get(one.token) or holders[_tuple(one.key)]
        is_first = row.id == one.token
        said = {} if is_first else {"held_until": row.held_until, "delivery_id": row.delivery_id}
        answers.append(Answer(first=is_first, sent_at=row.sent_at, **said))
    return answers


def confirm(connection: Connection, token: UUID, *, now: datetime) -> bool:
    """Make a held claim stand for good; False if another one has its key by now, or nobody."""
    row = connection.execute(dialects.of(connection).locked(select(ledger).where(_c.id == token))).first()
    if row is None:
        return False
    if row.sent_at is None:
        connection.execute(update(ledger).where(_c.id == token).values(sent_at=now, held_until=None))
    return True


def release(connection: Connection, tokens: Sequence[UUID]) -> int:
    """Give claims back that were not confirmed; return how many."""
    held = (_c.id.in_(tokens), _c.sent_at.is_(None))
    return connection.execute(delete(ledger).where(*held)).rowcount if tokens else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """At most so many to one recipient in one window, by name."""

    tenant_id: UUID
    name: str
    recipient: str
    window: str
    most: int


def claim_quota(connection: Connection, quota: Quota, token: UUID, *, delivery_id: UUID, now: datetime) -> bool:
    """Take one of a quota's places for a delivery; False if all are taken. Two at once never take the same one."""
    if _by_token(connection, [token]):
        return True
    while (place := _first_free(connection, quota)) is not None:
        key = _place(quota, place)
        (answer,) = claim(connection, [Claim(token=token, key=key, delivery_id=delivery_id)], now=now)
        if answer.first:
            return True
    return False


def _place(quota: Quota, number: int) -> Key:
    return Key(
        tenant_id=quota.tenant_id,
        entity_type="quota",
        entity_id=quota.recipient,
        reminder_type=f"{quota.name}/{quota.window}",
        user_id=str(number),
    )


def _first_free(connection: Connection, quota: Quota) -> int | None:
    key = _place(quota, 0)
    every = _where(key)[:-1]
    taken = {int(user_id) for user_id in connection.execute(select(_c.user_id).where(*every)).scalars()}
    return next((number for number in range(1, quota.most + 1) if number not in taken), None)


def _sent_at(one: Claim, now: datetime) -> datetime | None:
    return now if one.held_until is None and one.delivery_id is None else None


def _row(one: Claim, now: datetime) -> dict[str, Any]:
    return {
        "id": one.token,
        "tenant_id": one.key.tenant_id,
        "entity_type": one.key.entity_type,
        "entity_id": one.key.entity_id,
        "reminder_type": one.key.reminder_type,
        "user_id": one.key.user_id,
        "claimed_at": now,
        "held_until": one.held_until,
        "sent_at": _sent_at(one, now),
        "delivery_id": one.delivery_id,
    }


def _tuple(key: Key) -> tuple[UUID, str, str, str, str]:
    return (key.tenant_id, key.entity_type, key.entity_id, key.reminder_type, key.user_id)


def _where(key: Key) -> list[Any]:
    return [
        _c.tenant_id == key.tenant_id,
        _c.entity_type == key.entity_type,
        _c.entity_id == key.entity_id,
        _c.reminder_type == key.reminder_type,
        _c.user_id == key.user_id,
    ]


def _by_token(connection: Connection, tokens: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    query = select(ledger).where(dialects.of(connection).among(_c.id, "ids"))
    return {row.id: row for row in connection.execute(query, {"ids": list(tokens)})}


def _take_over(connection: Connection, lost: Sequence[Claim], now: datetime) -> dict[tuple[UUID, str, str, str, str], Row[Any]]:
    """Take the keys whose lease has ended; return who has each key now."""
    dialect = dialects.of(connection)
    holders: dict[tuple[UUID, str, str, str, str], Row[Any]] = {}
    for start in range(0, len(lost), _CHUNK):
        chunk = lost[start : start + _CHUNK]
        theirs = or_(*(and_(*_where(one.key)) for one in chunk))
        query = dialect.locked(select(ledger).where(theirs).order_by(_c.id))
        for row in connection.execute(query):
            holders[row.tenant_id, row.entity_type, row.entity_id, row.reminder_type, row.user_id] = row
        for one in chunk:
            key = _tuple(one.key)
            holder = holders.get(key)
            if holder is None or (holder.sent_at is None and holder.held_until is not None and holder.held_until <= now):
                # Given back between the insert and this look, or its lease has ended: now it is locked, or nobody has it.
                connection.execute(delete(ledger).where(*_where(one.key)))
                connection.execute(insert(ledger), _row(one, now))
                holders[key] = _by_token(connection, [one.token])[one.token]
    return holders
