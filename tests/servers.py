"""Private database servers, started for one run of the tests and gone with it.

Each lives in a folder of its own under the system's temporary folder and listens on a free loopback port. A child
process, the keeper, holds the other end of a pipe: when this process ends, however it ends, the keeper kills the
servers and removes their folders.

    server = servers.PostgreSQL().start()
    server.url          # postgresql+asyncpg://campana:campana@127.0.0.1:.../campana
    server.kill()       # as a crash; server.restart() finds the same data on the same port
    server.dispose()
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from tests import programs

USER = PASSWORD = DATABASE = "campana"
START_SECONDS = 90


# ------------------------------------------------------------------------------------------------------- the keeper

_KEEPER = """
import os, shutil, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
kept = {}
for line in sys.stdin:
    verb, folder, pid = line.rstrip("\\n").split("\\t")
    if verb == "keep":
        kept[folder] = int(pid)
    else:
        kept.pop(folder, None)
for folder, pid in kept.items():
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for attempt in range(5):
        shutil.rmtree(folder, ignore_errors=True)
"""
_keepers: list[subprocess.Popen[str]] = []  # one at most
_keeping = threading.Lock()  # servers are started from several threads


def _tell_keeper(verb: str, folder: Path, pid: int) -> None:
    with _keeping:
        if not _keepers:
            command = [sys.executable, "-c", _KEEPER]
            _keepers.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd="/", start_new_session=True))
            atexit.register(_close_keeper)
        pipe = _keepers[0].stdin
        assert pipe is not None
        pipe.write(f"{verb}\t{folder}\t{pid}\n")
        pipe.flush()


def _close_keeper() -> None:
    with _keepers.pop() as keeper:  # closes the pipe, waits
        keeper.poll()


# ------------------------------------------------------------------------------------------------------ the servers


class Server:
    """One private server. `durable` makes a commit wait for the disk, as in production."""

    kind: ClassVar[str]
    scheme: ClassVar[str]

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        self.folder: Path | None = None
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """SQLAlchemy's asynchronous form."""
        return f"{self.scheme}://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> Self:
        """It runs and takes connections; on the data of before, if it ran before."""
        if self.process is not None:
            return self
        if self.folder is None:
            self._create()
        folder = self._home()
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
                **self._as_user(),
            )
        _tell_keeper("keep", folder, self.process.pid)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self._has_died(within=0.03) or time.monotonic() > deadline:
                said = self.log()[-3000:]
                self.dispose()
                message = f"{self.kind} did not start; it said:\n{said}"
                raise programs.UnavailableError(message)
        return self

    def stop(self) -> None:
        """It has ended in good order: connections closed, data written."""
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._ended()

    def kill(self) -> None:
        """It has ended at once, all its processes with it, as when the machine's kernel ends it."""
        if self.process is None:
            return
        family = [self.process.pid, *_children(self.process.pid)]
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(timeout=60)
        while any(_alive(pid) for pid in family[1:]):
            os.sched_yield()
        self._ended()

    def restart(self) -> Self:
        """It runs, having been stopped first if it still ran; same port, same data."""
        self.stop()
        return self.start()

    def dispose(self) -> None:
        """Nothing of it is left. A later start() begins with an empty server."""
        self.kill()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            _tell_keeper("forget", self.folder, 0)
            self.folder = None

    def log(self) -> str:
        return (self._home() / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.dispose()

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _initialise(self) -> None:
        raise NotImplementedError

    def _ready(self) -> bool:
        raise NotImplementedError

    def _as_user(self) -> dict[str, Any]:
        return {}

    def _home(self) -> Path:
        assert self.folder is not None, "not started"
        return self.folder

    def _create(self) -> None:
        self.port = _free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"campana-{self.kind}-"))
        _tell_keeper("keep", self.folder, 0)
        try:
            self._initialise()
        except BaseException:
            self.dispose()
            raise

    def _has_died(self, *, within: float) -> bool:
        assert self.process is not None
        try:
            self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _ended(self) -> None:
        self.process = None
        _tell_keeper("keep", self._home(), 0)

    def _run(self, command: list[str], **options: Any) -> None:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self._home(), **self._as_user(), **options
        )
        if done.returncode:
            said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
            message = f"{self.kind}: {Path(command[0]).name} ... {command[-1]} failed; it said:\n{said}"
            raise programs.UnavailableError(message)


