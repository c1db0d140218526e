"""Versions: one number for each thing that engines cache, which rises in the transaction that changes the thing."""

from collections.abc import Mapping

from sqlalchemy import Connection, select, update

from campana.store import dialects
from campana.store.schema import versions

_c = versions.c


def lock(connection: Connection, name: str) -> None:
    """Let nobody else change what goes by this name until this transaction has ended."""
    dialect = dialects.of(connection)
    connection.execute(dialect.insert_absent(versions, "name"), {"name": name, "number": 0})
    connection.execute(dialect.locked(select(versions).where(_c.name == name)))


def rise(connection: Connection, name: str) -> None:
    """Say that what goes by this name has changed: engines read it anew with their next tick."""
    connection.execute(dialects.of(connection).insert_absent(versions, "name"), {"name": name, "number": 0})
    connection.execute(update(versions).where(_c.name == name).values(number=_c.number + 1))


def every(connection: Connection) -> Mapping[str, int]:
    """Return the number of each; what never changed has none."""
    return {row.name: row.number for row in connection.execute(select(versions))}
