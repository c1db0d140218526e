"""Dispatch: rows that are due, claimed, posted to the receiver, and their outcome durable; and the intake before it.

The rate is net of the start: `(n - 1) / (wall(n) - wall(1))`, where a wall runs from the start of the processes to the last
arrival at the receiver, and wall(1) is the median of the rounds. All contenders run once in each round, so that what changes
on the machine meets all of them.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from bench.contender import Contender, Plan, Record
from bench.ground import Ground
from bench.machine import BenchError, Usage, alive, alone
from bench.table import Row

RECORD_SECONDS = 10
SECONDS = 180
SHORTEST = 0.1
"""Seconds of net work below which a run can't be told from the noise of its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One contender's work, once."""

    count: int
    boot: float
    wall: float
    intake: float
    connections: int
    signed: int
    usage: dict[str, float]
    transactions: float | None

    def rate(self, boot: float) -> float:
        """Return the deliveries per second, net of a start that took so long."""
        net = self.wall - boot
        if net < SHORTEST:
            raise BenchError(f"{self.count} deliveries took {net:.2f} s more than the start: take a larger --count")
        return (self.count - 1) / net

    @property
    def foreign(self) -> float:
        """Share of a core that others took meanwhile."""
        return self.usage["cpu_foreign"] / self.wall


def measure(site: Ground, contender: Contender, count: int) -> Run:
    """Return a run that lost nothing, sent nothing twice and recorded everything; else raise BenchError."""
    with alone():
        contender.prepare()
        with contender.intake() as intake:
            intake.put(Plan(count=1))
            boot, _, _ = _wall(site, contender, 1, 1)
            taken = intake.put(Plan(count=count))
        before = contender.transactions()
        wall, usage, stats = _wall(site, contender, count, count + 1)
        # PostgreSQL's processes tell of their transactions when they end, or are idle: by now they are.
        after = contender.transactions()
    return Run(
        count=count,
        boot=boot,
        wall=wall,
        intake=count / taken,
        connections=stats["opened"],
        signed=stats["signed"],
        usage=usage,
        transactions=None if before is None or after is None else (after - before) / count,
    )


def _wall(site: Ground, contender: Contender, count: int, on_record: int) -> tuple[float, dict[str, float], dict[str, int]]:
    site.receiver.reset()
    usage = Usage([], site.pids(contender.kind), site.receiver.pid)
    began = time.time()
    with contender.work() as pids:
        usage.workers = pids
        last = site.receiver.wait(count, seconds=SECONDS, alive=lambda: alive(pids))["last"]
        used = usage.take()
        stats = site.receiver.settled(count)
        if contender.signs and stats["signed"] != count:
            raise BenchError(f"expected {count} signed requests, got {stats['signed']}")
        _await_record(contender, on_record)
    return last - began, used, stats


def _await_record(contender: Contender, count: int) -> None:
    until, record = time.monotonic() + RECORD_SECONDS, Record(done=-1)
    while record.done < count and time.monotonic() < until:
        record = contender.record()
        time.sleep(0.1)
    record.check(count)


def compare(site: Ground, contenders: Sequence[tuple[Contender, int]], rounds: int) -> list[Row]:
    """Return the dispatch and intake rates of contenders, each given with its number of deliveries."""
    runs: dict[int, list[Run]] = defaultdict(list)
    failures: dict[int, list[str]] = defaultdict(list)
    for number in range(rounds):
        for index, (contender, count) in enumerate(contenders):
            try:
                run = measure(site, contender, count)
            except BenchError as error:
                failures[index].append(str(error))
                print(f"round {number + 1}: {_title(contender)}: {error}", file=sys.stderr)
                continue
            runs[index].append(run)
            print(
                f"round {number + 1}: {_title(contender)}: {run.wall:.2f} s, of which the start {run.boot:.2f} s "
                f"(intake {run.intake:,.0f}/s, others {run.foreign:.0%} of a core)",
                file=sys.stderr,
            )
    dispatch = [_row(c, count, runs[i], len(failures[i])) for i, (c, count) in enumerate(contenders) if runs[i]]
    intake = [
        Row(
            measure="batch intake",
            subject=contender.name,
            unit="deliveries/s",
            values=[run.intake for run in runs[index]],
            notes=f"n = {count:,}",
        )
        for index, (contender, count) in enumerate(contenders)
        if runs[index] and contender.processes == 1
    ]
    return dispatch + intake


def _title(contender: Contender) -> str:
    return f"{contender.name}, {contender.processes} process{'es' if contender.processes > 1 else ''}"


def _row(contender: Contender, count: int, runs: Sequence[Run], failed: int) -> Row:
    workers, database = (1000 * median(run.usage[name] for run in runs) / count for name in ("cpu_workers", "cpu_database"))
    # one start says little on a busy machine
    boot = median(run.boot for run in runs)
    notes = [f"n = {count:,}", f"CPU ms each: {workers:.3f} workers, {database:.3f} database"]
    if contender.signs:
        notes.append("signed")
    if runs[0].transactions is not None:
        notes.append(f"{median(run.transactions or 0 for run in runs):.3f} transactions each")
    if failed:
        notes.append(f"**{failed} run(s) failed**")
    return Row(
        measure="dispatch",
        subject=contender.name,
        processes=contender.processes,
        unit="deliveries/s",
        values=[run.rate(boot) for run in runs],
        foreign=mean(run.foreign for run in runs),
        notes="; ".join(notes),
        details={
            "count": count,
            "boot": [round(run.boot, 3) for run in runs],
            "wall": [round(run.wall, 3) for run in runs],
            "usage": [run.usage for run in runs],
            "transactions": [run.transactions for run in runs],
            "signed": [run.signed for run in runs],
            "connections": [run.connections for run in runs],
            "failed": failed,
        },
    )
