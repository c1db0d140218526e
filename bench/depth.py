"""Depth: what the store does with many rows, many tenants, closed scopes, lanes and the ledger, each beside the same without."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.ground import NAMES, Ground
from bench.machine import alone, run
from bench.product import PROGRAM, environment
from bench.table import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything; the full ones are those of the bars."""

    deep: int = 1_000_000
    shallow: int = 10_000
    rounds: int = 50
    due: int = 1_000_000
    small: int = 10_000
    held: int = 500_000
    calls: int = 30_000
    people: int = 10_000
    keys: int = 2_000


QUICK = Sizes(deep=100_000, rounds=20, due=50_000, small=1_000, held=20_000, calls=3_000, people=1_000, keys=500)
Found = dict[str, Any]


def _store(site: Ground, kind: str, command: str, *numbers: int) -> Found:
    url = site.fresh(kind)
    with alone():
        run([*PROGRAM, "migrate"], env=environment(url), log=site.log("migrate"))
        words = [command, url, *map(str, numbers)]
        said = run([sys.executable, "-m", "bench.store", *words], env={}, log=site.log("store"))
        # Above it may stand what the store had to say of a deadlock.
        found: Found = json.loads(said.splitlines()[-1])
    print(f"{command} {' '.join(map(str, numbers))} on {NAMES[kind]}: {found}", file=sys.stderr)
    return found


def _row(  # noqa: PLR0917 - what a row is made of
    measure: str, subject: str, unit: str, found: Sequence[Found], key: str, failed: str = "", notes: str = ""
) -> Row:
    return Row(
        measure=measure,
        subject=subject,
        unit=unit,
        values=[one[key] for one in found],
        notes=f"**{failed}**; {notes}" if failed else notes,
        details={"failed": int(bool(failed)), "runs": list(found)},
    )


def claims(site: Ground, kinds: Sequence[str], sizes: Sizes, rounds: int) -> Iterator[Row]:
    """Give the time of a claim of 100 from a deep queue, and from a shallow one."""
    for kind in kinds:
        by_depth: dict[int, list[Found]] = {sizes.shallow: [], sizes.deep: []}
        for _ in range(rounds):
            for depth, found in by_depth.items():
                found.append(_store(site, kind, "claims", depth, min(sizes.rounds, depth // 200)))
        for title, depth in (("shallow", sizes.shallow), ("deep", sizes.deep)):
            subject = f"Campana on {NAMES[kind]}" if title == "deep" else f"{title} queue on {NAMES[kind]}"
            yield _row("claim of 100", subject, "ms", by_depth[depth], "ms", notes=f"{depth:,} rows due")
            yield _row("claim and settle", subject, "rows/s", by_depth[depth], "rate", notes=f"{depth:,} rows due")


def fairness(site: Ground, kinds: Sequence[str], sizes: Sizes, rounds: int) -> Iterator[Row]:
    """Give the drain behind one tenant's backlog, fair and not."""
    for kind in kinds:
        plain: list[Found] = []
        fair: list[Found] = []
        for _ in range(rounds):
            plain.append(_store(site, kind, "fairness", sizes.due, sizes.small, 0))
            fair.append(_store(site, kind, "fairness", sizes.due, sizes.small, 1))
        missed = "" if all(one["served"] == sizes.small for one in fair) else "not every small tenant was served"
        notes = f"one tenant with {sizes.due:,} due rows before {sizes.small:,} with one each"
        subject = f"Campana on {NAMES[kind]}"
        yield _row("fair drain", f"oldest first on {NAMES[kind]}", "rows/s", plain, "rate", notes=notes)
        yield _row("fair drain", subject, "rows/s", fair, "rate", missed, notes)
        yield _row("last small tenant served", subject, "s", fair, "longest", missed, notes)


def parking(site: Ground, kinds: Sequence[str], sizes: Sizes, rounds: int) -> Iterator[Row]:
    """Give the time of a claim beside parked rows, and without any."""
    for kind in kinds:
        none: list[Found] = []
        beside: list[Found] = []
        for _ in range(rounds):
            none.append(_store(site, kind, "parking", 0, sizes.rounds))
            beside.append(_store(site, kind, "parking", sizes.held, sizes.rounds))
        again = "rows were parked more than once" if any(one["again"] for one in beside) else ""
        subject, notes = f"Campana on {NAMES[kind]}", f"{sizes.held:,} rows of a tenant that is switched off"
        yield _row("claim beside parked rows", f"none parked on {NAMES[kind]}", "ms", none, "ms")
        yield _row("claim beside parked rows", subject, "ms", beside, "ms", again, notes)
        yield _row("parking", subject, "rows/s", beside, "rate", again, notes)


def lanes(site: Ground, kinds: Sequence[str], sizes: Sizes, rounds: int) -> Iterator[Row]:
    """Give the drain of calls, one at a time to each person, and without that."""
    for kind in kinds:
        without: list[Found] = []
        laned: list[Found] = []
        for _ in range(rounds):
            without.append(_store(site, kind, "lanes", sizes.calls, 0))
            laned.append(_store(site, kind, "lanes", sizes.calls, sizes.people))
        overlaps = sum(one["overlaps"] for one in laned)
        failed = f"{overlaps} overlaps" if overlaps else ""
        notes = f"{sizes.calls:,} calls to {sizes.people:,} people"
        yield _row("lanes", f"without lanes on {NAMES[kind]}", "rows/s", without, "rate", notes=notes)
        yield _row("lanes", f"Campana on {NAMES[kind]}", "rows/s", laned, "rate", failed, notes)


def ledger(site: Ground, kinds: Sequence[str], sizes: Sizes, rounds: int) -> Iterator[Row]:
    """Give claims on the ledger, beside the bare INSERT where there is one to be beside (PostgreSQL)."""
    for kind in kinds:
        for measure, count, batch in (("ledger claim", sizes.keys, 1), ("ledger claim, batches of 500", 20 * sizes.keys, 500)):
            bare: list[Found] = []
            ours: list[Found] = []
            for _ in range(rounds):
                if kind == "postgresql":
                    bare.append(_store(site, kind, "bare-ledger", count, batch))
                ours.append(_store(site, kind, "ledger", count, batch))
            if bare:
                yield _row(measure, f"bare INSERT on {NAMES[kind]}", "keys/s", bare, "rate")
            yield _row(measure, f"Campana on {NAMES[kind]}", "keys/s", ours, "rate", notes=f"{count:,} keys, 8 at once")
