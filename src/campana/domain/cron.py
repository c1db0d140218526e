"""Cron: five or six fields, read strictly, and the wall times that they name.

An expression is days and times of day. The days of a month depend only on its length and on the weekday of its first, so each
of the few kinds of month is worked out once; a search goes from month to month and never from minute to minute.
"""

import calendar
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache

LONGEST = 256
REACH = 41
"""Years after which an expression that has named no day never will: all kinds of year have come by then."""

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = dict(
    zip(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], range(1, 13), strict=True)
)
_WEEKDAYS = dict(zip(["sun", "mon", "tue", "wed", "thu", "fri", "sat"], range(7), strict=True))

_PART = re.compile(r"(\*|[0-9]{1,2}|[A-Za-z]{3})(?:-([0-9]{1,2}|[A-Za-z]{3}))?(?:/([0-9]{1,2}))?", re.ASCII)
_LAST_DAY = re.compile(r"[Ll](?:-([0-9]{1,2}))?", re.ASCII)
_NEAREST = re.compile(r"([0-9]{1,2})[Ww]", re.ASCII)
_NTH = re.compile(r"([0-7]|[A-Za-z]{3})#([1-5])", re.ASCII)
_LAST_WEEKDAY = re.compile(r"([0-7]|[A-Za-z]{3})[Ll]", re.ASCII)
_BLANKS = re.compile(r"[ \t]+")

Month = Callable[[int, int], frozenset[int]]
"""From the number of days in a month, and the weekday of its first (0 is Sunday), to days of it."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[tuple[str, int], ...] = ()

    def number(self, text: str) -> int:
        value = int(text) if text.isdigit() else self._named(text)
        if not self.low <= value <= self.high:
            raise ValueError(f"expected {self.low} to {self.high} as {self.name}, got {text}")
        return value

    def _named(self, text: str) -> int:
        known = dict(self.names).get(text.lower())
        # Three spellings, as people write them: mon, MON, Mon.
        if known is None or text not in {text.lower(), text.upper(), text.capitalize()}:
            raise ValueError(f"expected {self.low} to {self.high} as {self.name}, got {text!r}")
        return known


_SECOND, _MINUTE, _HOUR = _Field("second", 0, 59), _Field("minute", 0, 59), _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, tuple(_MONTHS.items()))
_WEEKDAY = _Field("day of week", 0, 7, tuple(_WEEKDAYS.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """An expression that was read, and names at least one day."""

    text: str
    seconds: Sequence[int]
    minutes: Sequence[int]
    hours: Sequence[int]
    months: frozenset[int]
    days: str
    weekdays: str
    is_elapsed: bool
    """Its hours are a star, so it goes with the clock through gaps and folds."""

    def next_wall(self, start: datetime) -> datetime | None:
        """Return the first wall time from this one on; None where there is none in reach."""
        today = start.date()
        if today.day in self.days_of(today.year, today.month):
            at = self._next_time(start.time())
            if at is not None:
                return datetime.combine(today, at)
        day = self._next_day(today)
        return None if day is None else datetime.combine(day, time(self.hours[0], self.minutes[0], self.seconds[0]))

    def days_of(self, year: int, month: int) -> Sequence[int]:
        """Return the days of a month that the expression names."""
        if month not in self.months:
            return ()
        weekday, length = calendar.monthrange(year, month)
        return _days(self.days, self.weekdays, length, (weekday + 1) % 7)

    def _next_day(self, past: date) -> date | None:
        year, month, after = past.year, past.month, past.day
        for _ in range(12 * REACH + 1):
            days = self.days_of(year, month)
            place = bisect_left(days, after + 1)
            if place < len(days):
                return date(year, month, days[place])
            year, month, after = (year + 1, 1, 0) if month == 12 else (year, month + 1, 0)
            if year > date.max.year:
                break
        return None

    def _next_time(self, start: time) -> time | None:
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        hour, minute, second = start.hour, start.minute, start.second + (start.microsecond > 0)
        place = bisect_left(hours, hour)
        if place == len(hours):
            return None
        if hours[place] > hour:
            return time(hours[place], minutes[0], seconds[0])
        its_minute = bisect_left(minutes, minute)
        if its_minute < len(minutes) and minutes[its_minute] == minute:
            its_second = bisect_left(seconds, second)
            if its_second < len(seconds):
                return time(hour, minute, seconds[its_second])
            its_minute += 1
        if its_minute < len(minutes):
            return time(hour, minutes[its_minute], seconds[0])
        return time(hours[place + 1], minutes[0], seconds[0]) if place + 1 < len(hours) else None


@lru_cache(maxsize=4_096)
def parse(text: str) -> Cron:
    """Read an expression; one that can't be understood in just one way, or names no day, is a ValueError with a sentence."""
    if len(text) > LONGEST:
        raise ValueError(f"expected a cron expression of at most {LONGEST} characters, got {len(text)}")
    if not text.isascii():
        raise ValueError(f"expected a cron expression of plain ASCII characters, got {text[:60]!r}")
    fields = _BLANKS.split((MACROS.get(text.strip(" \t").lower()) or text).strip(" \t"))
    if fields[0].startswith("@"):
        raise ValueError(f"expected one of {', '.join(MACROS)}, got {text[:60]!r}")
    if len(fields) not in {5, 6}:
        raise ValueError(
            f"expected 5 fields (minute, hour, day of month, month, day of week), or 6 with seconds first, got {text[:60]!r}"
        )
    seconds, minute, hour, day, month, weekday = ["0", *fields] if len(fields) == 5 else fields
    _check(day, weekday)
    read = Cron(
        text=text,
        seconds=sorted(_numbers(_SECOND, seconds)),
        minutes=sorted(_numbers(_MINUTE, minute)),
        hours=sorted(_numbers(_HOUR, hour)),
        months=frozenset(_numbers(_MONTH, month)),
        days="*" if day == "?" else day,
        weekdays="*" if weekday == "?" else weekday,
        is_elapsed=hour.startswith("*"),
    )
    if not any(_days(read.days, read.weekdays, length, first) for length in _lengths(read.months) for first in range(7)):
        raise ValueError(f"expected an expression that names a day, got {text!r}: it never matches")
    return read


