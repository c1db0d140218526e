"""PostgreSQL, MySQL and MariaDB: store functions run under `run_sync` on pooled connections."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from campana.errors import UnavailableError
from campana.store import dialects
from campana.store.database import CommitLostError, Unit, Urgency

POOLED = "pooled"
"""`?pooled=true` in a URL: a pooler stands before the server and lends a connection for one transaction at a time."""


class Role(Enum):
    """What a pool of connections is for."""

    API = "api"
    ENGINE = "engine"
    TICK = "tick"
    MIGRATION = "migration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds after which the server itself ends a statement, a wait for a lock, a transaction in which nothing happens."""

    statement: float
    lock: int
    idle: int
    answer: float
    """How long a silent server is waited for: it would have said that the statement took too long."""
    place: float
    """How long one waits for a free connection before being told to come back."""


PATIENCE = {
    Role.API: Patience(statement=15, lock=5, idle=30, answer=20, place=5),
    Role.ENGINE: Patience(statement=30, lock=10, idle=60, answer=35, place=10),
    # Who waits longer for the heartbeat has lost its authority to send anyway.
    Role.TICK: Patience(statement=5, lock=2, idle=10, answer=8, place=5),
    Role.MIGRATION: Patience(statement=3_600, lock=600, idle=3_600, answer=3_600, place=10),
}


def is_pooled(url: str) -> bool:
    """Say whether nothing may rely on a session: no LISTEN, no prepared statement, no setting beyond a transaction."""
    return make_url(url).query.get(POOLED, "") == "true"


def connect(url: str, *, size: int, role: Role = Role.ENGINE) -> AsyncEngine:
    """Return an engine at READ COMMITTED whose statements, locks and idle transactions end by themselves."""
    pooled, parsed = is_pooled(url), make_url(url).difference_update_query([POOLED])
    is_postgresql = parsed.get_backend_name() == "postgresql"
    parsed, arguments = (_postgresql if is_postgresql else _mysql)(parsed, role, pooled=pooled)
    engine = create_async_engine(
        parsed,
        pool_size=size,
        max_overflow=0,
        pool_timeout=PATIENCE[role].place,
        isolation_level="READ COMMITTED",
        connect_args=dict(arguments),
    )
    if pooled and is_postgresql:
        _limit_each_transaction(engine, role)
    return engine


def _postgresql(url: URL, role: Role, *, pooled: bool) -> tuple[URL, Mapping[str, Any]]:
    named = {"application_name": f"campana {role.value}"}
    arguments: dict[str, Any] = {"timeout": 5, "command_timeout": PATIENCE[role].answer}
    if pooled:
        # A statement without a name lives as long as its transaction needs it, on whichever connection that is.
        nameless = {"statement_cache_size": 0, "prepared_statement_cache_size": 0, "prepared_statement_name_func": str}
        arguments |= {**nameless, "server_settings": named}
    else:
        arguments["server_settings"] = named | _limits(role)
    return url.set(drivername="postgresql+asyncpg"), arguments


def _limits(role: Role) -> dict[str, str]:
    patience = PATIENCE[role]
    return {
        "statement_timeout": f"{patience.statement * 1000:.0f}ms",
        "lock_timeout": f"{patience.lock}s",
        "idle_in_transaction_session_timeout": f"{patience.idle}s",
    }


def _limit_each_transaction(engine: AsyncEngine, role: Role) -> None:
    set_all = "select " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _limits(role).items())

    @event.listens_for(engine.sync_engine, "begin")
    def limit(connection: Connection) -> None:
        connection.exec_driver_sql(set_all)


def _mysql(url: URL, role: Role, *, pooled: bool) -> tuple[URL, Mapping[str, Any]]:
    del pooled  # poolers of MySQL keep a session's settings
    patience = PATIENCE[role]
    statement, idle = patience.statement, patience.idle
    # Each of the two reads its own comment. MySQL limits reads alone, and transactions in which nothing happens not at all.
    theirs = f"/*M!100301 , max_statement_time={statement}, idle_transaction_timeout={idle} */"
    theirs += f" /*!50708 , max_execution_time={statement * 1000:.0f} */"
    arguments = {
        "connect_timeout": 5,
        "read_timeout": patience.answer,
        "init_command": f"set session innodb_lock_wait_timeout={patience.lock}, time_zone='+00:00',"
        f" sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION' {theirs}",
    }
    return url.set(drivername="mysql+asyncmy").update_query_dict({"charset": "utf8mb4"}), arguments


@contextlib.asynccontextmanager
async def _told_when_full() -> AsyncIterator[None]:
    # Nothing was begun, and whoever asks again at once only makes the crowd larger.
    try:
        yield
    except PoolTimeoutError as error:
        message = "every connection to the database is in use"
        raise UnavailableError(message) from error


class ServerRunner:
    """A database server."""

    def __init__(self, url: str, *, size: int, role: Role = Role.ENGINE) -> None:
        """Make a pool of at most `size` connections, opened when they are needed."""
        self.url = url
        self._engine = connect(url, size=size, role=role)
        self.dialect = dialects.named(self._engine.dialect.name)

    async def write(self, unit: Unit, urgency: Urgency) -> Any:
        """Run the unit and commit; a COMMIT without an answer raises CommitLostError."""
        del urgency
        async with _told_when_full(), self._engine.connect() as connection:
            result = await connection.run_sync(unit)
            await self._commit(connection)
            return result

    async def read(self, unit: Unit) -> Any:
        """Run the unit and end its transaction."""
        async with _told_when_full(), self._engine.connect() as connection:
            return await connection.run_sync(unit)

    async def close(self) -> None:
        """Close the pool."""
        await self._engine.dispose()

    async def _commit(self, connection: AsyncConnection) -> None:
        try:
            await connection.commit()
        except Exception as error:
            if self.dialect.is_connection_lost(error):
                await connection.invalidate()
                raise CommitLostError(str(error)) from error
            raise
