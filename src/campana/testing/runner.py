"""A SQLite file without threads: each transaction runs at once, where it is asked for, and is a real one."""

from typing import Any

from campana.store import dialects, sqlite
from campana.store.database import Unit, Urgency


class InlineRunner:
    """One connection to a SQLite file, for tests on an event loop of virtual time; the schema must be there."""

    dialect = dialects.named("sqlite")

    def __init__(self, url: str) -> None:
        """Open the file."""
        self._engine = sqlite.connect(url, readers=0)
        self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        # A test's file need not survive a power cut.
        self._connection.exec_driver_sql("pragma synchronous = off")

    async def write(self, unit: Unit, urgency: Urgency) -> Any:
        """Run the unit in a transaction of its own; nothing else runs meanwhile, so nothing is urgent."""
        del urgency
        return sqlite.run_in_transaction(self._connection, unit)

    async def read(self, unit: Unit) -> Any:
        """Run the unit in a transaction that can't write."""
        self._connection.exec_driver_sql("pragma query_only = 1")
        self._connection.exec_driver_sql("begin")
        try:
            return unit(self._connection)
        finally:
            self._connection.exec_driver_sql("rollback")
            self._connection.exec_driver_sql("pragma query_only = 0")

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._engine.dispose()