class PostgreSQL(Server):
    """PostgreSQL, from the newest binaries found. Refuses to run as root, so root lends it another user."""

    kind = "postgresql"
    scheme = "postgresql+asyncpg"
    stop_signal = signal.SIGINT  # "fast": does not wait for clients

    def _initialise(self) -> None:
        folder = self._home()
        if user := self._as_user().get("user"):
            shutil.chown(folder, user)
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        initdb = programs.postgresql("initdb")
        options = ["--encoding=UTF8", "--no-locale", "--no-sync", "--auth=scram-sha-256", f"--pwfile={password}"]
        self._run([initdb, "-D", str(folder / "data"), "-U", USER, *options])
        # `postgres --single` makes the database before there is a server to ask
        single = [programs.postgresql("postgres"), "--single", "-D", str(folder / "data"), "-F", "postgres"]
        self._run(single, input=f"CREATE DATABASE {DATABASE}\n")

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 300,
            "shared_buffers": "64MB",
            "log_min_messages": "warning",
            # Without fsync a commit survives kill(), which is all that a test does; the disk is only waited for
            # where that is measured.
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
        }
        pairs = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [programs.postgresql("postgres"), "-D", str(self._home() / "data"), *pairs]

    def _as_user(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        user = programs.a_user("postgres", "nobody", "daemon")
        return {"user": user.pw_name, "group": user.pw_gid, "extra_groups": []}

    def _ready(self) -> bool:
        # A start-up packet: 'R' asks for the password, so it is up; 'E' says that it is starting or recovering.
        body = struct.pack("!i", 196608) + f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
        return _answer(self.port, struct.pack("!i", len(body) + 4) + body, 1) == b"R"


# read at every start, before anybody can connect
_MYSQL_INIT = f"""
CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;
"""


class MariaDB(Server):
    """MariaDB, from installed binaries."""

    kind = "mariadb"
    scheme = "mysql+asyncmy"

    def _initialise(self) -> None:
        folder = self._home()
        (folder / "init.sql").write_text(_MYSQL_INIT)
        install = programs.program("mariadb-install-db", "mysql_install_db")
        self._run(
            [install, "--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db", *self._user_option()],
        )

    def _user_option(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def _binary(self) -> list[str]:
        return [programs.program("mariadbd", "mysqld"), "--no-defaults"]

    def _command(self) -> list[str]:
        folder = self._home()
        return [
            *self._binary(),
            *self._user_option(),
            f"--datadir={folder / 'data'}",
            f"--socket={folder / 'socket'}",
            f"--pid-file={folder / 'pid'}",
            f"--init-file={folder / 'init.sql'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--max-connections=300",
            "--innodb-buffer-pool-size=64M",
            # 2: written at commit, which survives kill(), but not waited for
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            *self._own_options(),
        ]

    def _own_options(self) -> list[str]:
        return ["--innodb-log-file-size=64M"]

    def _ready(self) -> bool:
        # The server speaks first: a four-byte header, then 10, its protocol; an error begins with 255.
        return _answer(self.port, b"", 5)[4:] == b"\x0a"


class MySQL(MariaDB):
    """MySQL 8 or later: installed, or unpacked by scripts/get_mysql.sh."""

    kind = "mysql"

    def _initialise(self) -> None:
        folder = self._home()
        (folder / "init.sql").write_text(_MYSQL_INIT)
        where = [f"--datadir={folder / 'data'}", "--secure-file-priv=", *self._user_option()]
        self._run([*self._binary(), "--initialize-insecure", *where])

    def _binary(self) -> list[str]:
        return programs.mysql_binary()

    def _own_options(self) -> list[str]:
        options = ["--secure-file-priv=", "--mysqlx=OFF", "--performance-schema=OFF"]
        return [*options, *([] if self.durable else ["--skip-log-bin"])]


class PgBouncer(PostgreSQL):
    """PostgreSQL behind a pooler that lends a connection for one transaction: what holds by session is lost here."""

    kind = "pgbouncer"

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__(durable=durable)
        self.behind = PostgreSQL(durable=durable)

    @property
    def url(self) -> str:
        return f"{super().url}?pooled=true"

    def _initialise(self) -> None:
        folder = self._home()
        self.behind.start()
        (folder / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.behind.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {folder / 'users'}\n"
            "pool_mode = transaction\ndefault_pool_size = 20\nmax_client_conn = 500\nserver_round_robin = 1\n"
        )
        if user := self._as_user().get("user"):
            for path in (folder, folder / "users", folder / "pgbouncer.ini"):
                shutil.chown(path, user)

    def _command(self) -> list[str]:
        return [programs.program("pgbouncer"), str(self._home() / "pgbouncer.ini")]

    def dispose(self) -> None:
        super().dispose()
        self.behind.dispose()


SERVERS: dict[str, type[Server]] = {server.kind: server for server in (PostgreSQL, MariaDB, MySQL, PgBouncer)}


# ------------------------------------------------------------------------------------------------- small machinery


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answer(port: int, question: bytes, size: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(question)
            answer = b""
            while len(answer) < size and (more := connection.recv(size - len(answer))):
                answer += more
            return answer
    except OSError:
        return b""


def _children(pid: int) -> list[int]:
    if Path("/proc/self/stat").exists():
        return [int(child.name) for child in Path("/proc").glob("[0-9]*") if _parent(child) == pid]
    asked = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=False, capture_output=True, text=True)
    pairs = [line.split() for line in asked.stdout.splitlines()]
    return [int(child) for child, parent in pairs if parent == str(pid)]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # orphans that nobody reaps stay as zombies, which hold nothing any more
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return Path("/proc").exists() is False
