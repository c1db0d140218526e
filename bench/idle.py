"""Idle: what an engine costs that has nothing to do, what it holds, and how soon a first start delivers."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from bench.ground import NAMES, Ground
from bench.machine import BenchError, Usage, alone, memory, run, running
from bench.product import IN_FLIGHT, PROGRAM, Campana, api, environment
from bench.table import Row
from campana.engine.destinations import FIRST_BERTHS

MUTE = IN_FLIGHT // FIRST_BERTHS
"""Receivers that say nothing."""


def measure(site: Ground, kinds: Sequence[str], seconds: float, rounds: int) -> list[Row]:
    """Return CPU and memory of an idle engine, memory of a busy one, and the time to the first delivery."""
    rows: list[Row] = []
    for kind in kinds:
        rows += _engine(site, Campana(site, kind), seconds)
    with alone():
        first = [_first_delivery(site, number) for number in range(rounds)]
        imported = [_import_fastapi() for _ in range(rounds)]
    rows.append(Row(measure="start to first delivery", subject="import fastapi", unit="s", values=imported))
    rows.append(Row(measure="start to first delivery", subject="Campana up, empty folder", unit="s", values=first))
    return rows


def _engine(site: Ground, product: Campana, seconds: float) -> list[Row]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone())
        # Receivers that take everything and say nothing: the system completes connections that nobody accepts. One alone
        # would be given no more than a few.
        mute = [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=IN_FLIGHT)) for _ in range(MUTE)]
        ports = [one.getsockname()[1] for one in mute]
        product.prepare()
        settings = environment(product.url, CAMPANA_SHUTDOWN_GRACE_SECONDS="0")
        with running([[*PROGRAM, "engine"]], env=settings, log=site.log("idle")) as (engine,):
            time.sleep(3)
            before = product.transactions()
            usage = Usage([engine.pid], site.pids(product.kind), site.receiver.pid)
            time.sleep(seconds)
            used, quiet, after = usage.take(), memory([engine.pid]), product.transactions()
            with product.intake() as client:
                targets = [{"url": f"http://127.0.0.1:{ports[number % MUTE]}/"} for number in range(IN_FLIGHT)]
                wanted = [client.wanted(number) | {"target": target} for number, target in enumerate(targets)]
                client.post("/v1/deliveries/batch", json.dumps(wanted).encode())
            time.sleep(2)
            if engine.poll() is not None:
                raise BenchError(f"the engine on {product.kind} ended while it was measured")
            full, under_way = memory([engine.pid]), product.under_way()
            if under_way != IN_FLIGHT:
                raise BenchError(f"expected {IN_FLIGHT} deliveries in flight on {product.kind}, got {under_way}")
    share = 100 * used["cpu_workers"] / seconds
    foreign = used["cpu_foreign"] / seconds
    notes = f"over {seconds:g} s; the database: {100 * used['cpu_database'] / seconds:.2f} %"
    rows = [] if before is None or after is None else [_transactions(product, (after - before - 1) / seconds)]
    return [
        *rows,
        Row(
            measure="idle engine",
            subject=product.name,
            unit="% of a core",
            values=[share],
            foreign=foreign,
            notes=notes,
        ),
        Row(measure="memory, idle", subject=product.name, unit="MB", values=[quiet]),
        Row(measure=f"memory, {IN_FLIGHT} in flight", subject=product.name, unit="MB", values=[full]),
    ]


def _transactions(product: Campana, rate: float) -> Row:
    # One of them was the question itself.
    return Row(measure="idle transactions", subject=product.name, unit="a second", values=[rate])


def backlog(site: Ground, kinds: Sequence[str], count: int) -> list[Row]:
    """Return the memory of an idle engine on an empty database, and on one with so many rows that wait."""
    rows: list[Row] = []
    for kind in kinds:
        product = Campana(site, kind)
        with alone():
            product.prepare()
            empty = _settled_memory(site, product)
            words = [sys.executable, "-m", "bench.store", "waiting", product.url, str(count)]
            run(words, env={}, log=site.log("store"))
            full = _settled_memory(site, product)
        measure = "memory beside a backlog"
        rows.append(Row(measure=measure, subject=f"empty on {NAMES[kind]}", unit="MB", values=[empty]))
        rows.append(Row(measure=measure, subject=product.name, unit="MB", values=[full], notes=f"{count:,} rows wait"))
    return rows


def _settled_memory(site: Ground, product: Campana) -> float:
    with running([[*PROGRAM, "engine"]], env=environment(product.url), log=site.log("idle")) as (engine,):
        time.sleep(5)
        if engine.poll() is not None:
            raise BenchError(f"the engine on {product.kind} ended while it was measured")
        return memory([engine.pid])


def _first_delivery(site: Ground, number: int) -> float:
    site.receiver.reset()
    folder = site.folder / f"first-{number}-{time.monotonic_ns()}"
    began = time.time()
    with api(None, site, command=("up", "--data", str(folder))) as (client, _):
        client.post("/v1/deliveries", json.dumps(client.wanted(0)).encode())
        site.receiver.wait(1, seconds=30)
    return (site.receiver.came_at(0) or 0) - began


def _import_fastapi() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import fastapi"], check=True)
    return time.perf_counter() - began
