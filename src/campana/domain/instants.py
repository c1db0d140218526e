"""Instants: aware UTC datetimes with microseconds, and their two other spellings (RFC 3339 text, 64-bit integers)."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
# Year 2200. Beyond it no zone's rules mean anything, and integer columns keep room on every database.
LAST = datetime(2200, 1, 1, tzinfo=UTC)

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
    r"(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)
_LOCAL = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?")


def to_micros(at: datetime) -> int:
    """Return microseconds since 1970 UTC; a naive datetime is refused."""
    if at.tzinfo is None:
        message = f"expected an aware datetime, got the naive {at!r}: add a time zone"
        raise ValueError(message)
    passed = at - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def from_micros(micros: int) -> datetime:
    """Return the instant that is so many microseconds after 1970 UTC."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        message = f"expected microseconds since 1970, got a number of {micros.bit_length()} bits: no calendar reaches that far"
        raise ValueError(message) from None


def parse(text: str) -> datetime:
    """Read an RFC 3339 instant; refuse whatever would have to be guessed (no offset, 24:00, :60, a seventh digit)."""
    found = _RFC3339.fullmatch(text)
    if not found:
        message = f"expected an RFC 3339 instant such as 2026-12-01T14:00:00Z, got {text[:60]!r}"
        raise ValueError(message)
    year, month, day, hour, minute, second, fraction, utc, sign, offset_hours, offset_minutes = found.groups()
    micros = int((fraction or "").ljust(6, "0"))
    try:
        wall = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, tzinfo=UTC)
    except ValueError as error:
        message = f"no such instant: {text!r} ({error})"
        raise ValueError(message) from None
    if not utc:
        if int(offset_hours) > 23 or int(offset_minutes) > 59:  # noqa: PLR2004 - hours and minutes of a clock
            message = f"no such offset: {text!r}"
            raise ValueError(message)
        away = timedelta(hours=int(offset_hours), minutes=int(offset_minutes))
        try:
            wall = wall - away if sign == "+" else wall + away
        except OverflowError:
            wall = EPOCH - timedelta(days=1)
    return bounded(wall)


def parse_local(text: str, zone: tzinfo) -> datetime:
    """Read `YYYY-MM-DDTHH:MM[:SS]` as a wall time in a zone: a time that happens twice is the first, one in a gap its end."""
    found = _LOCAL.fullmatch(text)
    if not found:
        message = f"expected a local time such as 2026-12-01T09:00, got {text[:60]!r}"
        raise ValueError(message)
    year, month, day, hour, minute, second = found.groups()
    try:
        wall = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=zone)
    except ValueError as error:
        message = f"no such local time: {text!r} ({error})"
        raise ValueError(message) from None
    if not EPOCH.year - 1 <= wall.year <= LAST.year:
        # Refused before a zone is asked: in the years 1 and 9999 the way to UTC leaves the calendar.
        message = f"expected an instant between 1970 and 2200, got {text!r}"
        raise ValueError(message)
    return bounded(_resolve(wall, zone))


def _resolve(wall: datetime, zone: tzinfo) -> datetime:
    instant = wall.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
        return instant
    # In a gap the two folds bracket the jump; the gap ends where the local clock first reads later than before it.
    before, after = instant - timedelta(hours=26), instant + timedelta(hours=26)
    start_offset = wall.replace(fold=0).utcoffset()
    while after - before > MICROSECOND:
        middle = before + (after - before) / 2
        before, after = (middle, after) if middle.astimezone(zone).utcoffset() == start_offset else (before, middle)
    return after.replace(microsecond=0)


def bounded(at: datetime) -> datetime:
    """Return the instant if it lies between 1970 and 2200; refuse it otherwise."""
    if EPOCH <= at < LAST:
        return at
    message = f"expected an instant between 1970 and 2200, got {at.isoformat()}"
    raise ValueError(message)


def show(at: datetime) -> str:
    """Return RFC 3339 text in UTC, with microseconds where there are any; a naive datetime is refused."""
    if at.tzinfo is None:
        message = f"expected an aware datetime, got the naive {at!r}: add a time zone"
        raise ValueError(message)
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
