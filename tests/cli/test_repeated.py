"""Processes killed in the middle of requests that carry an idempotency key, and what those who send them again find."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from campana.store import migrate
from tests import databases
from tests.cli import program

KEY = "cmp_" + "k" * 40
REQUESTS = 60
SAID = {"channel": "log", "target": {"message": "hello"}, "at": "2199-01-01T00:00:00Z"}


def _client(running: program.Program) -> httpx2.Client:
    return httpx2.Client(base_url=running.ready(), headers={"authorization": f"Bearer {KEY}"}, timeout=program.SECONDS)


def _post(client: httpx2.Client, number: int) -> httpx2.Response | None:
    try:
        return client.post("/v1/deliveries", json=SAID, headers={"idempotency-key": f"request {number}"})
    except httpx2.TransportError:
        return None


def _storm(running: program.Program, *, kill_after: int) -> Mapping[int, str]:
    """Send all of them at once and kill the server when so many are answered; return which were answered what."""
    known, enough = dict[int, str](), threading.Event()

    def send(number: int) -> None:
        answer = _post(client, number)
        if answer is not None and answer.status_code == 201:
            known[number] = answer.json()["id"]
        if len(known) >= kill_after:
            enough.set()

    with _client(running) as client, ThreadPoolExecutor(12) as crowd:
        sent = [crowd.submit(send, number) for number in range(REQUESTS)]
        assert enough.wait(program.SECONDS)
        running.process.kill()
        for one in sent:
            one.result()
    return known


def _ask(url: str, statement: str) -> int:
    """The number that a statement comes to, or touches."""
    if not url.startswith("sqlite"):
        rows = databases.ask(url, statement)
        return int(rows[0][0]) if rows else 0
    with contextlib.closing(sqlite3.connect(url.partition(":///")[2], isolation_level=None)) as connection:
        row = connection.execute(statement).fetchone()
    return 0 if row is None else int(row[0])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_process_answers_the_same_after_it_and_nothing_is_made_twice(database_url: str, tmp_path: Path) -> None:
    asyncio.run(migrate.upgrade(database_url))
    databases.clear(database_url, keep=("alembic_version", "campana_schema", "campana_migration_lock"))
    said = {"DATABASE_URL": database_url, "CAMPANA_BOOTSTRAP_KEY": KEY, "CAMPANA_SECRET_KEY": "s" * 40}
    known: dict[int, str] = {}
    for kill_after in (5, 20, 40):
        with program.start(tmp_path, "up", "--port", "0", **said) as running:
            told = _storm(running, kill_after=kill_after)
        assert {number: known[number] for number in known.keys() & told.keys()}.items() <= told.items()
        known |= told
        _ask(database_url, "update idempotency_keys set held_until = 0")
    with program.start(tmp_path, "up", "--port", "0", **said) as running, _client(running) as client:
        answers = [_post(client, number) for number in range(REQUESTS)]
        ids = {number: answer.json()["id"] for number, answer in enumerate(answers) if answer is not None}
    assert ids.items() >= known.items()
    assert len(set(ids.values())) == REQUESTS
    assert _ask(database_url, "select count(*) from deliveries") == REQUESTS
