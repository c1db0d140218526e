"""Cron by brute force: every minute of a zone's time is looked at. Shares no code with what it checks."""

import calendar
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@lru_cache(maxsize=4_096)
def _values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        if body == "*":
            begin, end = low, high
        elif "-" in body:
            begin, end = (int(number) for number in body.split("-"))
        else:
            begin, end = int(body), high if step else int(body)
        found |= set(range(begin, end + 1, int(step or 1)))
    return found


def _names_day(text: str, wall: datetime) -> bool:
    last = calendar.monthrange(wall.year, wall.month)[1]
    for part in text.split(","):
        if part == "L" and wall.day == last:
            return True
        if part.startswith("L-") and wall.day == last - int(part[2:]):
            return True
        if part[:1].isdigit() and part.endswith("W") and wall.day == _weekday_near(int(part[:-1]), last, wall):
            return True
        if part == "LW" and wall.day == _weekday_near(last, last, wall):
            return True
        if not set(part) & set("LW") and wall.day in _values(part, 1, 31):
            return True
    return False


def _weekday_near(day: int, last: int, wall: datetime) -> int | None:
    if day > last:
        return None
    for away in (0, -1, 1, -2, 2):
        if 1 <= day + away <= last and calendar.weekday(wall.year, wall.month, day + away) < 5:
            return day + away
    return None


def _names_weekday(text: str, wall: datetime) -> bool:
    today = wall.isoweekday() % 7
    for part in text.split(","):
        if "#" in part:
            weekday, nth = part.split("#")
            if today == int(weekday) % 7 and (wall.day - 1) // 7 + 1 == int(nth):
                return True
        elif part.endswith("L"):
            if today == int(part[:-1]) % 7 and (wall + timedelta(days=7)).month != wall.month:
                return True
        elif part.startswith("*"):
            if today in _values(part, 0, 6):
                return True
        elif today in {number % 7 for number in _values(part, 0, 7)}:
            return True
    return False


def matches(text: str, wall: datetime) -> bool:
    """Say whether a wall time is one of the expression's."""
    minute, hour, day, month, weekday = text.split()
    if wall.minute not in _values(minute, 0, 59) or wall.hour not in _values(hour, 0, 23):
        return False
    if wall.month not in _values(month, 1, 12):
        return False
    by_day, by_weekday = _names_day(day, wall), _names_weekday(weekday, wall)
    return by_day and by_weekday if day[0] == "*" or weekday[0] == "*" else by_day or by_weekday


def instants(text: str, zone: ZoneInfo, begin: datetime, end: datetime, *, gap: str, fold: str) -> list[datetime]:
    """Return the instants of an expression from `begin` to before `end`, both in UTC and in whole minutes."""
    elapsed = text.split()[1].startswith("*")
    shown: dict[datetime, list[datetime]] = defaultdict(list)
    found: set[datetime] = set()
    before: datetime | None = None
    for at in _minutes(begin - timedelta(days=2), end + timedelta(days=2)):
        wall = at.astimezone(zone).replace(tzinfo=None)
        shown[wall].append(at)
        if before is not None and not elapsed and gap == "shift" and MINUTE < wall - before <= timedelta(hours=3) + MINUTE:
            lost = [before + number * MINUTE for number in range(1, (wall - before) // MINUTE)]
            if any(matches(text, one) for one in lost):
                found.add(at)
        before = wall
    for wall, passes in shown.items():
        if matches(text, wall):
            found |= set(passes if elapsed or fold == "both" else passes[-1:] if fold == "second" else passes[:1])
    return sorted(at for at in found if begin <= at < end)


def _minutes(begin: datetime, end: datetime) -> Iterator[datetime]:
    at = begin.astimezone(UTC)
    while at < end:
        yield at
        at += MINUTE
