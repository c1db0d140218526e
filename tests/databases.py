"""Databases on a server: made, emptied, dropped."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine


def create_database(url: str, name: str) -> str:
    """A new, empty database on the server; its URL. One of that name that was there is gone."""
    drop_database(url, name)
    ask(url, f"CREATE DATABASE {name}" + (" CHARACTER SET utf8mb4" if "mysql" in url else ""))
    return _with_database(url, name)


def drop_database(url: str, name: str) -> None:
    """No database of that name is on the server; who was connected to it no longer is."""
    if "mysql" not in url:
        ask(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608 - ours
        ask(url, f"DROP DATABASE IF EXISTS {name}")
    # asyncmy turns the server's note about IF EXISTS into a warning, and warnings are errors
    elif ask(url, f"SHOW DATABASES LIKE '{name}'"):
        ask(url, f"DROP DATABASE {name}")


def empty(url: str) -> None:
    """The database has no tables, views or other things of ours."""
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{parsed.database}{ending}").unlink(missing_ok=True)
    elif parsed.get_backend_name() == "postgresql":
        ask(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    else:
        views = _tables(url, "VIEW")
        tables = _tables(url, "BASE TABLE")
        drops = [f"DROP VIEW `{name}`" for name in views] + [f"DROP TABLE `{name}`" for name in tables]
        ask(url, "SET foreign_key_checks = 0", *drops)


def clear(url: str, *, keep: tuple[str, ...] = ("alembic_version",)) -> None:
    """No table has a row, but for those in `keep`; the tables are still there."""
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        _clear_sqlite(str(parsed.database), keep)
        return
    names = [name for name in _tables(url, "BASE TABLE") if name not in keep]
    if not names:
        return
    if parsed.get_backend_name() == "postgresql":
        ask(url, "TRUNCATE " + ", ".join(f'"{name}"' for name in names) + " RESTART IDENTITY CASCADE")
    else:
        ask(url, "SET foreign_key_checks = 0", *(f"DELETE FROM `{name}`" for name in names))  # noqa: S608 - ours


def _clear_sqlite(path: str, keep: tuple[str, ...]) -> None:
    if not Path(path).exists():
        return
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        connection.execute("BEGIN IMMEDIATE")
        for (name,) in found.fetchall():
            if name not in keep:
                connection.execute(f'DELETE FROM "{name}"')  # noqa: S608 - ours
        connection.execute("COMMIT")
    finally:
        connection.close()


def _tables(url: str, sort: str) -> list[str]:
    schema = "current_schema()" if "mysql" not in url else "database()"
    question = "SELECT table_name FROM information_schema.tables"
    rows = ask(url, f"{question} WHERE table_schema = {schema} AND table_type = '{sort}'")
    return [str(row[0]) for row in rows]


def ask(url: str, *statements: str) -> list[Any]:
    """The rows of the last statement, each committed by itself, on one connection that is closed afterwards."""

    async def talk() -> list[Any]:
        # behind a pooler a statement's name would outlive the connection that knows it
        pooled, plain = "pooled=true" in url, sqlalchemy.make_url(url).difference_update_query(["pooled"])
        nameless = {"statement_cache_size": 0, "prepared_statement_name_func": str} if pooled else {}
        engine = create_async_engine(plain, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool, connect_args=nameless)
        rows: list[Any] = []
        try:
            async with engine.connect() as connection:
                for statement in statements:
                    result = await connection.exec_driver_sql(statement)
                    rows = list(result) if result.returns_rows else []
        finally:
            await engine.dispose()
        return rows

    # in a thread of its own, so that it does not matter whether the caller runs a loop
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, talk()).result()


def database_of(url: str) -> str:
    return sqlalchemy.make_url(url).database or ""


def _with_database(url: str, name: str) -> str:
    return sqlalchemy.make_url(url).set(database=name).render_as_string(hide_password=False)
