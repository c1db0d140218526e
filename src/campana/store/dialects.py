"""The seam: what differs between SQLite, PostgreSQL and MySQL or MariaDB, and nothing else that does.

The steps of every store function are the same everywhere; where one database needs other words, the function asks here.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Insert,
    Select,
    Table,
    any_,
    bindparam,
    func,
    literal,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.sql.dml import ReturningInsert

_COUNTED: Mapping[str, Any] = {"preserve_rowcount": True}


class Dialect:
    """SQLite, and what the others share with it."""

    name: ClassVar[str] = "sqlite"
    begin: ClassVar[str | None] = "begin immediate"
    skip_locked: ClassVar[str] = ""
    clock: ClassVar[str | None] = None
    """SQL for the server's microseconds since 1970; None where the file has no clock but this machine's."""
    has_returning: ClassVar[bool] = True
    has_partial: ClassVar[bool] = True
    """Indexes may hold some of the rows only."""
    position: ClassVar[str] = "instr"
    """Where a text begins in another one, from 1, byte for byte; 0 if it does not."""
    send_at: ClassVar[str] = "wake_at"
    timer_at: ClassVar[str] = "wake_at"
    sends_index: ClassVar[str] = "deliveries"
    timers_index: ClassVar[str] = "deliveries"
    fair_index: ClassVar[str] = "deliveries"
    fair_window: ClassVar[int] = 64
    """Tenants that a fair claim asks: each costs a probe of an index for each priority."""
    # What another process, a full disk or an unplugged one causes, and what may pass.
    passing: ClassVar = frozenset(
        {
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_CANTOPEN,
        }
    )
    suspect_at: ClassVar[str] = "wake_at"
    suspects_index: ClassVar[str] = "deliveries"

    def locked(self, query: Select[Any]) -> Select[Any]:
        """Return the query so that it locks what it finds; SQLite's one writer needs no lock."""
        return query if self.begin else query.with_for_update()

    def branch(self, query: str) -> str:
        """Return a query that orders and limits, as one branch of a UNION."""
        return f"select * from ({query})"

    def among(self, column: Column[Any], name: str) -> ColumnElement[bool]:
        """Return that the column holds one of the values of a parameter."""
        return column.in_(bindparam(name, expanding=True))

    def below(self, first: Column[Any], value: UUID, second: Column[Any], bound: UUID) -> list[ColumnElement[bool]]:
        """Return that the first column is this value and the second below the bound, for a walk down an index of both."""
        return [first == value, second < bound]

    def insert_all(self, connection: Connection, into: Insert, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert rows, all of which name the columns that the first one names; return how many, where the driver tells."""
        return connection.execute(into, rows, execution_options=_COUNTED).rowcount

    def insert_new(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Insert those of a batch whose keys are free; False if it did nothing, as when the same batch was inserted before."""
        return self.insert_all(connection, self.insert_absent(table, "id"), rows) > 0

    def insert_telling(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> frozenset[Any]:
        """Insert the rows whose keys are not there; return the ids of those that surely are new, which may be none."""
        self.insert_all(connection, self.insert_absent(table, "id"), rows)
        return frozenset()

    def insert_absent(self, table: Table, *key: str) -> Insert:
        """Return an INSERT that leaves a row alone whose key is there; whose row it is must be read back."""
        del key
        return sqlite.insert(table).on_conflict_do_nothing()

    def is_transient(self, error: BaseException) -> bool:
        """Say whether the whole transaction may simply be run again."""
        original = _original(error)
        return isinstance(original, sqlite3.OperationalError) and original.sqlite_errorcode & 0xFF in self.passing

    def is_connection_lost(self, error: BaseException) -> bool:
        """Say whether the connection, and with it the transaction, is gone."""
        return isinstance(error, DBAPIError) and error.connection_invalidated


class PostgreSQL(Dialect):
    """PostgreSQL 13 or later, by asyncpg."""

    name = "postgresql"
    begin = None
    fair_window = 256
    skip_locked = "for update skip locked"
    clock = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
    position = "strpos"
    # Serialization failure, deadlock, lock not available, a statement that took too long; what a server says while it stops or
    # starts, is full or read-only.
    transient: ClassVar = frozenset(
        {"40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03", "53100", "53200", "53300", "25006", "08006", "08003"}
    )

    def among(self, column: Column[Any], name: str) -> ColumnElement[bool]:
        """Return `= any(array)`: one statement for any number of values, where each length of an IN is prepared anew."""
        return column == any_(bindparam(name, type_=postgresql.ARRAY(column.type)))

    def below(self, first: Column[Any], value: UUID, second: Column[Any], bound: UUID) -> list[ColumnElement[bool]]:
        """Return it as one comparison of both: else, without statistics, all that is below is gathered and sorted first."""
        return [tuple_(first, second) < tuple_(literal(value, first.type), literal(bound, second.type)), first >= value]

    def insert_all(self, connection: Connection, into: Insert, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert from one array a column: a third of what it costs the two sides to handle each row by itself."""
        first, *others = rows[0]
        if all(row[name] == rows[0][name] for name in others for row in rows):
            # They differ in the first column alone, as events of one kind do: what they share goes over once.
            said = {**rows[0], first: [row[first] for row in rows]}
            return connection.execute(_from_arrays(into, (first,), tuple(others)), said, execution_options=_COUNTED).rowcount
        said = {name: [row[name] for row in rows] for name in rows[0]}
        return connection.execute(_from_arrays(into, tuple(said)), said, execution_options=_COUNTED).rowcount

    def insert_telling(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> frozenset[Any]:
        """Let the INSERT tell which are new."""
        names = tuple(rows[0])
        into = _telling(table, names)
        return frozenset(connection.execute(into, {name: [row[name] for row in rows] for name in names}).scalars())

    def insert_absent(self, table: Table, *key: str) -> Insert:
        """Return INSERT ... ON CONFLICT DO NOTHING."""
        del key
        return _absent(table)

    def is_transient(self, error: BaseException) -> bool:
        """Read the SQLSTATE; a connection that can't be made is transient too."""
        if getattr(_original(error), "sqlstate", None) in self.transient:
            return True
        return _is_unreachable(error)

    def is_connection_lost(self, error: BaseException) -> bool:
        """Count a server that shuts down as lost too."""
        sqlstate = getattr(_original(error), "sqlstate", None) or ""
        return super().is_connection_lost(error) or sqlstate.startswith(("08", "57P", "25P03")) or _is_unreachable(error)


@lru_cache
def _absent(table: Table) -> Insert:
    # One object for each table, since what is made from it is looked up by it.
    return postgresql.insert(table).on_conflict_do_nothing()


@lru_cache
def _from_arrays(into: Insert, names: Sequence[str], shared: Sequence[str] = ()) -> Insert:
    c = into.table.c
    arrays = [func.unnest(bindparam(name, type_=postgresql.ARRAY(c[name].type))) for name in names]
    return into.from_select([*names, *shared], select(*arrays, *(bindparam(name, type_=c[name].type) for name in shared)))


@lru_cache
def _telling(table: Table, names: Sequence[str]) -> ReturningInsert[Any]:
    return _from_arrays(_absent(table), names).returning(table.c.id)


class MySQL(Dialect):
    """MySQL 8 and MariaDB 10.6 or later, by asyncmy; READ COMMITTED on every connection."""

    name = "mysql"
    begin = None
    skip_locked = "for update skip locked"
    clock = "timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6))"
    has_returning = False
    has_partial = False
    send_at = "send_at"
    timer_at = "timer_at"
    sends_index = "deliveries force index (deliveries_sends)"
    timers_index = "deliveries force index (deliveries_timers)"
    fair_index = "deliveries force index (deliveries_fair)"
    suspect_at = "suspect_at"
    suspects_index = "deliveries force index (deliveries_suspects)"
    # Lock wait timeout, deadlock, record changed since the snapshot, shutdown, too many connections, killed query, a statement
    # that took too long (MariaDB, MySQL); full or read-only.
    transient: ClassVar = frozenset({1205, 1213, 1020, 1053, 1040, 1317, 1969, 3024, 1152, 1184, 1021, 1114, 1290, 1836})
    lost: ClassVar = frozenset({2006, 2013, 2055, 2003, 2002, 1927, 1053})

    def branch(self, query: str) -> str:
        """Return the query in brackets."""
        return f"({query})"

    def insert_absent(self, table: Table, *key: str) -> Insert:
        """Return INSERT ... ON DUPLICATE KEY UPDATE of nothing: INSERT IGNORE would swallow other errors too."""
        return mysql.insert(table).on_duplicate_key_update({key[0]: table.c[key[0]]})

    def insert_new(self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Look first, under a lock: here an insert counts what it left alone too."""
        found = select(table.c.id).where(self.among(table.c.id, "ids")).limit(1).with_for_update()
        is_there = connection.execute(found, {"ids": [row["id"] for row in rows]}).first() is not None
        self.insert_all(connection, self.insert_absent(table, "id"), rows)
        return not is_there

    def is_transient(self, error: BaseException) -> bool:
        """Read the error number; a connection that can't be made is transient too."""
        return _number(error) in self.transient or self.is_connection_lost(error)

    def is_connection_lost(self, error: BaseException) -> bool:
        """Read the error number: the driver does not always mark the connection as gone."""
        return super().is_connection_lost(error) or _number(error) in self.lost or _is_unreachable(error)


def _original(error: BaseException) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


def _number(error: BaseException) -> int | None:
    args = getattr(_original(error), "args", ())
    return args[0] if args and isinstance(args[0], int) else None


def _is_unreachable(error: BaseException) -> bool:
    original = _original(error)
    if isinstance(error, PoolTimeoutError) or isinstance(original, OSError | TimeoutError | EOFError):
        return True
    words = str(original).lower()
    if isinstance(original, RuntimeError) and "transport does not expose socket" in words:
        # What asyncmy says when the peer hangs up while it connects.
        return True
    return isinstance(error, OperationalError | InterfaceError | InternalError) and (
        "connection is closed" in words or "connection was closed" in words or "connection lost" in words
    )


_DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (Dialect(), PostgreSQL(), MySQL())}


def named(name: str) -> Dialect:
    """Return the seam of a database by SQLAlchemy's name for it; MariaDB goes as MySQL."""
    return _DIALECTS["mysql" if name == "mariadb" else name]


def of(connection: Connection) -> Dialect:
    """Return the seam of the database behind a connection."""
    return named(connection.dialect.name)


def database_now(connection: Connection) -> int | None:
    """Return the server's microseconds since 1970, or None where there is no server."""
    clock = of(connection).clock
    return None if clock is None else connection.execute(text(f"select {clock}")).scalar_one()


json_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Returns compact JSON as it is kept in text columns."""
