from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.domain import instants
from tests.domain import builders

TWO_PM = datetime(2026, 12, 1, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-12-01T14:00:00Z", TWO_PM),
        ("2026-12-01t14:00:00z", TWO_PM),
        ("2026-12-01 14:00:00Z", TWO_PM),
        ("2026-12-01T14:00:00+00:00", TWO_PM),
        ("2026-12-01T14:00:00-00:00", TWO_PM),
        ("2026-12-01T09:00:00-05:00", TWO_PM),
        ("2026-12-02T13:59:00+23:59", TWO_PM),
        ("2026-12-01T14:00:00.5Z", TWO_PM + timedelta(milliseconds=500)),
        ("2026-12-01T14:00:00.000001Z", TWO_PM + instants.MICROSECOND),
        ("1970-01-01T00:00:00Z", instants.EPOCH),
        ("1969-12-31T19:00:00-05:00", instants.EPOCH),
        ("2199-12-31T23:59:59.999999Z", instants.LAST - instants.MICROSECOND),
        ("2028-02-29T00:00:00Z", datetime(2028, 2, 29, tzinfo=UTC)),
    ],
)
def test_an_instant_is_read_in_any_offset(text: str, at: datetime) -> None:
    read = instants.parse(text)
    assert read == at
    assert read.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        *("2026-12-01T14:00:00", "2026-12-01T14:00", "2026-12-01", "14:00", "", "Z", "now", "tomorrow", "null"),
        *("2026-12-01T24:00:00Z", "2026-12-01T23:59:60Z", "2026-12-01T14:60:00Z", "2026-12-01T25:00:00Z"),
        *("2026-12-01T14:00:00.Z", "2026-12-01T14:00:00.1234567Z", "2026-12-01T14:00:00.0000001Z", "2026-12-01T14:00:00,5Z"),
        *("2026-12-01T14:00:00+25:00", "2026-12-01T14:00:00+24:00", "2026-12-01T14:00:00+23:60", "2026-12-01T14:00:00+1:00"),
        *("2026-12-01T14:00:00+0100", "2026-12-01T14:00:00+01", "2026-12-01T14:00:00+01:00:00", "2026-12-01T14:00:00UTC"),
        *("2026-12-01T14:00:00Z[Europe/Paris]", "2026-12-01T14:00:00 Z", "2026-12-01T14:00:00Z ", "2026-12-01T14:00:00Z\n"),
        *("2026-02-30T00:00:00Z", "2026-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z"),
        *("2026-12-00T00:00:00Z", "2026-W49-2T00:00:00Z", "2026-335T00:00:00Z", "20261201T140000Z"),
        *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "10000-01-01T00:00:00Z"),
        *("-001-01-01T00:00:00Z", "+2026-12-01T14:00:00Z", "1969-12-31T23:59:59.999999Z", "2200-01-01T00:00:00Z"),
        *("\uff12026-12-01T14:00:00Z", "\u0662\u0660\u0662\u0666-12-01T14:00:00Z", "2026\u221212\u221201T14:00:00Z"),
        *("1767225600", "1767225600000", pytest.param("9" * 100_000, id="long")),
    ],
)
def test_what_would_have_to_be_guessed_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        instants.parse(text)
    assert 10 < len(str(refused.value)) < 200


@given(builders.INSTANTS)
def test_what_is_shown_reads_back_to_the_same_instant(at: datetime) -> None:
    assert instants.parse(instants.show(at)) == at


@given(builders.INSTANTS, st.integers(-1439, 1439))
def test_the_offset_it_was_written_in_changes_nothing(at: datetime, minutes: int) -> None:
    there = at.astimezone(timezone(timedelta(minutes=minutes)))
    assert instants.parse(there.isoformat()) == at
    assert instants.show(there) == instants.show(at)
    assert instants.to_micros(there) == instants.to_micros(at)


@given(builders.MICROS)
def test_micros_round_trip(micros: int) -> None:
    at = instants.from_micros(micros)
    assert at.tzinfo is UTC
    assert instants.to_micros(at) == micros


@given(builders.INSTANTS, builders.INSTANTS)
def test_micros_and_text_sort_as_the_instants_do(one: datetime, other: datetime) -> None:
    assert (instants.to_micros(one) < instants.to_micros(other)) == (one < other)


@given(st.text(max_size=40) | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[Z+-][0-9:]*\Z"))
def test_any_text_is_read_within_the_bounds_or_refused(text: str) -> None:
    try:
        at = instants.parse(text)
    except ValueError:
        return
    assert instants.EPOCH <= at < instants.LAST


def test_microseconds_are_shown_only_where_there_are_any() -> None:
    assert instants.show(TWO_PM) == "2026-12-01T14:00:00Z"
    assert instants.show(TWO_PM + instants.MICROSECOND) == "2026-12-01T14:00:00.000001Z"


@pytest.mark.parametrize("spell", [instants.to_micros, instants.show])
def test_a_naive_datetime_is_refused(spell: object) -> None:
    assert callable(spell)
    with pytest.raises(ValueError, match="naive"):
        spell(datetime(2026, 12, 1, 14))  # noqa: DTZ001 - that is what is refused


@pytest.mark.parametrize("micros", [10**18, 10**30, 10**4_000, -(10**18), -(10**4_000)])
def test_a_number_that_no_calendar_reaches_is_refused(micros: int) -> None:
    with pytest.raises(ValueError, match="expected microseconds since 1970"):
        instants.from_micros(micros)


@pytest.mark.parametrize("at", [instants.EPOCH - instants.MICROSECOND, instants.LAST])
def test_an_instant_outside_of_1970_to_2200_is_refused(at: datetime) -> None:
    with pytest.raises(ValueError, match="between 1970 and 2200"):
        instants.bounded(at)
    assert instants.bounded(instants.EPOCH) == instants.EPOCH
