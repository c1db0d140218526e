"""iCalendar's recurrences (RFC 5545), read strictly.

A rule is a period (each so many years, months, weeks or days), a filter on the days of one, and times of a day. A search begins
at the period in question, however old the rule is, and ends after forty-one years.
"""

import calendar
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, pairwise, product
from math import prod

from campana.domain import zones

LONGEST = 2_000
REACH = 41
MOST = 10_000
"""Occurrences that a rule may count to."""
MOST_TIMES = 1_440
"""Times of a day in one rule, so that no rule fills the house: as many as there are minutes."""
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
LAST_YEAR = 2_199

_LINE = re.compile(r"(DTSTART|RRULE|EXDATE)((?:;[A-Z-]+=[^:;\s]+)*):(\S+)", re.IGNORECASE | re.ASCII)
_TIME = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?", re.ASCII)
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]{1,3}", re.ASCII)
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_PERIODS = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
_SPANS = {"HOURLY": 3_600, "MINUTELY": 60}
_LISTS: Mapping[str, tuple[int, bool]] = {
    "BYMONTH": (12, False),
    "BYMONTHDAY": (31, True),
    "BYYEARDAY": (366, True),
    "BYWEEKNO": (53, True),
    "BYHOUR": (23, False),
    "BYMINUTE": (59, False),
    "BYSECOND": (59, False),
    "BYSETPOS": (366, True),
}
_FROM_ZERO = frozenset({"BYHOUR", "BYMINUTE", "BYSECOND"})
_OF_DAYS = frozenset({"BYMONTHDAY", "BYYEARDAY", "BYWEEKNO"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recurrence:
    """A rule that was read, and names at least one day."""

    start: datetime
    frequency: str
    interval: int
    numbers: Mapping[str, frozenset[int]]
    """The values of each list but weekdays."""
    weekdays: frozenset[tuple[int, int]]
    """Which one of its kind in the month or year, 0 for each, and the weekday."""
    week_start: int
    times: Sequence[time]
    until: datetime | None = None
    without: frozenset[datetime] = frozenset()
    counted: Sequence[datetime] | None = field(default=None)
    """All that there are, where the rule says how many."""

    def next_wall(self, start: datetime) -> datetime | None:
        """Return the first wall time from this one on; None where there is none in reach."""
        if self.counted is not None:
            place = bisect_left(self.counted, start)
            return self.counted[place] if place < len(self.counted) else None
        return next((wall for wall in self.walls(max(start, self.start)) if wall not in self.without), None)

    def walls(self, begin: datetime) -> Iterator[datetime]:
        """Yield wall times from one on, those too that are excepted."""
        for period in self._periods(begin.date()):
            for wall in self._walls_of(period, begin):
                if self.until is not None and wall > self.until:
                    return
                yield wall

    def _periods(self, begin: date) -> Iterator[int]:
        """Yield the periods from that of a day on: years, months since the year 0, or the first days of weeks, or days."""
        first, last = self.start.date(), date(begin.year + REACH, 12, 31)
        match self.frequency:
            case "YEARLY":
                origin, here, end, step = first.year, begin.year, last.year, self.interval
            case "MONTHLY":
                origin, here, end, step = (*(day.year * 12 + day.month - 1 for day in (first, begin, last)), self.interval)
            case "WEEKLY":
                origin = first.toordinal() - (first.weekday() - self.week_start) % 7
                here, end, step = begin.toordinal(), last.toordinal(), 7 * self.interval
            case _:
                origin, here, end, step = first.toordinal(), begin.toordinal(), last.toordinal(), self.interval
        yield from range(origin + max(0, (here - origin) // step * step), end + 1, step)

    def _walls_of(self, period: int, begin: datetime) -> Iterator[datetime]:
        """Yield the wall times of a period from one on. They are counted, not listed: a year may have half a million."""
        days, each = _days_of(self, period), len(self.times)
        first = bisect_left(days, begin.date())
        place = first * each
        if first < len(days) and days[first] == begin.date():
            place += bisect_left(self.times, begin.time())
        for chosen in self._places(place, len(days) * each):
            yield datetime.combine(days[chosen // each], self.times[chosen % each])

    def _places(self, first: int, length: int) -> Iterable[int]:
        """Return which of a period's wall times count, from one of them on."""
        positions = self.numbers.get("BYSETPOS")
        if positions is None:
            return range(first, length)
        wanted = {place - 1 if place > 0 else length + place for place in positions}
        return sorted(place for place in wanted if first <= place < length)

    def days_of(self, period: int) -> Iterator[date]:
        """Yield the days of a period that the rule names, in their order."""
        return filter(self._names, self._days(period))

    def _days(self, period: int) -> Sequence[date]:
        match self.frequency:
            case "YEARLY":
                return self._of_year(period)
            case "MONTHLY":
                return _of_month(period // 12, period % 12 + 1)
            case "WEEKLY":
                return [date.fromordinal(period + number) for number in range(7)]
            case _:
                return [date.fromordinal(period)]

    def _of_year(self, year: int) -> Sequence[date]:
        months = self.numbers.get("BYMONTH", range(1, 13))
        return [day for month in sorted(months) for day in _of_month(year, month)]

    def _names(self, day: date) -> bool:
        numbers = self.numbers
        if "BYMONTH" in numbers and day.month not in numbers["BYMONTH"]:
            return False
        length = calendar.monthrange(day.year, day.month)[1]
        return (
            ("BYMONTHDAY" not in numbers or _counts(day.day, length, numbers["BYMONTHDAY"]))
            and (not self.weekdays or self._names_weekday(day, length))
            and ("BYYEARDAY" not in numbers or _counts(*_in_year(day), numbers["BYYEARDAY"]))
            and ("BYWEEKNO" not in numbers or _counts(*_week(day, self.week_start), numbers["BYWEEKNO"]))
        )

    def _names_weekday(self, day: date, length: int) -> bool:
        if (0, day.weekday()) in self.weekdays:
            return True
        place, span = (day.day, length) if self.frequency == "MONTHLY" or "BYMONTH" in self.numbers else _in_year(day)
        nth, last = (place - 1) // 7 + 1, -((span - place) // 7) - 1
        return (nth, day.weekday()) in self.weekdays or (last, day.weekday()) in self.weekdays


@lru_cache(maxsize=512)
def _days_of(rule: Recurrence, period: int) -> Sequence[date]:
    return tuple(rule.days_of(period))


@lru_cache(maxsize=1_024)
def _of_month(year: int, month: int) -> Sequence[date]:
    return tuple(date(year, month, day) for day in range(1, calendar.monthrange(year, month)[1] + 1))


def least_distance(rule: Recurrence) -> timedelta:
    """Return the shortest time between two of its wall times on one day; a day where there is one a day."""
    seconds = [at.hour * 3_600 + at.minute * 60 + at.second for at in rule.times]
    return timedelta(seconds=min((b - a for a, b in pairwise(seconds)), default=86_400))


def _counts(place: int, length: int, wanted: frozenset[int]) -> bool:
    """Say whether a place is wanted, counted from the begin or, negative, from the end."""
    return place in wanted or place - length - 1 in wanted


def _in_year(day: date) -> tuple[int, int]:
    return day.timetuple().tm_yday, 365 + calendar.isleap(day.year)


def _week(day: date, start: int) -> tuple[int, int]:
    """Return the number of a day's week and how many its year has; the first week is the one with four days of the year."""
    middle = day + _DAY * (3 - (day.weekday() - start) % 7)
    place, length = _in_year(middle)
    first = (place - 1) % 7
    return (place - 1) // 7 + 1, (length - 1 - first) // 7 + 1


@lru_cache(maxsize=64)
def parse(text: str, zone: str) -> Recurrence:
    """Read `DTSTART` and `RRULE`, perhaps with `EXDATE`, a line each; what is not plainly meant is a ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"expected a rule of at most {LONGEST} characters, got {len(text)}")
    lines: dict[str, list[tuple[str, str]]] = {"DTSTART": [], "RRULE": [], "EXDATE": []}
    for line in text.strip().splitlines():
        found = _LINE.fullmatch(line.strip())
        if not found:
            raise ValueError(f"expected lines of DTSTART, RRULE and EXDATE, got {line.strip()[:60]!r}")
        lines[found[1].upper()].append((found[2].upper(), found[3].upper()))
    if len(lines["DTSTART"]) != 1 or len(lines["RRULE"]) != 1:
        raise ValueError("expected one line with DTSTART and one with RRULE")
    start = _moment(*lines["DTSTART"][0], zone)
    without = frozenset(_moment(words, part, zone) for words, value in lines["EXDATE"] for part in value.split(","))
    read = _rule(lines["RRULE"][0][1], start, without, zone)
    if read.next_wall(read.start) is None:
        raise ValueError(f"expected a rule that names a day, got {text[:60]!r}: it never matches")
    return read


def _moment(words: str, value: str, zone: str) -> datetime:
    """Read a wall time in the schedule's zone."""
    found = _TIME.fullmatch(value)
    if not found:
        raise ValueError(f"expected a time such as 20261201T090000, got {value[:40]!r}")
    named = dict(word.split("=", 1) for word in words.split(";") if word)
    if set(named) - {"TZID", "VALUE"} or named.get("TZID", zone.upper()) != zone.upper():
        raise ValueError(f"expected times in the schedule's own time zone {zone}, got {words.lstrip(';')[:60]!r}")
    try:
        wall = datetime.strptime(found[1] + (found[2] or "000000"), "%Y%m%d%H%M%S")  # noqa: DTZ007 - a wall time is naive
    except ValueError:
        raise ValueError(f"no such time: {value[:40]!r}") from None
    if not 1970 <= wall.year <= 2199:
        raise ValueError(f"expected a time between 1970 and 2200, got {value[:40]!r}")
    return wall.replace(tzinfo=UTC).astimezone(zones.zone(zone)).replace(tzinfo=None) if found[3] else wall


def _rule(value: str, start: datetime, without: frozenset[datetime], zone: str) -> Recurrence:
    words = _words(value)
    frequency, interval = words.pop("FREQ", ""), _count(words.pop("INTERVAL", "1"), "INTERVAL")
    count, until = words.pop("COUNT", None), words.pop("UNTIL", None)
    if count is not None and until is not None:
        raise ValueError("expected COUNT or UNTIL, got both")
    week_start, weekdays = _week_start(words.pop("WKST", "MO")), frozenset[tuple[int, int]]()
    if "BYDAY" in words:
        weekdays = frozenset(_weekday(one, frequency) for one in words.pop("BYDAY").split(","))
    numbers = {name: frozenset(_number(one, name) for one in said.split(",")) for name, said in words.items()}
    if "BYSETPOS" in numbers and len(numbers) == 1 and not weekdays:
        raise ValueError("expected another BY… beside BYSETPOS, which counts what that gives")
    if frequency in _SPANS:
        if "BYSETPOS" in numbers:
            raise ValueError(f"expected BYSETPOS with FREQ as one of {', '.join(_PERIODS)}, got {frequency}")
        numbers |= _times(_SPANS[frequency] * interval, start, numbers, frequency)
        frequency, interval = "DAILY", 1
    elif frequency in _PERIODS:
        numbers, weekdays = _explicit(numbers, weekdays, frequency, start)
    else:
        raise ValueError(f"expected FREQ as one of {', '.join((*_PERIODS, *_SPANS))}, got {frequency[:40]!r}")
    clock = [sorted(numbers.get(name, {now})) for name, now in zip(_CLOCK, start.timetuple()[3:6], strict=True)]
    if prod(map(len, clock)) > MOST_TIMES:
        raise ValueError(f"expected at most {MOST_TIMES} times of a day, got {prod(map(len, clock))}: write others as `every`")
    read = Recurrence(
        start=start,
        frequency=frequency,
        interval=interval,
        numbers=numbers,
        weekdays=weekdays,
        week_start=week_start,
        times=[time(hour, minute, second) for hour, minute, second in product(*clock)],
        until=None if until is None else _end(until, zone),
        without=without,
    )
    if count is None:
        return read
    # The exceptions are among those that are counted.
    walls = _first(read, _count(count, "COUNT"))
    return replace(read, counted=[wall for wall in walls if wall not in without])


def _first(rule: Recurrence, count: int) -> Sequence[datetime]:
    """Return so many wall times of a rule, if it has them before the calendar ends: one search does not reach that far."""
    found: list[datetime] = []
    begin = rule.start
    while len(found) < count and begin.year <= LAST_YEAR:
        more = list(islice(rule.walls(begin), count - len(found)))
        if not more:
            break
        found += more
        begin = found[-1] + _SECOND
    return found


def _words(value: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for part in value.split(";"):
        name, equals, said = part.partition("=")
        if not equals or not said or name in words:
            raise ValueError(f"expected NAME=VALUE, each name once, in RRULE, got {part[:40]!r}")
        words[name] = said
    return words


def _count(text: str, name: str) -> int:
    most = MOST if name == "COUNT" else 1_000
    if not text.isdigit() or not text.isascii() or not 1 <= int(text[:9]) <= most or len(text) > 9:
        raise ValueError(f"expected 1 to {most} as {name}, got {text[:20]}")
    return int(text)


def _number(text: str, name: str) -> int:
    if name not in _LISTS:
        raise ValueError(f"expected FREQ, INTERVAL, COUNT, UNTIL, WKST and BY… in RRULE, got {name[:40]!r}")
    most, may_be_negative = _LISTS[name]
    value = int(text) if _NUMBER.fullmatch(text) else most + 1
    least = 0 if name in _FROM_ZERO else 1
    if not (least <= value <= most or (may_be_negative and -most <= value <= -1)):
        raise ValueError(f"expected {least} to {most} as {name}, got {text[:20]!r}")
    return value


def _weekday(text: str, frequency: str) -> tuple[int, int]:
    found = _WEEKDAY.fullmatch(text)
    if not found or (found[1] and (frequency not in {"MONTHLY", "YEARLY"} or not 1 <= abs(int(found[1])) <= 53)):
        raise ValueError(f"expected weekdays such as MO, or 2MO and -1FR in a month or year, as BYDAY, got {text[:20]!r}")
    return int(found[1] or 0), _WEEKDAYS.index(found[2])


def _week_start(text: str) -> int:
    if text not in _WEEKDAYS:
        raise ValueError(f"expected a weekday such as MO as WKST, got {text[:20]!r}")
    return _WEEKDAYS.index(text)


def _end(text: str, zone: str) -> datetime:
    wall = _moment("", text, zone)
    return wall if "T" in text else datetime.combine(wall.date(), time(23, 59, 59))


_CLOCK = ("BYHOUR", "BYMINUTE", "BYSECOND")


def _times(seconds: int, start: datetime, numbers: Mapping[str, frozenset[int]], frequency: str) -> dict[str, frozenset[int]]:
    """Return the times of a day of a rule by hours or minutes, so that all rules are rules about days."""
    is_even = 86_400 % seconds == 0 and (3_600 % seconds == 0 or seconds % 3_600 == 0)
    if not is_even:
        raise ValueError(f"expected an INTERVAL of {frequency} that divides an hour or a day evenly: write others as `every`")
    hours, minutes = frozenset(range(24)), frozenset(range(start.minute % max(1, seconds // 60), 60, max(1, seconds // 60)))
    if seconds >= 3_600:
        hours = frozenset(range(start.hour % (seconds // 3_600), 24, seconds // 3_600))
        minutes = frozenset({start.minute})
    by_minute = numbers.get("BYMINUTE", minutes)
    chosen = {
        "BYHOUR": hours & numbers.get("BYHOUR", hours),
        "BYMINUTE": by_minute if frequency == "HOURLY" else by_minute & minutes,
    }
    if not all(chosen.values()):
        raise ValueError("expected a rule that names a time of day, got one that never matches")
    return chosen


def _explicit(
    numbers: dict[str, frozenset[int]], weekdays: frozenset[tuple[int, int]], frequency: str, start: datetime
) -> tuple[dict[str, frozenset[int]], frozenset[tuple[int, int]]]:
    """Take from the start what the rule leaves open."""
    if weekdays or numbers.keys() & _OF_DAYS or frequency == "DAILY":
        return numbers, weekdays
    if frequency == "WEEKLY":
        return numbers, frozenset({(0, start.weekday())})
    theirs = {"BYMONTH": frozenset({start.month})} if frequency == "YEARLY" else {}
    return {**theirs, **numbers, "BYMONTHDAY": frozenset({start.day})}, weekdays
