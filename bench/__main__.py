"""`python -m bench`: what Campana does, beside its peers and beside the limits of the machine."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import bars, depth, dispatch, idle, intake, lateness, limits, table
from bench.contender import Contender
from bench.ground import KINDS, Ground, ground
from bench.machine import BenchError, describe
from bench.peers.contenders import PEERS
from bench.product import Campana
from bench.table import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for."""

    count: int
    rounds: int
    kinds: Sequence[str]
    peers: Sequence[str]
    quick: bool

    @property
    def sizes(self) -> depth.Sizes:
        """How deep the queues are."""
        return depth.QUICK if self.quick else depth.Sizes()


PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def _dispatch(site: Ground, wanted: Wanted) -> list[Row]:
    contenders: list[tuple[Contender, int]] = []
    if "postgresql" in wanted.kinds:
        for processes in (1, 2):
            contenders.append((Campana(site, "postgresql", processes), wanted.count))
            contenders += [(PEERS[name](site, processes), wanted.count) for name in wanted.peers]
    contenders += [(Campana(site, kind), max(1, wanted.count // 2)) for kind in wanted.kinds if kind != "postgresql"]
    return dispatch.compare(site, contenders, wanted.rounds)


def _lateness(site: Ground, wanted: Wanted) -> Iterable[Row]:
    contenders: list[Contender] = [Campana(site, kind) for kind in wanted.kinds]
    if "postgresql" in wanted.kinds:
        contenders += [PEERS[name](site) for name in wanted.peers]
    return lateness.steady(site, contenders, rate=50, seconds=2 if wanted.quick else 10)


def _wake_up(site: Ground, wanted: Wanted) -> list[Row]:
    return lateness.wake_up(site, wanted.kinds, count=10 if wanted.quick else 60)


def _limits(site: Ground, wanted: Wanted) -> list[Row]:
    return limits.measure(site, wanted.kinds, wanted.count, wanted.rounds)


def _idle(site: Ground, wanted: Wanted) -> list[Row]:
    return idle.measure(site, wanted.kinds, 3 if wanted.quick else 20, wanted.rounds)


Deep = Callable[[Ground, Sequence[str], depth.Sizes, int], Iterable[Row]]
Measure = Callable[[Ground, Wanted], Iterable[Row]]


def _depth(measure: Deep) -> Measure:
    return lambda site, wanted: measure(site, wanted.kinds, wanted.sizes, wanted.rounds)


def _post(site: Ground, wanted: Wanted) -> list[Row]:
    return intake.post(site, 500 if wanted.quick else 5_000, wanted.rounds) if "postgresql" in wanted.kinds else []


def _batch(site: Ground, wanted: Wanted) -> list[Row]:
    return intake.batch(site, wanted.rounds) if "postgresql" in wanted.kinds else []


def _sharing(site: Ground, wanted: Wanted) -> list[Row]:
    return intake.sharing(site, 500 if wanted.quick else 5_000, wanted.rounds) if "sqlite" in wanted.kinds else []


def _memory(site: Ground, wanted: Wanted) -> list[Row]:
    return idle.backlog(site, wanted.kinds, wanted.sizes.deep)


MEASURES: dict[str, Measure] = {
    "dispatch": _dispatch,
    "lateness": _lateness,
    "wake-up": _wake_up,
    "claims": _depth(depth.claims),
    "fairness": _depth(depth.fairness),
    "parking": _depth(depth.parking),
    "lanes": _depth(depth.lanes),
    "ledger": _depth(depth.ledger),
    "post": _post,
    "batch": _batch,
    "sharing": _sharing,
    "limits": _limits,
    "idle": _idle,
    "memory": _memory,
}


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("measure", nargs="*", help=f"what to measure, of {', '.join(MEASURES)}; everything if left out")
    parser.add_argument("--only", action="append", default=[], metavar="MEASURE", help="the same, one at a time")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--quick", action="store_true", help="some ten minutes: fewer deliveries, one round")
    parser.add_argument("-n", "--count", type=int, help="deliveries of a dispatch run (20,000; quick: 5,000)")
    parser.add_argument("--rounds", type=int, help="rounds, of which the table shows the median (3; quick: 1)")
    parser.add_argument("--databases", default=",".join(KINDS), help="with commas between")
    parser.add_argument("--peers", default=",".join(PEERS), help="with commas between, or `none`")
    parser.add_argument("--out", type=Path, help="folder that results are kept in, as JSON lines")
    given = parser.parse_args(arguments)
    given.measure += given.only
    for words, known in ((given.measure, MEASURES), (given.databases.split(","), KINDS), (given.peers.split(","), PEERS)):
        if unknown := [word for word in words if word not in known and word != "none"]:
            parser.error(f"expected some of {', '.join(known)}, got {', '.join(unknown)}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and return 0 if every run that was made counts."""
    given = _read(arguments)
    wanted = Wanted(
        count=given.count or (5_000 if given.quick else 20_000),
        rounds=given.rounds or (1 if given.quick else 3),
        kinds=[kind for kind in KINDS if kind in given.databases.split(",")],
        peers=[name for name in PEERS if name in given.peers.split(",")],
        quick=given.quick,
    )
    if not sys.platform.startswith("linux"):
        print("the bench needs Linux: its receiver uses epoll, and it reads /proc", file=sys.stderr)
        return 2
    # as an interrupt does, so that nothing that was started stays behind
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    rows: list[Row] = []
    failures: list[str] = []
    began = time.monotonic()
    with ground() as site:
        for name in given.measure or MEASURES:
            try:
                # one by one: what was measured before a failure is kept
                for row in MEASURES[name](site, wanted):
                    rows.append(row)  # noqa: PERF402 - as above
            except BenchError as error:
                failures.append(f"{name}: {error}")
    machine = describe()
    text = f"{machine}; {time.monotonic() - began:,.0f} s in all\n\n{table.render(rows, bars.judged)}"
    print(text)
    if given.docs:
        table.publish(text, PAGE)
    if given.out is not None:
        print(f"\nkept in {table.keep(rows, given.out, machine, bars.judged)}", file=sys.stderr)
    for failure in failures:
        print(f"\nFAILED {failure}", file=sys.stderr)
    return 1 if failures or any(row.details.get("failed") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
