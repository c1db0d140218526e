"""The receiver's ledger: one line per request, on the disk before the request is answered. It is only ever added to."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One request, as it came in, and what the receiver did with it."""

    key: str
    idempotency_key: str
    attempt: int
    body: str
    at: float
    did: str
    applied: bool


class Ledger:
    """Many may write at once: they share the wait for the disk."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._turn = asyncio.Lock()
        self._written = self._durable = 0

    async def add(self, entry: Entry) -> None:
        """The entry is on the disk."""
        os.write(self._handle, json.dumps(asdict(entry)).encode() + b"\n")
        self._written += 1
        mine = self._written
        async with self._turn:
            if self._durable < mine:
                reached = self._written
                await asyncio.to_thread(os.fsync, self._handle)
                self._durable = reached


def read(path: Path) -> list[Entry]:
    """All entries; a line that was cut off was never answered, and had no effect."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [Entry(**json.loads(line)) for line in lines[:-1]]
