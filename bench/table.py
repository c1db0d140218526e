"""Results: a row per measured thing, printed as one table and, if a folder is given, kept as JSON lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

HEADS = ("measure", "of", "median", "unit", "spread", "beside", "bar", "foreign CPU", "notes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured thing: a value per round, and what else was seen."""

    measure: str
    subject: str
    unit: str
    values: Sequence[float]
    processes: int = 1
    foreign: float | None = None
    """CPU seconds of others during the runs, as a share of one core; None where it was not measured."""
    notes: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.values)

    @property
    def title(self) -> str:
        """Who it is about."""
        return self.subject if self.processes == 1 else f"{self.subject}, {self.processes} processes"


def shown(value: float) -> str:
    """Return a number with as many digits as mean anything."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratios(row: Row, rows: Sequence[Row], beside: Mapping[str, str]) -> str:
    """Return how the row stands to others of its measure; `beside` names each by its title, and how to call it."""
    others = {other.title: other for other in rows if other.measure == row.measure and other is not row}
    found = [
        f"{row.value / others[title].value:.2f} of {word}"
        for title, word in beside.items()
        if title in others and others[title].value
    ]
    return ", ".join(found)


def render(rows: Sequence[Row], judged: Callable[[Row, Sequence[Row]], str]) -> str:
    """Return the table, in markdown, with the verdict on each row."""
    lines = [f"| {' | '.join(HEADS)} |", "|---|---|--:|---|--:|---|---|--:|---|"]
    for row in rows:
        low, high = min(row.values), max(row.values)
        cells = (
            row.measure,
            row.title,
            f"**{shown(row.value)}**",
            row.unit,
            f"{shown(low)} to {shown(high)}" if len(row.values) > 1 else "1 run",
            ratios(row, rows, _beside(row)),
            judged(row, rows),
            "not measured" if row.foreign is None else f"{row.foreign:.0%}",
            row.notes,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _beside(row: Row) -> dict[str, str]:
    many = "" if row.processes == 1 else f", {row.processes} processes"
    if not row.subject.startswith("Campana"):
        return {}
    own = {} if row.title == "Campana on PostgreSQL" else {"Campana on PostgreSQL": "one process on PostgreSQL"}
    limit = f"limit on {row.subject.removeprefix('Campana on ')}"
    peers = {f"{name}{many}": name for name in ("PGQueuer", "graphile-worker")} if "PostgreSQL" in row.subject else {}
    return {**peers, **own, limit: "the limit", "import fastapi": "import fastapi"}


START, END = "<!-- figures -->", "<!-- end of figures -->"


def publish(text: str, page: Path) -> None:
    """Put the table between the marks of a page, in the place of the one before."""
    before, mark, rest = page.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"expected {START} and {END} in {page}, got a page without them")
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def keep(rows: Sequence[Row], folder: Path, machine: str, judged: Callable[[Row, Sequence[Row]], str]) -> Path:
    """Append the rows to a file of the folder, named by the day; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y-%m-%d')}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            said = {"at": round(time.time()), "machine": machine, "median": row.value, "bar": judged(row, rows), **asdict(row)}
            file.write(json.dumps(said, ensure_ascii=False) + "\n")
    return path
