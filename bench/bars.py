"""The bars: how good is good enough, as data. A figure is judged beside others of its run, where there are any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.ground import NAMES
from bench.table import Row, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One measured thing must be at least, or at most, so much: of another row's figure, or of its own unit."""

    measure: str
    title: str
    least: float | None = None
    most: float | None = None
    beside: str | None = None
    """The title of the row of the same measure that it is divided by."""

    def value(self, row: Row, rows: Sequence[Row]) -> float | None:
        """Return what is judged: round by round where both had the same rounds, since they took turns in them."""
        if self.beside is None:
            return row.value
        other = next((one for one in rows if (one.measure, one.title) == (self.measure, self.beside)), None)
        if other is None or not all(other.values):
            return None
        if len(other.values) == len(row.values):
            return median(mine / theirs for mine, theirs in zip(row.values, other.values, strict=True))
        return row.value / other.value

    def judge(self, row: Row, rows: Sequence[Row]) -> str:
        """Return `met` or `missed`, what was asked and what came."""
        value = self.value(row, rows)
        if value is None:
            return "not judged: nothing to stand beside"
        asked, sign = (self.least, "≥") if self.least is not None else (self.most or 0.0, "≤")
        is_met = value >= asked if sign == "≥" else value <= asked
        of = row.unit if self.beside is None else f"of {self.beside}"
        if is_met:
            return f"met: {shown(value)}, asked {sign} {asked:g} {of}"
        away = 1 - value / asked if sign == "≥" else value / asked - 1
        return f"**missed by {away:.0%}**: {shown(value)}, asked {sign} {asked:g} {of}"


def _bars() -> Iterator[Bar]:
    product = "Campana on PostgreSQL"
    yield Bar(measure="dispatch", title=product, least=2, beside="PGQueuer")
    yield Bar(measure="dispatch", title=f"{product}, 2 processes", least=1.5, beside="PGQueuer, 2 processes")
    yield Bar(measure="dispatch", title="Campana on SQLite", least=0.4, beside=product)
    yield Bar(measure="wake-up p99", title=product, most=50)
    yield Bar(measure="single POST", title=product, least=0.5, beside="minimal FastAPI with one INSERT")
    yield Bar(measure="batch of 10,000", title=product, least=0.3, beside="multi-row INSERT")
    yield Bar(measure="ledger claim", title=product, least=0.6, beside="bare INSERT on PostgreSQL")
    yield Bar(measure="ledger claim, batches of 500", title=product, least=0.5, beside="bare INSERT on PostgreSQL")
    yield Bar(measure="idle transactions", title=product, most=1.2)
    for measure in ("API beside engine", "engine beside API"):
        yield Bar(measure=measure, title="Campana on SQLite", least=0.5, beside="alone on SQLite")
    yield Bar(measure="start to first delivery", title="Campana up, empty folder", most=5, beside="import fastapi")
    for name in NAMES.values():
        title = f"Campana on {name}"
        yield Bar(measure="lateness p99", title=title, most=3, beside=f"limit on {name}")
        yield Bar(measure="claim of 100", title=title, most=1.2, beside=f"shallow queue on {name}")
        yield Bar(measure="fair drain", title=title, least=0.5, beside=f"oldest first on {name}")
        yield Bar(measure="last small tenant served", title=title, most=2)
        yield Bar(measure="claim beside parked rows", title=title, most=1.2, beside=f"none parked on {name}")
        yield Bar(measure="lanes", title=title, least=0.5, beside=f"without lanes on {name}")
        yield Bar(measure="idle engine", title=title, most=1)
        yield Bar(measure="memory, 100 in flight", title=title, most=150)
        yield Bar(measure="memory beside a backlog", title=title, most=1.2, beside=f"empty on {name}")


BARS = {(bar.measure, bar.title): bar for bar in _bars()}


def judged(row: Row, rows: Sequence[Row]) -> str:
    """Return the verdict on a row, or nothing where no bar stands over it."""
    bar = BARS.get((row.measure, row.title))
    return bar.judge(row, rows) if bar is not None else ""
