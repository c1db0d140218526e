"""`python -m tests.chaos`: kill servers and engines, and count. Exit code 1 on any breach; the evidence is kept then."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests import programs
from tests.chaos.arena import Report, run
from tests.chaos.plan import Plan

_COLUMNS = {
    "kills": "kill",
    "freezes": "freeze",
    "restarts": "restart",
    "commits": "commit",
    "cuts": "cut",
    "deliveries": "deliveries",
    "effects": "effects",
    "doubles": "doubles",
    "ambiguous": "ambiguous",
    "interrupted": "interrupted",
    "lost": "lost",
    "next send s (max)": "resumed",
    "taken over s (max)": "noticed",
    "settled s": "settled",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--databases", default="sqlite,postgresql,mariadb", help="with commas between")
    parser.add_argument("--kills", type=int, default=20, help="kill -9 of engine, api or up")
    parser.add_argument("--freezes", type=int, default=2, help="SIGSTOP for longer than the lease")
    parser.add_argument("--restarts", type=int, default=2, help="of the database server, most of them by kill -9")
    parser.add_argument("--commits", type=int, default=5, help="COMMITs swallowed, most of them after they landed")
    parser.add_argument("--cuts", type=int, default=2, help="of all connections to the database at once")
    parser.add_argument("--receivers", type=int, default=2, help="kill -9 of the receiver")
    parser.add_argument("--engines", type=int, default=2, help="engine processes on a database server")
    parser.add_argument("--rate", type=int, default=120, help="deliveries asked for, a second")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--keep", action="store_true", help="keep the evidence of a run without a breach too")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _row(report: Report) -> list[str]:
    cells = [report.kind]
    for name in _COLUMNS.values():
        value = report.figures[name]
        most = report.figures.get(f"{name}_max")
        cells.append(f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}" + (f" ({most:.1f})" if most else ""))
    return cells


def _show(rows: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        _say("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def main() -> int:
    """Run on each database in turn, print the table, and say what broke."""
    given = vars(_arguments())
    kinds = given.pop("databases").split(",")
    keep = given.pop("keep")
    plan = Plan(**given)
    folder = Path(tempfile.mkdtemp(prefix="campana-chaos-"))
    _say(f"seed {plan.seed}, evidence in {folder}")
    reports = []
    for kind in kinds:
        if kind != "sqlite":
            programs.provide(kind)
        (folder / kind).mkdir()
        reports.append(asyncio.run(run(kind, plan, folder / kind)))
        _say(f"{kind}: {len(reports[-1].breaches)} breaches")
        for breach in reports[-1].breaches[:20]:
            _say(f"  {breach}")
    _show([["", *_COLUMNS], *map(_row, reports)])
    if any(report.breaches for report in reports):
        _say(f"broken: evidence in {folder}")
        return 1
    if not keep:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
