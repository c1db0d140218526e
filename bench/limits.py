"""Limits: what the databases and the HTTP client do alone, so that the product's figures have something to be held against."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.bare import WARM_UP
from bench.ground import NAMES, Ground
from bench.machine import alone, run
from bench.table import Row


def measure(site: Ground, kinds: Sequence[str], count: int, rounds: int) -> list[Row]:
    """Return the rates of the bare client, of plain claims and settles, and of single INSERTs."""
    rows = [
        _row("bare HTTP client", "100 in flight", "requests/s", [_client(site, count) for _ in range(rounds)], count),
    ]
    for kind in kinds:
        singles = max(500, count // 10)
        drained = [_bare(site, "drain", site.fresh(kind), str(count)) for _ in range(rounds)]
        inserted = [_bare(site, "insert", site.fresh(kind), str(singles)) for _ in range(rounds)]
        rows.append(_row("claim and settle in plain SQL", f"limit on {NAMES[kind]}", "rows/s", drained, count))
        rows.append(_row("single INSERT, one connection", f"limit on {NAMES[kind]}", "rows/s", inserted, singles))
    return rows


def _client(site: Ground, count: int) -> float:
    site.receiver.reset()
    rate = _bare(site, "client", site.receiver.url, str(count))
    site.receiver.settled(WARM_UP + count)
    return rate


def _bare(site: Ground, *words: str) -> float:
    with alone():
        return float(run([sys.executable, "-m", "bench.bare", *words], env={}, log=site.log("bare")))


def _row(measure: str, subject: str, unit: str, values: Sequence[float], count: int) -> Row:
    print(f"{measure}, {subject}: {', '.join(f'{value:,.0f}' for value in values)}", file=sys.stderr)
    return Row(measure=measure, subject=subject, unit=unit, values=values, notes=f"n = {count:,}")
