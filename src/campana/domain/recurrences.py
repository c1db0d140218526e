"""The other rules about wall times: certain times of each day, every so many days, and iCalendar's recurrences."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

_DAY = timedelta(days=1)
LAST_YEAR = 2_200


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """Times of a day, each a slot with a name, on all weekdays or some (0 is Monday)."""

    slots: Sequence[tuple[time, str]]
    weekdays: frozenset[int]

    def next_wall(self, start: datetime) -> datetime | None:
        """Return the first slot from this wall time on."""
        day, begin = start.date(), start.time()
        for _ in range(9):
            if day.weekday() in self.weekdays:
                place = bisect_left(self.slots, begin, key=lambda slot: slot[0])
                if place < len(self.slots):
                    return datetime.combine(day, self.slots[place][0])
            day, begin = day + _DAY, time.min
        return None

    def slot_of(self, wall: datetime) -> str:
        """Return the name of the slot at this wall time."""
        return next(name for at, name in self.slots if at == wall.time())


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Every so many calendar days, at the anchor's wall time."""

    anchor: datetime
    """Naive, in the schedule's zone."""
    days: int

    def next_wall(self, start: datetime) -> datetime | None:
        """Return the first of the grid's days from this wall time on, before the anchor too."""
        passed = (start.date() - self.anchor.date()).days
        number = -(-passed // self.days)
        wall = _at(self.anchor, number * self.days)
        if wall is not None and wall < start:
            wall = _at(self.anchor, (number + 1) * self.days)
        return wall


def _at(anchor: datetime, days: int) -> datetime | None:
    day = anchor.date().toordinal() + days
    if not 1 <= day <= date(LAST_YEAR, 12, 31).toordinal():
        return None
    return datetime.combine(date.fromordinal(day), anchor.time())


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed:
    """Every so much real time on the anchor's grid: no drift, and no shift where clocks change."""

    anchor: datetime
    """An instant."""
    period: timedelta

    def next_after(self, at: datetime) -> datetime:
        """Return the first instant of the grid after this one."""
        return self.anchor + ((at - self.anchor) // self.period + 1) * self.period


def slots(times: Mapping[str, time]) -> Sequence[tuple[time, str]]:
    """Return named times in the order of the day."""
    return sorted((at, name) for name, at in times.items())
