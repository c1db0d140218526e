"""Intake: one delivery a request, batches, and both an API and an engine on one SQLite file."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from bench.contender import Plan
from bench.ground import Ground
from bench.machine import BenchError, alone, run, running, tail
from bench.product import KEY, Api, Campana, api
from bench.table import Row

TOGETHER = 16
BATCH = 10_000
SOON = timedelta(days=1)


def post(site: Ground, count: int, rounds: int) -> list[Row]:
    """Give the rate of single requests on PostgreSQL, beside the least that could take them in."""
    ours: list[float] = []
    least: list[float] = []
    for _ in range(rounds):
        with alone(), _minimal(site) as url:
            least.append(load(site, url, count))
        product = Campana(site, "postgresql")
        with alone():
            product.prepare()
            with api(product.url, site) as (client, _):
                ours.append(load(site, client.url, count))
    notes = f"n = {count:,}, {TOGETHER} at once"
    measure, unit = "single POST", "requests/s"
    return [
        Row(measure=measure, subject="minimal FastAPI with one INSERT", unit=unit, values=least, notes=notes),
        Row(measure=measure, subject="Campana on PostgreSQL", unit=unit, values=ours, notes=notes),
    ]


def batch(site: Ground, rounds: int) -> list[Row]:
    """Give the rate of a batch of 10,000, beside the bare INSERT of as many rows."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        url = site.fresh("postgresql")
        with alone():
            bare.append(float(run([sys.executable, "-m", "bench.bare", "many", url, str(BATCH)], env={}, log=site.log("bare"))))
        product = Campana(site, "postgresql")
        with alone():
            product.prepare()
            with product.intake() as client:
                client.put(Plan(count=1))
                ours.append(BATCH / client.put(Plan(count=BATCH)))
    measure = f"batch of {BATCH:,}"
    return [
        Row(measure=measure, subject="multi-row INSERT", unit="rows/s", values=bare),
        Row(measure=measure, subject="Campana on PostgreSQL", unit="rows/s", values=ours),
    ]


def sharing(site: Ground, count: int, rounds: int) -> list[Row]:
    """Give the rates of API and engine in one process on one SQLite file, together and each alone."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for is_posting, is_sending in ((True, False), (False, True), (True, True)):
            posted, sent = _share(site, count, is_posting=is_posting, is_sending=is_sending)
            who = "Campana on SQLite" if is_posting and is_sending else "alone on SQLite"
            if is_posting:
                found.setdefault(("API beside engine", who), []).append(posted)
            if is_sending:
                found.setdefault(("engine beside API", who), []).append(sent)
    return [Row(measure=measure, subject=who, unit="a second", values=values) for (measure, who), values in found.items()]


def _share(site: Ground, count: int, *, is_posting: bool, is_sending: bool) -> tuple[float, float]:
    product = Campana(site, "sqlite")
    with alone():
        product.prepare()
        site.receiver.reset()
        if is_sending:
            with product.intake() as client:
                client.put(Plan(count=4 * count))
        with api(product.url, site, command=("up",)) as (client, _), ThreadPoolExecutor(1) as thread:
            began = time.time()
            posting = thread.submit(load, site, client.url, count) if is_posting else None
            # The engine's share is taken while the API is under load: of what had come when that ended.
            posted = posting.result() if posting else 0.0
            if is_posting:
                sent = site.receiver.stats()["unique"] / (time.time() - began)
            else:
                sent = 4 * count / (site.receiver.wait(4 * count, seconds=120)["last"] - began)
    return posted, sent


def load(site: Ground, url: str, count: int) -> float:
    """Return the requests per second that a program of its own gets through, all of them accepted."""
    later = (datetime.now(UTC) + SOON).isoformat()
    wanted = Api(int(url.rpartition(":")[2]), site.receiver.url).wanted(0) | {"at": later}
    words = ["load", f"{url}/v1/deliveries", str(count), str(TOGETHER), KEY, json.dumps(wanted)]
    return float(run([sys.executable, "-m", "bench.bare", *words], env={}, log=site.log("load")))


@contextmanager
def _minimal(site: Ground) -> Iterator[str]:
    dsn, log = site.fresh("postgresql").replace("+asyncpg", ""), site.folder / f"minimal-{time.monotonic_ns()}.log"
    with running([[sys.executable, "-m", "bench.minimal"]], env={"DSN": dsn, "PYTHONUNBUFFERED": "1"}, log=log):
        until = time.monotonic() + 30
        while not (said := re.search(r"ready at (http://\S+)", log.read_text(errors="replace"))):
            if time.monotonic() > until:
                raise BenchError(f"the minimal API did not start; it said:\n{tail(log)}")
            time.sleep(0.01)
        yield said[1]
