from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campana.domain import durations
from tests.domain import builders

MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("1w", timedelta(weeks=1)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5h", timedelta(minutes=90)),
        ("0.000001s", MICROSECOND),
        ("0.0009ms", MICROSECOND),
        ("0s", timedelta(0)),
        ("PT5M", timedelta(minutes=5)),
        ("P1DT12H", timedelta(hours=36)),
        ("P2W", timedelta(weeks=2)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("P1W1DT1H1M1.000001S", timedelta(days=8, hours=1, minutes=1, seconds=1, microseconds=1)),
        ("36525d", durations.LONGEST),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, length: timedelta) -> None:
    assert durations.parse(text) == length


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "90", "s", "-5m", "+5m", "5 m", "5m ", " 5m", "5m\n", "5M", "5min", "5m30s", "1e3s", "1_000s", ".5s", "5.s"),
        *(
            "\u0665m",
            "\uff15m",
            "1,5h",
            "infs",
            "nans",
            "0x10s",
            "1.0000001s",
            "9" * 14 + "s",
            pytest.param("1" * 100_000 + "s", id="long"),
        ),
        *("P", "PT", "P1", "PT5", "P1DT", "PT5D", "P5M", "P1Y", "pt5m", "P-1D", "-P1D", "PT1.5H", "P1D1W", "PT5M\n", "P\u0665D"),
        *("36525.000001d", "36526d", "5218w", "P36526D", "PT999999999H", "9999999999999ms", "999999999999w"),
    ],
)
def test_what_would_have_to_be_guessed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration") as refused:
        durations.parse(text)
    assert len(str(refused.value)) < 200


@given(builders.LENGTHS)
@example(timedelta(milliseconds=1_000_000_000_001))
@example(durations.LONGEST - MICROSECOND)
@example(timedelta(days=36_524, microseconds=999_999))
def test_what_is_shown_reads_back_to_the_same_length(length: timedelta) -> None:
    assert durations.parse(durations.show(length)) == length


@pytest.mark.parametrize("text", ["0s", "1w", "8d", "25h", "61m", "61s", "1001ms", "1.000001s", "0.000001s"])
def test_the_shortest_form_is_shown(text: str) -> None:
    assert durations.show(durations.parse(text)) == text


@given(st.integers(0, 3_155_760_000_000_000))
def test_no_digit_of_a_long_duration_is_lost(micros: int) -> None:
    text = f"{micros // 10**6}.{micros % 10**6:06}s"
    expected = timedelta(microseconds=micros)
    assert durations.parse(text) == expected
    days, rest = divmod(micros, 86_400 * 10**6)
    assert durations.parse(f"P{days}DT{rest // 10**6}.{rest % 10**6:06}S") == expected


@given(st.text(max_size=30) | st.from_regex(r"\AP?T?[0-9.]*[a-zA-Z]{0,2}\Z"))
def test_any_text_is_read_within_the_bounds_or_refused(text: str) -> None:
    try:
        length = durations.parse(text)
    except ValueError:
        return
    assert timedelta(0) <= length <= durations.LONGEST
