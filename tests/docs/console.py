"""Runs what a page tells its reader to type, in order and in one shell, and compares what comes with what the page shows."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 90
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STAYS = ("make run", "python3 examples/receiver.py")
"""What is started in a terminal of its own, and runs until the page ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, and what the page shows under it."""

    command: str
    shows: str


def steps(page: str) -> list[Step]:
    """What a page tells its reader to type."""
    found = []
    for block in _BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shows = part.partition("\n")
            found.append(Step(command=command, shows=shows.rstrip("\n")))
    return found


def pattern(shows: str) -> str:
    """What is shown, as a pattern: `…` stands for anything on its line, and alone on a line for any lines at all."""
    lines = [r"(?:.*\n)*" if line == "…" else f"{'.*'.join(map(re.escape, line.split('…')))} *\n" for line in shows.splitlines()]
    return "".join(lines)


@dataclass(slots=True)
class Terminal:
    """One shell, and programs beside it that stay."""

    folder: Path
    environment: Mapping[str, str]
    stays: list[subprocess.Popen[bytes]] = field(default_factory=list)
    shell: subprocess.Popen[bytes] | None = None
    last_id: str = "ID"

    def do(self, step: Step) -> None:
        """Type a command; fail unless it shows what the page says."""
        command = re.sub(r"\bID\b", self.last_id, step.command)
        said = self._start(command, step) if command.startswith(STAYS) else self._type(command)
        wanted = pattern(step.shows)
        assert re.match(wanted if command.startswith(STAYS) else f"{wanted}\\Z", said), (
            f"$ {command}\n{said}\nexpected:\n{step.shows}"
        )
        ids = _UUID.findall(said)
        self.last_id = ids[-1] if ids else self.last_id

    def _start(self, command: str, step: Step) -> str:
        process = self._open(command)
        self.stays.append(process)
        return _read(process, re.compile(pattern(step.shows).encode()))

    def _type(self, command: str) -> str:
        if self.shell is None:
            self.shell = self._open("bash --noprofile --norc")
        assert self.shell.stdin is not None
        # The command's own exit code is still there for the next one.
        self.shell.stdin.write(f'{command}\n_code=$?; echo "_end_$_code"; (exit $_code)\n'.encode())
        self.shell.stdin.flush()
        said = _read(self.shell, re.compile(rb"^_end_[0-9]+\n", re.MULTILINE))
        return said.rpartition("_end_")[0]

    def _open(self, command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S602 - a page's own commands, as a reader would type them
            command, shell=True, cwd=self.folder, env=self.environment, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def close(self) -> None:
        """End everything that was started here."""
        for process in (*self.stays, *([] if self.shell is None else [self.shell])):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
            process.wait(SECONDS)


def _read(process: subprocess.Popen[bytes], until: re.Pattern[bytes]) -> str:
    assert process.stdout is not None
    said, last = b"", time.monotonic() + SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not until.search(said):
            assert selector.select(last - time.monotonic()), f"waited in vain for {until.pattern.decode()!r} in:\n{said.decode()}"
            piece = os.read(process.stdout.fileno(), 65_536)
            assert piece, f"it ended before it said {until.pattern.decode()!r}:\n{said.decode()}"
            said += piece
    return said.decode()


@contextlib.contextmanager
def terminal(folder: Path, **said: str) -> Iterator[Terminal]:
    """A terminal in this folder, with nothing of ours in its environment but what is said."""
    ours = ("CAMPANA_", "COV_", "PYTEST", "MAKE", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    opened = Terminal(folder, kept | {"COLUMNS": "80", "TZ": "UTC"} | said)
    try:
        yield opened
    finally:
        opened.close()
