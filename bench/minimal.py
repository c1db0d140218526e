"""The least that takes in a delivery: FastAPI, a model, one INSERT. What `POST /v1/deliveries` is held against.

DSN=... python -m bench.minimal                          serve on a free port, whose number is the first line
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

TABLE = "create table wanted (id bigserial primary key, channel text not null, target text not null, payload text not null)"
INSERT = "insert into wanted (channel, target, payload) values ($1, $2, $3) returning id"
MANY = "insert into wanted (channel, target, payload) select * from unnest($1::text[], $2::text[], $3::text[])"


class Wanted(BaseModel):
    """What is said of a delivery."""

    channel: str
    target: dict[str, Any]
    payload: Any = None


@contextlib.asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    app.state.pool = await asyncpg.create_pool(os.environ["DSN"], min_size=10, max_size=10)
    await app.state.pool.execute(TABLE)
    yield
    await app.state.pool.close()


app = FastAPI(lifespan=_life)


@app.post("/v1/deliveries", status_code=201)
async def create(wanted: Wanted) -> dict[str, int]:
    """Insert it."""
    said = (wanted.channel, json.dumps(wanted.target), json.dumps(wanted.payload))
    return {"id": await app.state.pool.fetchval(INSERT, *said)}


def main() -> None:
    """Serve as `campana api` does: one process, httptools, uvloop where it is installed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"ready at http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, http="httptools")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
