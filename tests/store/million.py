"""A million rows in half a minute, and what a store function really costs on them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, event, inspect
from sqlalchemy.engine.interfaces import ExecuteStyle

from campana.domain import instants
from tests.store.builders import NOW, PROJECT, TENANT
from tests.store.desk import Hand

ROWS, FUTURE, FINAL, HELD, SUSPECT = 1_000_000, 960_000, 990_000, 949_000, 949_500
"""Rows below HELD are plainly due; then held ones; from SUSPECT on suspects; from FUTURE on those due later; then ended ones."""
DUE = 950_000

_DIGITS = (
    "(select 0 as d union all select 1 union all select 2 union all select 3 union all select 4 union all select 5"
    " union all select 6 union all select 7 union all select 8 union all select 9)"
)
_NUMBERS = {
    "postgresql": f"select g as n from generate_series(0::bigint, {ROWS - 1}) as g",  # noqa: S608 - ours
    "sqlite": f"with recursive c(n) as (select 0 union all select n + 1 from c where n < {ROWS - 1}) select n from c",  # noqa: S608 - ours
    "mysql": "select a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 100000 * g.d as n from "  # noqa: S608 - ours
    + ", ".join(f"{_DIGITS} {name}" for name in "gfecba"),
}


def number_id(number: int) -> UUID:
    """The id of row so and so."""
    return UUID(int=(0x019C << 112) | 0x7000 << 64 | 0x8 << 60 | number)


def _id(value: UUID, kind: str) -> str:
    return f"'{value}'" if kind == "postgresql" else f"x'{value.hex}'"


def _row_id(kind: str) -> str:
    head = f"{number_id(0)}"[:24]
    if kind == "postgresql":
        return f"cast('{head}' || lpad(to_hex(n), 12, '0') as uuid)"
    if kind == "mysql":
        return f"unhex(concat('{head.replace('-', '')}', lpad(hex(n), 12, '0')))"
    return "campana_id(n)"


def load(connection: Connection) -> None:
    """The rows are there; the database knows nothing of them yet."""
    kind = connection.dialect.name
    now = instants.to_micros(NOW)
    no, blank = ("false", "''::bytea") if kind == "postgresql" else ("0", "''")
    columns = {
        "id": _row_id(kind),
        "tenant_id": _id(TENANT, kind),
        "project_id": _id(PROJECT, kind),
        "queue": "'webhook'",
        "channel": "'webhook'",
        "target": '\'{"url":"http://receiver.test/"}\'',
        "payload": blank,
        "policies": "'{}'",
        "dedupe_key": "concat('key ', n)" if kind == "mysql" else "'key ' || n",
        "priority": "1",
        "scheduled_for": str(now),
        "due_at": str(now),
        "created_at": str(now),
        # Wake order is not id order.
        "state": f"case when n < {FINAL} then 0 else 4 end",
        "wake_at": f"case when n < {DUE} then {now} - (n * 7919) % 1000000 when n < {FINAL} then {now} + 3600000000 + n end",
        "fence": "0",
        "held_by": f"case when n >= {HELD} and n < {SUSPECT} then 'tenant:x' end",
        "cancel_requested": no,
        "generation": "1",
        "attempt_count": "0",
        "max_attempts": "3",
        "key_number": "1",
        "ambiguous_attempts": "0",
        "crash_count": f"case when n >= {SUSPECT} and n < {DUE} then 2 else 0 end",
        "proven_crashes": "0",
    }
    if kind == "postgresql":
        connection.exec_driver_sql("alter table deliveries set (autovacuum_enabled = off)")
        connection.exec_driver_sql("set local statement_timeout = 0")
    if kind == "sqlite":
        raw: Any = connection.connection.dbapi_connection
        raw.create_function("campana_id", 1, lambda number: number_id(number).bytes, deterministic=True)
    names, values = ", ".join(columns), ", ".join(columns.values())
    insert = f"insert into deliveries ({names}) select {values} from ({_NUMBERS[kind]}) as numbers order by n"  # noqa: S608 - ours
    if kind == "mysql":
        with _without_indexes(connection):
            connection.exec_driver_sql(insert.replace("%", "%%"))
            connection.commit()
    else:
        connection.exec_driver_sql(insert)


@contextmanager
def _without_indexes(connection: Connection) -> Iterator[None]:
    # Built afterwards from sorted entries they take a tenth of the time.
    found = inspect(connection).get_indexes("deliveries")
    drops = ", ".join(f"drop index {index['name']}" for index in found)
    adds = ", ".join(
        f"add {'unique ' if index['unique'] else ''}index {index['name']} ({', '.join(map(str, index['column_names']))})"
        for index in found
    )
    connection.exec_driver_sql(f"alter table deliveries {drops}")
    yield
    connection.exec_driver_sql(f"alter table deliveries {adds}")


def analyze(connection: Connection) -> None:
    """The statistics are those of the rows as they are."""
    if connection.dialect.name == "mysql":
        connection.exec_driver_sql("analyze table deliveries").all()
    else:
        connection.exec_driver_sql("analyze deliveries")


def forget(connection: Connection) -> None:
    """The database has no statistics, as after a restore, or those of an empty table."""
    kind = connection.dialect.name
    if kind == "postgresql":
        connection.exec_driver_sql("delete from pg_statistic where starelid = 'deliveries'::regclass")
        connection.exec_driver_sql("update pg_class set reltuples = -1, relpages = 0 where relname like 'deliveries%'")
    elif kind == "sqlite":
        if connection.exec_driver_sql("select 1 from sqlite_schema where name = 'sqlite_stat1'").first():
            connection.exec_driver_sql("delete from sqlite_stat1")
            connection.exec_driver_sql("analyze sqlite_schema")
    else:
        # MySQL counts anew once a tenth has changed; MariaDB is held to the worst, a count from when the table was empty.
        rows, pages = (0, 1) if connection.dialect.is_mariadb else (ROWS // 10, 1_000)  # type: ignore[attr-defined]  # it is one of both
        mine = "where database_name = database() and table_name = 'deliveries'"
        connection.exec_driver_sql(f"update mysql.innodb_table_stats set n_rows = {rows}, clustered_index_size = {pages} {mine}")  # noqa: S608 - ours
        if connection.dialect.is_mariadb:  # type: ignore[attr-defined]  # as above
            connection.exec_driver_sql(f"update mysql.innodb_index_stats set stat_value = 1 {mine}")  # noqa: S608 - ours
        connection.commit()
        connection.exec_driver_sql("flush table deliveries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Blocks touched (PostgreSQL), rows read (MySQL and MariaDB), thousands of steps (SQLite); and how it came to that."""

    work: int
    plan: str
    result: Any


