"""Campana as a contender: `campana migrate`, `campana api` for the intake, `campana engine` for the work."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.contender import PAYLOAD_BYTES, Plan, Record
from bench.ground import NAMES, Ground
from bench.machine import BenchError, run, running, tail
from campana.domain.deliveries import State
from tests import databases

KEY = "cmp_" + "bench" * 8
PROGRAM = (sys.executable, "-m", "campana")
_EMPTY = json.dumps({"event": "reminder.due", "text": ""}, separators=(",", ":"))
PAYLOAD = {"event": "reminder.due", "text": "x" * (PAYLOAD_BYTES - len(_EMPTY))}
LARGEST_BATCH = 10_000
IN_FLIGHT = 100
START_SECONDS = 30


def environment(url: str | None, **more: str) -> dict[str, str]:
    """Return the settings of a process of ours: the defaults, but 100 requests at once to one host instead of 20."""
    given = {} if url is None else {"CAMPANA_DATABASE_URL": url}
    return {
        **given,
        "CAMPANA_SECRET_KEY": "bench" * 8,
        "CAMPANA_BOOTSTRAP_KEY": KEY,
        "CAMPANA_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
        "CAMPANA_LOG_LEVEL": "WARNING",
        "CAMPANA_MAX_IN_FLIGHT": str(IN_FLIGHT),
        "CAMPANA_MAX_IN_FLIGHT_PER_HOST": str(IN_FLIGHT),
        "PYTHONUNBUFFERED": "1",
        **more,
    }


class Api:
    """A client of a running API."""

    def __init__(self, port: int, receiver: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._receiver = receiver

    def put(self, plan: Plan) -> float:
        """Put the plan in by batches; return the seconds between first request and last answer."""
        wanted = [self.wanted(number, due) for number, due in enumerate(plan.dues())]
        bodies = [
            (len(part), json.dumps(part).encode())
            for part in (wanted[start : start + LARGEST_BATCH] for start in range(0, len(wanted), LARGEST_BATCH))
        ]
        # the one of before may be idle for longer than the API keeps it
        self._connection.close()
        began = time.perf_counter()
        answers = [self.post("/v1/deliveries/batch", body) for _, body in bodies]
        took = time.perf_counter() - began
        for (count, _), answer in zip(bodies, answers, strict=True):
            taken = [item for item in json.loads(answer)["items"] if item["status"] == 201]
            if len(taken) != count:
                raise BenchError(f"expected {count} deliveries accepted, got {len(taken)}: {answer[:500]!r}")
        return took

    def wanted(self, number: int, due: datetime | None = None) -> dict[str, Any]:
        """Return one delivery as the API wants it."""
        if due is None:
            return {"channel": "webhook", "target": {"url": f"{self._receiver}/j/{number}"}, "payload": PAYLOAD}
        url = f"{self._receiver}/j/{number}/{round(due.timestamp() * 1e6)}"
        return {"channel": "webhook", "target": {"url": url}, "payload": PAYLOAD, "at": due.isoformat()}

    def post(self, path: str, body: bytes) -> bytes:
        """Return the answer to a request that was accepted."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        try:
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
            said = answer.read()
        except OSError as error:
            raise BenchError(f"{path} was not answered: {error!r}") from error
        if answer.status >= 300:
            raise BenchError(f"{path} answered {answer.status}: {said[:500]!r}")
        return said


@contextlib.contextmanager
def api(url: str | None, site: Ground, *, command: Sequence[str] = ("api",), **more: str) -> Iterator[tuple[Api, int]]:
    """Run `campana api` (or `up`) on a free port; gives a client and the process id."""
    log = site.folder / f"api-{time.monotonic_ns()}.log"
    with running([[*PROGRAM, *command, "--port", "0"]], env=environment(url, **more), log=log) as (process,):
        until = time.monotonic() + START_SECONDS
        while not (said := re.search(r"ready at http://127\.0\.0\.1:(\d+)", log.read_text(errors="replace"))):
            if process.poll() is not None or time.monotonic() > until:
                raise BenchError(f"campana {command[0]} did not start; it said:\n{tail(log)}")
            time.sleep(0.01)
        yield Api(int(said[1]), site.receiver.url), process.pid


@dataclass
class Campana:
    """The product on one kind of database."""

    site: Ground
    kind: str
    processes: int = 1
    url: str = ""
    signs: bool = True
    """The project has a signing secret from its first start on, without anybody's doing."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"Campana on {NAMES[self.kind]}"

    def prepare(self) -> None:
        """An empty database of this version's schema is there."""
        self.url = self.site.fresh(self.kind)
        run([*PROGRAM, "migrate"], env=environment(self.url), log=self.site.log("migrate"))

    @contextlib.contextmanager
    def intake(self) -> Iterator[Api]:
        """Run an API process."""
        with api(self.url, self.site) as (client, _):
            yield client

    @contextlib.contextmanager
    def work(self) -> Iterator[Sequence[int]]:
        """Run the engines."""
        log = self.site.log(f"engine-{self.kind}")
        commands = [[*PROGRAM, "engine"]] * self.processes
        with running(commands, env=environment(self.url), log=log) as processes:
            yield [process.pid for process in processes]
        said = log.read_text(errors="replace").strip()
        if said:
            raise BenchError(f"the engine warned:\n{said[-2000:]}")

    def record(self) -> Record:
        """Return how many deliveries are completed and how many attempts are kept."""
        done = f"SELECT count(*) FROM deliveries WHERE state = {int(State.COMPLETED)} AND attempt_count = 1"
        return Record(done=self._one(done), attempts=self._one("SELECT count(*) FROM attempts WHERE outcome = 'delivered'"))

    def transactions(self) -> int | None:
        """Return PostgreSQL's own count; it lags by up to a second."""
        return committed(self.url) if self.kind == "postgresql" else None

    def under_way(self) -> int:
        """Return how many deliveries are claimed and not settled."""
        return self._one(f"SELECT count(*) FROM deliveries WHERE state = {int(State.PROCESSING)}")

    def _one(self, question: str) -> int:
        return int(_sqlite(self.url, question) if self.kind == "sqlite" else databases.ask(self.url, question)[0][0])


def committed(url: str) -> int:
    """Return how many transactions a PostgreSQL database has committed."""
    rows = databases.ask(url, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return int(rows[0][0])


def _sqlite(url: str, question: str) -> Any:
    import sqlite3

    connection = sqlite3.connect(Path(url.removeprefix("sqlite:///")))
    try:
        return connection.execute(question).fetchone()[0]
    finally:
        connection.close()
