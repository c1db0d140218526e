"""What the database says, read without the product: rows become the judge's values."""

from __future__ import annotations

import sqlite3
from typing import Any
from uuid import UUID

import sqlalchemy

from tests import databases
from tests.chaos.judge import STATES, Attempt, Delivery


def ask(url: str, question: str) -> list[Any]:
    """The rows of one query."""
    if not url.startswith("sqlite"):
        return databases.ask(url, question)
    connection = sqlite3.connect(str(sqlalchemy.make_url(url).database), timeout=10)
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


def unfinished(url: str) -> int:
    """How many deliveries have not come to an end."""
    count: int = ask(url, "SELECT count(*) FROM deliveries WHERE state < 4")[0][0]
    return count


def deliveries(url: str) -> list[Delivery]:
    found = ask(
        url,
        "SELECT id, state, dedupe_key, reason, due_at, wake_at, finished_at, lease_owner, attempt_count,"
        " ambiguous_attempts, max_attempts FROM deliveries",
    )
    return [
        Delivery(
            id=_id(row[0]),
            state=STATES[row[1]],
            dedupe_key=row[2].decode() if isinstance(row[2], bytes) else row[2],
            reason=row[3],
            due_at=row[4] / 1e6,
            wake_at=None if row[5] is None else row[5] / 1e6,
            finished_at=None if row[6] is None else row[6] / 1e6,
            is_owned=row[7] is not None,
            attempt_count=row[8],
            ambiguous_attempts=row[9],
            max_attempts=row[10],
        )
        for row in found
    ]


def attempts(url: str) -> list[Attempt]:
    found = ask(
        url,
        "SELECT delivery_id, fence, worker, key_number, started_at, outcome, ambiguous, late, reason, error FROM attempts",
    )
    return [
        Attempt(
            delivery_id=_id(row[0]),
            fence=row[1],
            worker=_id(row[2]),
            key_number=row[3],
            started_at=row[4] / 1e6,
            outcome=row[5],
            ambiguous=bool(row[6]),
            late=bool(row[7]),
            reason=row[8],
            error=row[9],
        )
        for row in found
    ]


def _id(value: Any) -> str:
    return str(UUID(bytes=bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else UUID(str(value)))