def _lengths(months: frozenset[int]) -> set[int]:
    return {length for month in months for length in ((28, 29) if month == 2 else (calendar.monthrange(2025, month)[1],))}


def _check(day: str, weekday: str) -> None:
    if day == "?" and weekday == "?":
        raise ValueError("expected '?' as day of month or as day of week, got it as both")
    for part in day.split(","):
        _day(part)
    for part in weekday.split(","):
        _weekday(part)


@lru_cache(maxsize=65_536)
def _days(day: str, weekday: str, length: int, first: int) -> Sequence[int]:
    """Return the days of a month of this length whose first is this weekday.

    Either field is enough where neither begins with a star, as in the cron of old; where one does, both must agree.
    """
    by_day = frozenset().union(*(_day(part)(length, first) for part in day.split(",")))
    by_weekday = frozenset().union(*(_weekday(part)(length, first) for part in weekday.split(",")))
    is_either = not day.startswith("*") and not weekday.startswith("*")
    return tuple(sorted(by_day | by_weekday if is_either else by_day & by_weekday))


def _day(part: str) -> Month:
    """Read a part of the days of a month."""
    if part == "?":
        return lambda length, _: frozenset(range(1, length + 1))
    if found := _LAST_DAY.fullmatch(part):
        back = int(found[1] or 0)
        if back > 30:
            raise ValueError(f"expected L-0 to L-30 as day of month, got {part}")
        return lambda length, _: frozenset({length - back} if back < length else ())
    if part.upper() == "LW":
        return lambda length, first: frozenset({_nearest(length, length, first)})
    if found := _NEAREST.fullmatch(part):
        near = _DAY.number(found[1])
        return lambda length, first: frozenset({_nearest(near, length, first)} if near <= length else ())
    numbers = _part(_DAY, part)
    return lambda length, _: frozenset(day for day in numbers if day <= length)


def _nearest(day: int, length: int, first: int) -> int:
    """Return the weekday nearest to a day, without leaving the month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _weekday(part: str) -> Month:
    """Read a part of the days of a week."""
    if part == "?":
        return lambda length, _: frozenset(range(1, length + 1))
    if found := _NTH.fullmatch(part):
        weekday, nth = _WEEKDAY.number(found[1]) % 7, int(found[2])
        return lambda length, first: _all(weekday, length, first, slice(nth - 1, nth))
    if found := _LAST_WEEKDAY.fullmatch(part):
        weekday = _WEEKDAY.number(found[1]) % 7
        return lambda length, first: _all(weekday, length, first, slice(-1, None))
    weekdays = {number % 7 for number in _part(_WEEKDAY, part)}
    return lambda length, first: frozenset(day for day in range(1, length + 1) if (first + day - 1) % 7 in weekdays)


def _all(weekday: int, length: int, first: int, which: slice) -> frozenset[int]:
    return frozenset(range(1 + (weekday - first) % 7, length + 1, 7)[which])


def _numbers(field: _Field, text: str) -> set[int]:
    return set().union(*(_part(field, part) for part in text.split(",")))


def _part(field: _Field, part: str) -> range:
    """Read a star, a number, a range, each perhaps with a step."""
    found = _PART.fullmatch(part)
    if not found or (found[1] == "*" and found[2]):
        raise ValueError(
            f"expected a number, a range such as {field.low}-{field.high}, * or a list of them as {field.name}, got {part[:40]!r}"
        )
    begin, end, step = found.groups()
    if step is not None and not 1 <= int(step) <= field.high:
        raise ValueError(f"expected a step from 1 to {field.high} as {field.name}, got {part}")
    if begin == "*":
        # A week has seven days, though Sunday has two numbers.
        return range(field.low, min(field.high, 6 if field is _WEEKDAY else field.high) + 1, int(step or 1))
    low = field.number(begin)
    high = field.number(end) if end else field.high if step else low
    if end and field is _WEEKDAY and high == 0 and not end.isdigit():
        high = 7  # fri-sun
    if high < low:
        raise ValueError(f"expected a range that rises as {field.name}, got {part}")
    return range(low, high + 1, int(step or 1))


def least_distance(cron: Cron) -> timedelta:
    """Return the shortest time between two of its instants on one day; a day where there is one a day."""
    if len(cron.seconds) > 1:
        return timedelta(seconds=min(b - a for a, b in zip(cron.seconds, cron.seconds[1:], strict=False)))
    return timedelta(minutes=1) if len(cron.minutes) > 1 else timedelta(hours=1)
