"""The program as people start it: `python -m campana`, in a folder of its own, with nothing of ours in its environment."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx2

SECONDS = 60


def environment(**said: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CAMPANA_", "COV_", "PYTEST"))}
    return kept | {"PYTHONUNBUFFERED": "1"} | said


def run(folder: Path, *words: str, **said: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    command = [sys.executable, "-m", "campana", *words]
    return subprocess.run(
        command, cwd=folder, env=environment(**said), capture_output=True, text=True, timeout=SECONDS, check=False
    )


class Program:
    """A process that runs until it is told to stop."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.said = ""

    def wait_for(self, pattern: str, stream: IO[bytes] | None = None) -> re.Match[str]:
        """What was printed once it matches; fails when the process ends or a minute passes before."""
        source = stream or self.process.stdout
        assert source is not None
        until = time.monotonic() + SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while not (found := re.search(pattern, self.said)):
                assert selector.select(until - time.monotonic()), f"waited in vain for {pattern!r} in:\n{self.said}"
                piece = os.read(source.fileno(), 65_536)
                assert piece, f"it ended before it said {pattern!r}:\n{self.said}"
                self.said += piece.decode()
        return found

    def ready(self) -> str:
        """The address, once it is ready."""
        return self.wait_for(r"ready at (http://\S+)")[1]

    def key(self) -> str:
        return self.wait_for(r"key, shown this once: (cmp_\S+)\n")[1]

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.ready(), headers={"authorization": f"Bearer {self.key()}"}, timeout=SECONDS)

    def end(self, number: int) -> int:
        """Its exit code after this signal."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextlib.contextmanager
def start(folder: Path, *words: str, **said: str) -> Iterator[Program]:
    """Start it, and end it whatever happens. What it says on both streams comes in one."""
    # Who was started in the background ignores this signal, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([sys.executable, "-m", "campana", *words], cwd=folder, env=environment(**said), **options) as process:
        try:
            yield Program(process)
        finally:
            if process.poll() is None:
                process.kill()
