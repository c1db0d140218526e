"""The receiver that everything is sent to: it counts by id, so what was lost or came twice is seen by somebody else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.machine import CACHE, BenchError

SOURCE = Path(__file__).with_name("sink.c")
SETTLING = 1.0
"""Seconds in which a second request for the same id would still be seen."""


class Receiver:
    """A running receiver."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._connection = HTTPConnection("127.0.0.1", port, timeout=10)

    def stats(self) -> dict[str, Any]:
        """Return what has come so far."""
        answer: dict[str, Any] = json.loads(self._get("/stats"))
        return answer

    def came_at(self, number: int) -> float | None:
        """Return when this id came first, in seconds since 1970."""
        return int(self._get(f"/at/{number}")) / 1e6 or None

    def reset(self) -> None:
        """Nothing has come."""
        self._get("/reset")

    def wait(self, count: int, *, seconds: float, alive: Callable[[], bool] = lambda: True) -> dict[str, Any]:
        """Return the statistics once `count` ids have come; raise BenchError after that long or when nobody sends any more."""
        until = time.monotonic() + seconds
        while (stats := self.stats())["unique"] < count:
            if time.monotonic() > until or not alive():
                why = f"in {seconds:g} s" if alive() else "before the workers ended"
                raise BenchError(f"expected {count} requests at the receiver, got {stats['unique']} {why}")
            time.sleep(0.05)
        return stats

    def settled(self, count: int) -> dict[str, Any]:
        """Return the statistics after a moment in which nothing came twice; raise BenchError if something is amiss."""
        time.sleep(SETTLING)
        stats = self.stats()
        if stats["unique"] != count or stats["twice"] or stats["strange"]:
            raise BenchError(f"expected {count} requests, each once, got {stats}")
        return stats

    def _get(self, path: str) -> bytes:
        self._connection.request("GET", path)
        return self._connection.getresponse().read()


def _program() -> Path:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    program = CACHE / f"receiver-{digest}"
    if program.exists():
        return program
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise BenchError("the receiver is a C program: expected gcc on the PATH, got none (Debian: apt install gcc libc6-dev)")
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(".new")
    done = subprocess.run([compiler, "-O2", "-o", str(fresh), str(SOURCE)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{compiler} can't compile {SOURCE.name}, which needs Linux; it said:\n{done.stderr[-1500:]}")
    fresh.replace(program)
    return program


@contextlib.contextmanager
def receive() -> Iterator[Receiver]:
    """Run a receiver, compiled when first used."""
    with subprocess.Popen([str(_program())], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Receiver(process, int(process.stdout.readline()))
        finally:
            process.terminate()
