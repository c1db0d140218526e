"""Wall times in zones: example tests, and every jump of every zone from 2024 to 2030 against a search by brute force."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.domain import instants, zones
from tests.domain import builders

MINUTE = timedelta(minutes=1)
NEW_YORK = zones.zone("America/New_York")
Jump = tuple[datetime, timedelta, timedelta]
"""When, and the offsets before and after."""


@pytest.mark.parametrize(
    ("text", "zone", "shown"),
    [
        ("2026-12-01T09:00", "America/New_York", "2026-12-01T14:00:00Z"),
        ("2026-12-01T09:00:30", "UTC", "2026-12-01T09:00:30Z"),
        ("2026-03-08T01:59:59", "America/New_York", "2026-03-08T06:59:59Z"),
        ("2026-03-08T02:00", "America/New_York", "2026-03-08T07:00:00Z"),
        ("2026-03-08T02:30", "America/New_York", "2026-03-08T07:00:00Z"),
        ("2026-03-08T03:00", "America/New_York", "2026-03-08T07:00:00Z"),
        ("2026-11-01T01:30", "America/New_York", "2026-11-01T05:30:00Z"),
        ("2026-10-04T02:15", "Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ("2026-03-29T00:30", "Asia/Beirut", "2026-03-28T22:00:00Z"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),
    ],
)
def test_a_wall_time_becomes_an_instant(text: str, zone: str, shown: str) -> None:
    assert instants.show(instants.parse_local(text, zones.zone(zone))) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("2026-12-01", "2026-12-01T09", "2026-12-01 09:00", "2026-12-01T09:00Z", "2026-12-01T09:00+01:00", "09:00", ""),
        *("2026-12-01T09:00:00.5", "2026-12-01T24:00", "2026-12-01T09:60", "2026-12-01T09:00:60", "2026-02-30T09:00"),
        *(
            "0000-01-01T00:00",
            "0001-01-01T00:00",
            "9999-12-31T23:59",
            "10000-01-01T00:00",
            "1969-12-30T00:00",
            "2200-01-02T00:00",
        ),
        *("\u0662\u0660\u0662\u0666-12-01T09:00", "2026-12-01T09:00\n", pytest.param("9" * 100_000, id="long")),
    ],
)
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Paris"])
def test_no_such_wall_time_is_refused(text: str, zone: str) -> None:
    with pytest.raises(ValueError) as refused:
        instants.parse_local(text, zones.zone(zone))
    assert len(str(refused.value)) < 200


@given(builders.INSTANTS, st.integers(-840, 840))
def test_with_a_fixed_offset_the_local_time_is_the_instant(at: datetime, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    whole = at.replace(microsecond=0)
    assert instants.parse_local(f"{whole.astimezone(zone).replace(tzinfo=None):%Y-%m-%dT%H:%M:%S}", zone) == whole


@given(st.datetimes(min_value=datetime(2024, 1, 1), max_value=datetime(2030, 12, 31)))  # noqa: DTZ001 - wall times are naive
def test_an_instant_shown_in_a_zone_reads_back_unless_it_is_the_second_of_its_name(wall: datetime) -> None:
    whole = wall.replace(microsecond=0)
    at = instants.parse_local(whole.isoformat(), NEW_YORK)
    assert at.astimezone(NEW_YORK).replace(tzinfo=None) >= whole
    if at.astimezone(NEW_YORK).replace(tzinfo=None) != whole:
        assert whole.hour == 2, "only the hour that spring takes may be moved"


def test_every_jump_of_every_zone_resolves_as_a_search_by_brute_force_does() -> None:
    tried = 0
    for zone, jump in _distinct_jumps():
        at, before, after = jump
        first, last = sorted((_wall(at + before), _wall(at + after)))
        middle = (first + (last - first) / 2).replace(second=0)
        for wall in (first - MINUTE, first, first + MINUTE, middle, last - MINUTE, last, last + MINUTE):
            expected = _first_not_earlier(wall, zone, around=at)
            got = instants.parse_local(wall.isoformat(), zone)
            assert got == expected, f"{wall} in {zone.key}: expected {expected}, got {got}"
            tried += 1
    assert tried > 1_000, "expected the zones' data to hold jumps"


def _first_not_earlier(wall: datetime, zone: ZoneInfo, *, around: datetime) -> datetime:
    """Return the first minute at which the zone's clock shows this wall time or a later one.

    One definition for ordinary times, folds (their first) and gaps (their end).
    """
    at = around - timedelta(hours=5)
    assert _wall(at.astimezone(zone)) < wall
    while _wall(at.astimezone(zone)) < wall:
        at += MINUTE
    return at


def _wall(at: datetime) -> datetime:
    return at.replace(tzinfo=None)


def _distinct_jumps() -> Iterator[tuple[ZoneInfo, Jump]]:
    seen: set[Jump] = set()
    for name in sorted(available_timezones() - {"localtime", "Factory", "posixrules"}):
        zone = zones.zone(name)
        for jump in _jumps(zone):
            if jump not in seen:
                seen.add(jump)
                yield zone, jump


@cache
def _noons() -> tuple[datetime, ...]:
    first = datetime(2024, 1, 1, tzinfo=UTC)
    return tuple(first + timedelta(days=number) for number in range(7 * 366))


def _jumps(zone: ZoneInfo) -> Iterator[Jump]:
    offsets = [at.astimezone(zone).utcoffset() or timedelta(0) for at in _noons()]
    for number in range(1, len(offsets)):
        before, after = offsets[number - 1], offsets[number]
        if before != after:
            at = _noons()[number - 1]
            while at.astimezone(zone).utcoffset() == before:
                at += MINUTE
            yield at, before, after