async def cost(hand: Hand, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """What the function's statements cost; whatever they change is rolled back."""
    measured: Cost = await hand.do(_cost, function, args, kwargs)
    return measured


def _cost(connection: Connection, function: Callable[..., Any], args: Any, kwargs: Any) -> Cost:
    kind = connection.dialect.name
    if kind == "postgresql":
        return _blocks(connection, function, args, kwargs)
    statements: list[tuple[str, Any, bool]] = []

    def run() -> Any:
        with _statements(connection) as seen:
            result = function(connection, *args, **kwargs)
        statements.extend(seen)
        return result

    work, result = (_reads if kind == "mysql" else _steps)(connection, run)
    plans = []
    for statement, parameters, many in statements:
        if not many:
            explain = "explain " if kind == "mysql" else "explain query plan "
            plans += [str(tuple(row)) for row in connection.exec_driver_sql(explain + statement, parameters)]
    return Cost(work=work, plan="\n".join(plans), result=result)


@contextmanager
def _statements(connection: Connection) -> Iterator[list[tuple[str, Any, bool]]]:
    seen: list[tuple[str, Any, bool]] = []

    def see(_1: Any, _2: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        seen.append((statement, parameters, executemany or context.execute_style is ExecuteStyle.INSERTMANYVALUES))

    event.listen(connection.engine, "before_cursor_execute", see)
    try:
        yield seen
    finally:
        event.remove(connection.engine, "before_cursor_execute", see)


def _blocks(connection: Connection, function: Callable[..., Any], args: Any, kwargs: Any) -> Cost:
    point = connection.begin_nested()
    with _statements(connection) as statements:
        result = function(connection, *args, **kwargs)
    point.rollback()
    work, plans = 0, []
    for statement, parameters, many in statements:
        if many:
            connection.exec_driver_sql(statement, parameters)
            continue
        found = connection.exec_driver_sql(f"explain (analyze, buffers, format json) {statement}", parameters).scalar_one()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        work += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        plans += [f"{statement[:60]}: {line}" for line in _lines(plan)]
    return Cost(work=work, plan="\n".join(plans), result=result)


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    names = ("Node Type", "Relation Name", "Index Name", "Index Cond", "Filter", "Actual Rows", "Rows Removed by Filter")
    yield " ".join(f"{name}={plan[name]}" for name in names if name in plan)
    for child in plan.get("Plans", []):
        yield from _lines(child)


def _reads(connection: Connection, run: Callable[[], Any]) -> tuple[int, Any]:
    def read() -> int:
        return sum(int(row[1]) for row in connection.exec_driver_sql("show session status like 'Handler_read%%'"))

    before = read()
    result = run()
    return read() - before, result


def _steps(connection: Connection, run: Callable[[], Any]) -> tuple[int, Any]:
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    raw: Any = connection.connection.dbapi_connection
    raw.set_progress_handler(step, 1_000)
    try:
        result = run()
    finally:
        raw.set_progress_handler(None, 0)
    return steps, result
