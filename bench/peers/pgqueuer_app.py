"""PGQueuer: `python pgqueuer_app.py install | fill COUNT [START RATE] | work`, with its own environment's interpreter."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import aiohttp  # type: ignore[import-not-found]  # lives in the peer's own environment
import asyncpg
import uvloop  # type: ignore[import-not-found, unused-ignore]  # is there where the extra `speed` is
from pgqueuer import PgQueuer  # type: ignore[import-not-found]  # as aiohttp
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]  # as aiohttp
from pgqueuer.queries import Queries  # type: ignore[import-not-found]  # as aiohttp

RECEIVER, DSN, IN_FLIGHT = os.environ["RECEIVER"], os.environ["DSN"], int(os.environ["IN_FLIGHT"])
CHUNK = 1_000


async def install() -> None:
    """Make PGQueuer's schema."""
    connection = await asyncpg.connect(DSN)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def fill(count: int, start: float = 0, rate: float = 0) -> None:
    """Put jobs in and print the seconds that this took."""
    connection = await asyncpg.connect(DSN)
    queries = Queries(AsyncpgDriver(connection))
    began = time.perf_counter()
    for first in range(0, count, CHUNK):
        numbers = range(first, min(first + CHUNK, count))
        dues = [round((start + number / rate) * 1e6) if rate else 0 for number in numbers]
        jobs = [json.dumps([number, due]).encode() for number, due in zip(numbers, dues, strict=True)]
        waits = [timedelta(seconds=due / 1e6 - time.time()) if due else None for due in dues]
        await queries.enqueue(["post"] * len(jobs), jobs, [0] * len(jobs), waits)
    print(time.perf_counter() - began)
    await connection.close()


async def work() -> None:
    """Post jobs until told to stop."""
    text = json.dumps({"event": "reminder.due", "text": ""}, separators=(",", ":"))
    body = text.replace('""', f'"{"x" * (200 - len(text))}"').encode()
    pool = await asyncpg.create_pool(DSN, min_size=2, max_size=10)
    queuer = PgQueuer.from_asyncpg_pool(pool)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT))

    @queuer.entrypoint("post")  # type: ignore[untyped-decorator, unused-ignore]  # as aiohttp
    async def post(job: Any) -> None:
        number, due = json.loads(job.payload)
        url = f"{RECEIVER}/j/{number}/{due}" if due else f"{RECEIVER}/j/{number}"
        async with session.post(url, data=body, headers={"content-type": "application/json"}) as answer:
            answer.raise_for_status()
            await answer.read()

    await queuer.run(batch_size=100)


if __name__ == "__main__":
    command, *numbers = sys.argv[1:]
    step: Any = {"install": install, "fill": fill, "work": work}[command]
    uvloop.run(step(int(numbers[0]), *map(float, numbers[1:])) if numbers else step())
