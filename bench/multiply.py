"""Many rows from one: copied by the database itself, twice as many with each statement."""

from __future__ import annotations

from sqlalchemy import Connection, text

from campana.store.database import Database
from campana.store.schema import deliveries

MOST = 200_000
"""Rows that one statement copies: more would take longer than statements may."""
_FRESH = {"postgresql": "gen_random_uuid()", "mysql": "unhex(replace(uuid(), '-', ''))", "sqlite": "randomblob(16)"}


async def multiply(database: Database, count: int) -> None:
    """There are so many rows, each with an id of its own and due a microsecond after the one before; planners know it."""
    have = 1
    while have < count:
        have += await database.write(_copy, have, min(have, count - have, MOST))
    await database.write(_analyze)


def _copy(connection: Connection, have: int, wanted: int) -> int:
    names = [column.name for column in deliveries.c if column.name not in {"id", "wake_at"}]
    fresh = _FRESH[connection.dialect.name]
    copied = (
        f"insert into deliveries (id, wake_at, {', '.join(names)}) select {fresh}, wake_at + {have}, {', '.join(names)}"
        f" from deliveries limit {wanted}"
    )
    return connection.execute(text(copied)).rowcount


def _analyze(connection: Connection) -> None:
    connection.execute(text("analyze table deliveries" if connection.dialect.name == "mysql" else "analyze"))
