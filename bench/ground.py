"""What the runs stand on: private database servers at their default durability, the receiver, a folder; gone at the end."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.receiver import Receiver, receive
from tests import databases, programs, servers

KINDS = ("postgresql", "mariadb", "sqlite")
NAMES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB", "sqlite": "SQLite"}


class PostgreSQL(servers.PostgreSQL):
    """As the tests have it, but with room to work; `durable` leaves fsync and synchronous_commit on."""

    def _command(self) -> list[str]:
        return [*super()._command(), "-c", "shared_buffers=512MB"]


class MariaDB(servers.MariaDB):
    """As the tests have it, but with room to work; `durable` leaves innodb_flush_log_at_trx_commit at 1."""

    def _own_options(self) -> list[str]:
        return ["--innodb-log-file-size=256M", "--innodb-buffer-pool-size=512M"]


_SERVERS: dict[str, type[servers.Server]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}


@dataclass
class Ground:
    """The receiver, a folder for files and logs, and servers that start when they are first asked for."""

    receiver: Receiver
    folder: Path
    stack: contextlib.ExitStack
    _running: dict[str, servers.Server] = field(default_factory=dict)
    _current: dict[str, str] = field(default_factory=dict)
    _made: int = 0

    def fresh(self, kind: str) -> str:
        """Return the URL of a new, empty database; the one before of that kind is gone."""
        self._made += 1
        name, old = f"bench{self._made}", self._current.get(kind)
        self._current[kind] = name
        if kind == "sqlite":
            place = self.folder / name
            place.mkdir()
            if old is not None:
                shutil.rmtree(self.folder / old)
            return f"sqlite:///{place / 'campana.db'}"
        server = self._server(kind)
        if old is not None:
            databases.drop_database(server.url, old)
        return databases.create_database(server.url, name)

    def pids(self, kind: str) -> list[int]:
        """Return the server's process; its children belong to it."""
        server = self._running.get(kind)
        return [server.process.pid] if server is not None and server.process is not None else []

    def log(self, name: str) -> Path:
        """Return where a program's words go."""
        path = self.folder / f"{name}.log"
        path.touch()
        return path

    def _server(self, kind: str) -> servers.Server:
        if kind not in self._running:
            programs.provide(kind)
            self._running[kind] = self.stack.enter_context(_SERVERS[kind](durable=True))
        return self._running[kind]


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """Lay the ground; nothing of it is left afterwards."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campana-bench-")))
        yield Ground(receiver=stack.enter_context(receive()), folder=folder, stack=stack)
