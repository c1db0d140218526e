from datetime import datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.domain import zones


@pytest.mark.parametrize("name", ["Europe/London", "America/New_York", "Asia/Kolkata", "UTC", "Etc/GMT+5"])
def test_a_zone_is_found_by_its_iana_name(name: str) -> None:
    assert zones.zone(name).key == name
    assert zones.zone(name) is zones.zone(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "../etc/passwd", "/etc/passwd", "Europe/../Europe/London", "/usr/share/zoneinfo/UTC", "Europe", "Europe/"),
        *("america/new_york", "UTC+5", "GMT+25", "+05:00", "Mars/Olympus", "Europe/London\n", "Europe/London\0", "\udc80"),
        *("localtime", "Factory", "posixrules", "posix/UTC", "right/UTC", "tzdata.zi", "zone.tab", "zones"),
        pytest.param("A" * 10_000, id="long"),
    ],
)
def test_what_is_no_zone_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="expected an IANA time zone") as refused:
        zones.zone(name)
    assert len(str(refused.value)) < 200


@given(st.text(max_size=30))
def test_any_text_is_a_zone_or_refused(name: str) -> None:
    if name not in available_timezones():
        with pytest.raises(ValueError):
            zones.zone(name)


def test_every_zone_that_there_is_can_be_used() -> None:
    for name in available_timezones() - {"localtime", "Factory", "posixrules"}:
        away = zones.zone(name).utcoffset(datetime(2026, 7, 1, 12))  # noqa: DTZ001 - a wall time
        assert away is not None
        assert abs(away) <= timedelta(hours=14), name
