"""Lateness: from the instant that something is due to its arrival, at a steady pace; and wake-up: from an API's answer."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from bench.contender import Contender, Plan
from bench.ground import NAMES, Ground
from bench.machine import BenchError, Usage, alone, percentile, run
from bench.product import Campana
from bench.table import Row

WARM = 3.0
"""Seconds that a contender has to start before anything is put in."""
LEAD = 3.0
"""Seconds from then until the first is due."""


def steady(site: Ground, contenders: Sequence[Contender], rate: float, seconds: float) -> Iterator[Row]:
    """Return rows of lateness for contenders, each behind the limit of its kind of database."""
    for kind in dict.fromkeys(contender.kind for contender in contenders):
        yield from _rows(f"limit on {NAMES[kind]}", _limit(site, kind, int(rate * seconds), rate), None)
    for contender in contenders:
        late, foreign = _lateness(site, contender, int(rate * seconds), rate)
        yield from _rows(contender.name, late, foreign)


def _rows(subject: str, late: dict[str, Any], foreign: float | None) -> list[Row]:
    print(f"lateness of {subject}: {late}", file=sys.stderr)
    notes = f"min {late['min']}, max {late['max']} ms, n = {late['count']}"
    is_early = late["min"] < 0
    if is_early:
        notes = f"**the first came {-late['min']} ms early**; {notes}"
    return [
        Row(
            measure=f"lateness {part}",
            subject=subject,
            unit="ms",
            values=[late[part]],
            foreign=foreign,
            notes=notes,
            details={"failed": int(is_early)},
        )
        for part in ("p50", "p99")
    ]


def _lateness(site: Ground, contender: Contender, count: int, rate: float) -> tuple[dict[str, Any], float]:
    with alone():
        contender.prepare()
        site.receiver.reset()
        with contender.intake() as intake, contender.work() as pids:
            time.sleep(WARM)
            usage, began = Usage(pids, site.pids(contender.kind), site.receiver.pid), time.monotonic()
            start = datetime.now(UTC) + timedelta(seconds=LEAD)
            intake.put(Plan(count=count, start=start, rate=rate))
            if datetime.now(UTC) > start:
                raise BenchError(f"{contender.name}: the intake took longer than {LEAD:g} s, so nothing could be on time")
            site.receiver.wait(count, seconds=LEAD + count / rate + 30)
            foreign = usage.take()["cpu_foreign"] / (time.monotonic() - began)
            late: dict[str, Any] = site.receiver.settled(count)["late"]
    return late, foreign


def _limit(site: Ground, kind: str, count: int, rate: float) -> dict[str, Any]:
    url, start = site.fresh(kind), time.time() + LEAD
    site.receiver.reset()
    with alone():
        words = ["lateness", url, site.receiver.url, str(count), str(start), str(rate)]
        run([sys.executable, "-m", "bench.bare", *words], env={}, log=site.log("bare"))
        late: dict[str, Any] = site.receiver.settled(count)["late"]
    return late


def wake_up(site: Ground, kinds: Sequence[str], count: int) -> list[Row]:
    """Return how long after an API's answer, in another process, a delivery that is due at once is at the receiver."""
    rows: list[Row] = []
    for kind in kinds:
        product = Campana(site, kind)
        waits, answers, foreign = _wake_ups(site, product, count)
        notes = f"max {max(waits):.1f} ms, n = {count}; the answer itself took {median(answers):.1f} ms (median)"
        for part, value in (("p50", median(waits)), ("p99", percentile(waits, 0.99))):
            rows.append(
                Row(
                    measure=f"wake-up {part}",
                    subject=product.name,
                    unit="ms",
                    values=[value],
                    foreign=foreign,
                    notes=notes,
                )
            )
    return rows


def _wake_ups(site: Ground, product: Campana, count: int) -> tuple[list[float], list[float], float]:
    dice, waits, answers = random.Random(1), [], []
    with alone():
        product.prepare()
        site.receiver.reset()
        with product.intake() as client, product.work() as pids:
            time.sleep(WARM)
            usage, began = Usage(pids, site.pids(product.kind), site.receiver.pid), time.monotonic()
            for number in range(count):
                # over a whole second, so that every phase of the engine's tick is met alike
                time.sleep(dice.uniform(0.05, 1.05))
                body = json.dumps(client.wanted(number)).encode()
                asked = time.time()
                client.post("/v1/deliveries", body)
                answered = time.time()
                site.receiver.wait(number + 1, seconds=10)
                waits.append(1000 * ((site.receiver.came_at(number) or 0) - answered))
                answers.append(1000 * (answered - asked))
            # the API's own work counts as foreign here, so this share is an upper bound
            foreign = usage.take()["cpu_foreign"] / (time.monotonic() - began)
            site.receiver.settled(count)
    return waits, answers, foreign
