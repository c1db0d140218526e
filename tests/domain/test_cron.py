import time
from datetime import UTC, datetime
from itertools import islice

import pytest
from croniter import croniter
from cronsim import CronSim

from campana.domain import civil, cron


def days(text: str, year: int, count: int) -> list[str]:
    read = cron.parse(text)
    found = civil.occurrences(read, "UTC", civil.Policy(), datetime(year - 1, 12, 31, 23, 59, tzinfo=UTC))
    return [f"{one.at:%m-%d}" for one in islice(found, count) if one.at.year == year]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 9 31 * *", "01-31 03-31 05-31 07-31 08-31 10-31 12-31"),
        ("0 9 LW * *", "01-30 02-27 03-31 04-30 05-29 06-30 07-31 08-31 09-30 10-30 11-30 12-31"),
        ("0 9 31W * *", "01-30 03-31 05-29 07-31 08-31 10-30 12-31"),
        ("0 9 * * 5#5", "01-30 05-29 07-31 10-30"),
        ("0 9 * * fri#5", "01-30 05-29 07-31 10-30"),
        ("0 9 29 2 *", ""),
        ("0 9 * * 1L", "01-26 02-23 03-30 04-27 05-25 06-29 07-27 08-31 09-28 10-26 11-30 12-28"),
    ],
)
def test_the_days_of_2026_are_as_on_a_calendar(text: str, expected: str) -> None:
    assert " ".join(days(text, 2026, 400)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 9 1W * *", "01-01 02-02 03-02 04-01 05-01 06-01 07-01 08-03 09-01 10-01 11-02 12-01"),
        ("0 9 * * 1#1", "01-05 02-02 03-02 04-06 05-04 06-01 07-06 08-03 09-07 10-05 11-02 12-07"),
        ("0 9 L-3 * *", "01-28 02-25 03-28 04-27 05-28 06-27 07-28 08-28 09-27 10-28 11-27 12-28"),
        ("0 9 13 * 5", "01-02 01-09 01-13 01-16 01-23 01-30 02-06 02-13 02-20 02-27"),
        ("0 9 */2 * 1", "01-05 01-19"),
        ("0 9 * * 1-5/2", "01-02 01-05 01-07 01-09 01-12"),
        ("0 9 * * fri-sun", "01-02 01-03 01-04 01-09"),
        ("0 9 * * 5-7", "01-02 01-03 01-04 01-09"),
        ("0 9 ? * MON", "01-05 01-12 01-19"),
        ("0 9 * * 7", "01-04 01-11"),
        ("0 9 * jan,Mar,JUN 0", "01-04 01-11 01-18 01-25 03-01"),
        ("@monthly", "01-01 02-01 03-01"),
        ("@weekly", "01-04 01-11"),
        ("@Yearly", "01-01"),
    ],
)
def test_the_first_days_of_2026_are_as_on_a_calendar(text: str, expected: str) -> None:
    assert " ".join(days(text, 2026, 400)).startswith(expected)


def test_the_last_day_knows_leap_years() -> None:
    assert [days("0 9 L 2 *", year, 1) for year in (2026, 2027, 2028, 2029)] == [["02-28"], ["02-28"], ["02-29"], ["02-28"]]
    assert days("0 9 29 2 *", 2028, 1) == ["02-29"]


def test_a_step_begins_anew_with_each_month() -> None:
    found = days("0 9 */2 * *", 2026, 60)
    assert found[14:18] == ["01-29", "01-31", "02-01", "02-03"]


def test_seconds_stand_first_where_there_are_six_fields() -> None:
    read = cron.parse("*/20 30 8 * * *")
    found = civil.occurrences(read, "UTC", civil.Policy(), datetime(2026, 1, 1, 8, 30, 5, tzinfo=UTC))
    assert [f"{one.at:%H:%M:%S}" for one in islice(found, 4)] == ["08:30:20", "08:30:40", "08:30:00", "08:30:20"]


@pytest.mark.parametrize(
    "text",
    [
        *("*/0 * * * *", "0-99999999/1 * * * *", "5-1 * * * *", "1- * * * *", ", * * * *", "*,,* * * * *", "1/ * * * *"),
        *("/5 * * * *", "** * * * *", "0 0 - 2,5 ?", "* * * *", "* * * * * * *", "", " ", "\n", "* * * *\n*", "0 9 * * mon\n"),
        *(
            "\uff10 9 * * *",
            "\u0660 9 * * *",
            "0 9 \uff2c * *",
            "0 9 * * mOn",
            "@every 1ns",
            "@reboot",
            "60 * * * *",
            "* 24 * * *",
        ),
        *(
            "0 0 0 * *",
            "0 0 32 * *",
            "0 0 * 0 *",
            "0 0 * 13 *",
            "0 0 * * 8",
            "0 9 * * 6#0",
            "0 9 * * 2#6",
            "0 9 * * 2#",
            "*-5 * * * *",
        ),
        *(
            "0 9 L-31 * *",
            "0 9 32W * *",
            "0 9 0W * *",
            "0 9 W * *",
            "0 9 ? * ?",
            "? * * * *",
            "0 9 * * L",
            "+5 * * * *",
            "-5 * * * *",
        ),
        *(
            "0\u00a09 * * *",
            "1,2,3, * * * *",
            "0x5 * * * *",
            "5 5 5 foo *",
            "5 5 5 mon *",
            "5 5 * * jan",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
        ),
        *(
            "0 0 30 2 *",
            "0 0 31 2 *",
            "0 0 31 4 *",
            "0 0 31 4,6,9,11 *",
            "0 0 30 2 *",
            "0 0 L-30 2 *",
            "0 0 30W 2 *",
            "0 0 31 11 ?",
        ),
        pytest.param("1," * 10_000 + "1 * * * *", id="ten thousand items"),
        pytest.param(" " * 10_000, id="blanks"),
        pytest.param("*" * 1_000_000, id="a megabyte"),
    ],
)
def test_what_is_no_expression_or_names_no_day_is_refused_quickly(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="expected") as refused:
        cron.parse(text)
    assert time.process_time() - began < 0.05
    assert len(str(refused.value)) < 300


def test_either_day_is_enough_even_if_one_of_them_never_comes() -> None:
    assert days("0 0 30 2 1", 2026, 3) == ["02-02", "02-09", "02-16"]


@pytest.mark.parametrize("text", ["0 0 29 2 */7", "0 0 29 2 *", "59 23 31 12 *", "0 0 29 2 ?"])
def test_the_rarest_days_are_found_at_once(text: str) -> None:
    read = cron.parse(text)
    began = time.process_time()
    next(civil.occurrences(read, "America/New_York", civil.Policy(), datetime(2026, 3, 1, tzinfo=UTC)))
    assert time.process_time() - began < 0.1


PLAIN = ["0 9 * * 1-5", "*/7 3,4 1-15/3 * *", "15 10 * 2-11/3 0", "5 0 */3 * 2", "59 23 31 * *", "0 0 1 1 *", "30 6 * * 6,0"]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_expressions_ring_as_two_other_programs_say(text: str) -> None:
    begin = datetime(2026, 1, 31, 22, 17, tzinfo=UTC)
    ours = [one.at for one in islice(civil.occurrences(cron.parse(text), "UTC", civil.Policy(), begin), 50)]
    assert ours == list(islice(CronSim(text, begin), 50))
    other = croniter(text, begin, day_or=not (text.split()[2].startswith("*") or text.split()[4].startswith("*")))
    assert ours == [other.get_next(datetime) for _ in range(50)]
