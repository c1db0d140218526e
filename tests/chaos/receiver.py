"""The receiver, a process of its own: `python -m tests.chaos.receiver PORT LEDGER SEED`."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.chaos.ledger import Entry, Ledger
from tests.chaos.processes import pause
from tests.chaos.script import APPLIES, Manner, scene

_ANSWERS: Mapping[Manner, bytes] = {
    Manner.ANSWER: b"200 OK",
    Manner.SLOW: b"200 OK",
    Manner.FAIL: b"500 Internal Server Error",
    Manner.BUSY: b"429 Too Many Requests\r\nRetry-After: 1",
    Manner.UNKNOWN: b"404 Not Found",
}


async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ledger: Ledger, seed: int) -> None:
    """Requests of one connection are met in turn until it ends."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.partition(": ") for line in head[1:] if line)
            headers = {name.lower(): value for name, _, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            answer = await _act(headers, body, ledger, seed)
            if answer is None:
                break
            writer.write(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    writer.transport.abort()


async def _act(headers: Mapping[str, str], body: bytes, ledger: Ledger, seed: int) -> bytes | None:
    attempt, arrived = int(headers["campana-attempt"]), time.time()
    planned = scene(seed, body, attempt)
    await pause(planned.before)
    await ledger.add(
        Entry(
            key=headers["webhook-id"],
            idempotency_key=headers["idempotency-key"],
            attempt=attempt,
            body=hashlib.sha256(body).hexdigest(),
            at=arrived,
            did=planned.manner.value,
            applied=planned.manner in APPLIES,
        )
    )
    await pause(planned.after)
    return _ANSWERS.get(planned.manner)


async def serve(port: int, path: Path, seed: int) -> None:
    """Serve until killed."""
    ledger = Ledger(path)
    server = await asyncio.start_server(lambda reader, writer: meet(reader, writer, ledger, seed), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
