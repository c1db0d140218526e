"""PGQueuer and graphile-worker as contenders, on the product's own PostgreSQL server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contender import Plan, Record
from bench.ground import Ground
from bench.machine import run, running
from bench.peers import installed
from bench.product import IN_FLIGHT, committed
from tests import databases


@dataclass
class Peer:
    """A program with the commands `install`, `fill` and `work`."""

    site: Ground
    name: str
    command: Sequence[str]
    folder: Path
    question: str
    """SQL that says how many jobs are done; `{count}` stands for how many were put in."""
    processes: int = 1
    kind: str = "postgresql"
    url: str = ""
    put_in: int = 0
    signs: bool = False

    def prepare(self) -> None:
        """An empty database of the peer's schema is there."""
        self.url, self.put_in = self.site.fresh(self.kind), 0
        self._run("install")

    @contextlib.contextmanager
    def intake(self) -> Iterator[Peer]:
        """Be the way in: each filling is a process of its own."""
        yield self

    def put(self, plan: Plan) -> float:
        """Put the plan in by the peer's own bulk call; return the seconds that it took in that process."""
        when = [] if plan.start is None else [str(plan.start.timestamp()), str(plan.rate)]
        self.put_in += plan.count
        return float(self._run("fill", str(plan.count), *when))

    @contextlib.contextmanager
    def work(self) -> Iterator[Sequence[int]]:
        """Run the workers."""
        commands = [[*self.command, "work"]] * self.processes
        with running(commands, env=self._environment(), log=self._log(), folder=self.folder) as processes:
            yield [process.pid for process in processes]

    def record(self) -> Record:
        """Return how many jobs the peer says are done; neither keeps a row per attempt as evidence of the answer."""
        return Record(done=int(databases.ask(self.url, self.question.format(count=self.put_in))[0][0]))

    def transactions(self) -> int | None:
        """Return PostgreSQL's own count."""
        return committed(self.url)

    def _run(self, *words: str) -> str:
        return run([*self.command, *words], env=self._environment(), log=self._log(), folder=self.folder)

    def _environment(self) -> dict[str, str]:
        dsn = self.url.replace("+asyncpg", "")
        return {"DSN": dsn, "RECEIVER": self.site.receiver.url, "IN_FLIGHT": str(IN_FLIGHT), "PYTHONUNBUFFERED": "1"}

    def _log(self) -> Path:
        return self.site.log(self.name)


def pgqueuer(site: Ground, processes: int = 1) -> Peer:
    """Return PGQueuer with aiohttp on uvloop, a batch of 100 and 100 connections."""
    script = str(installed.HERE / "pgqueuer_app.py")
    question = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
    return Peer(site, "PGQueuer", [str(installed.python()), script], site.folder, question, processes)


def graphile(site: Ground, processes: int = 1) -> Peer:
    """Return graphile-worker with undici, tuned."""
    node, folder = installed.node()
    question = "SELECT {count} - count(*) FROM graphile_worker._private_jobs"
    return Peer(site, "graphile-worker", [str(node), "graphile.js"], folder, question, processes)


PEERS = {"pgqueuer": pgqueuer, "graphile": graphile}
