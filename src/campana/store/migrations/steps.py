"""Steps that may be taken twice: MySQL ends a transaction with every DDL, so a migration that was killed starts again."""

from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import Column, inspect


def create_table(name: str, *parts: Any, **options: Any) -> None:
    """Create a table unless it is there."""
    if not inspect(op.get_bind()).has_table(name):
        op.create_table(name, *parts, **options)


def create_index(name: str, table: str, columns: Sequence[str], **options: Any) -> None:
    """Create an index unless it is there."""
    if all(index["name"] != name for index in inspect(op.get_bind()).get_indexes(table)):
        op.create_index(name, table, list(columns), **options)


def drop_index(name: str, table: str) -> None:
    """Take an index away if it is there."""
    if any(index["name"] == name for index in inspect(op.get_bind()).get_indexes(table)):
        op.drop_index(name, table)


def add_column(table: str, column: Column[Any]) -> None:
    """Add a column unless it is there."""
    if all(there["name"] != column.name for there in inspect(op.get_bind()).get_columns(table)):
        op.add_column(table, column)


def add_generated(table: str, name: str, expression: str) -> None:
    """Add a virtual column on MySQL or MariaDB unless it is there."""
    if all(column["name"] != name for column in inspect(op.get_bind()).get_columns(table)):
        op.execute(f"alter table {table} add column {name} bigint generated always as ({expression}) virtual")


def dialect() -> str:
    """Return `sqlite`, `postgresql` or `mysql` (MariaDB too)."""
    name = op.get_bind().dialect.name
    return "mysql" if name == "mariadb" else name
