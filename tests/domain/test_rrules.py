import random
import time
import tracemalloc
from datetime import datetime, timedelta

import pytest
from dateutil import rrule as theirs

from campana.domain import rrules, triggers
from tests.domain.builders import NOW

RULES = [
    *("FREQ=DAILY", "FREQ=DAILY;INTERVAL=3", "FREQ=DAILY;BYMONTH=1,3;BYHOUR=8,20", "FREQ=DAILY;BYDAY=SA,SU"),
    *("FREQ=WEEKLY", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=SU,MO"),
    *(
        "FREQ=MONTHLY",
        "FREQ=MONTHLY;BYDAY=-1FR",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
        "FREQ=MONTHLY;BYMONTHDAY=31,-1",
    ),
    *(
        "FREQ=MONTHLY;INTERVAL=18;BYMONTHDAY=10,11,12",
        "FREQ=MONTHLY;BYDAY=2MO,-2TH;BYHOUR=9,17",
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
    ),
    *(
        "FREQ=YEARLY",
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        "FREQ=YEARLY;BYWEEKNO=1,20,53,-1;BYDAY=MO",
    ),
    *(
        "FREQ=YEARLY;BYYEARDAY=1,100,200,-1",
        "FREQ=YEARLY;INTERVAL=3;BYYEARDAY=-1",
        "FREQ=YEARLY;BYDAY=20MO,-3FR",
        "FREQ=YEARLY;BYMONTH=3;BYDAY=TH",
    ),
    *("FREQ=HOURLY;INTERVAL=6", "FREQ=MINUTELY;INTERVAL=15;BYHOUR=9,10", "FREQ=HOURLY;BYDAY=MO;BYMINUTE=0,30"),
]
STARTS = [datetime(1997, 9, 2, 9, 0), datetime(2024, 2, 29, 23, 45, 10), datetime(2025, 1, 31, 0, 0)]


@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_names_the_days_that_another_program_finds(rule: str, start: datetime) -> None:
    text = f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{rule}"
    ours, dice = rrules.parse(text, "UTC"), random.Random(text)
    for years in (1, 1, 1, 4, 9, 30):
        at = start + timedelta(seconds=dice.randrange(86_400 * 365 * years))
        assert ours.next_wall(at) == theirs.rrulestr(text).after(at, inc=True), at


@pytest.mark.parametrize(
    "rule",
    [
        *(
            "FREQ=DAILY;INTERVAL=0",
            "FREQ=SECONDLY",
            "FREQ=DAILY;COUNT=0",
            "FREQ=DAILY;COUNT=5;UNTIL=20270101",
            "FREQ=DAILY;COUNT=99999",
        ),
        *("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30"),
        *(
            "FREQ=WEEKLY;BYMONTH=4;BYMONTHDAY=31",
            "FREQ=YEARLY;UNTIL=19980101",
            "FREQ=MINUTELY;INTERVAL=90",
            "FREQ=DAILY;BYDAY=2MO",
        ),
        *(
            "FREQ=DAILY;X=1",
            "FREQ=DAILY;FREQ=DAILY",
            "BYDAY=MO",
            "FREQ=YEARLY;BYSETPOS=1",
            "FREQ=DAILY;BYHOUR=24",
            "FREQ=DAILY;BYMONTH=0",
        ),
        *(
            "FREQ=DAILY;BYMONTHDAY=0",
            "FREQ=DAILY;BYMONTHDAY=-32",
            "FREQ=DAILY;WKST=XX",
            "FREQ=DAILY;INTERVAL=1e9",
            "FREQ=",
            "FREQ=DAILY;BYDAY=",
        ),
        *(
            "FREQ=DAILY;INTERVAL=-1",
            "FREQ=HOURLY;BYMINUTE=10,40;BYSETPOS=1",
            f"FREQ=MINUTELY;BYSECOND={','.join(map(str, range(0, 60, 30)))}",
            "FREQ=DAILY;COUNT=\u0663",
            "FREQ=DAILY;UNTIL=20260230",
            "FREQ=DAILY;UNTIL=tomorrow",
            "FREQ=MONTHLY;BYDAY=54MO",
        ),
    ],
)
def test_what_can_not_be_meant_is_refused_quickly(rule: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r"expected|no such time") as refused:
        rrules.parse(f"DTSTART:20260101T090000\nRRULE:{rule}", "UTC")
    assert time.process_time() - began < 0.25
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "RRULE:FREQ=DAILY",
            "DTSTART:20260101T090000",
            "DTSTART:20260101T090000\nDTSTART:20260101T090000\nRRULE:FREQ=DAILY",
        ),
        *("DTSTART;TZID=Europe/Paris:20260101T090000\nRRULE:FREQ=DAILY", "DTSTART:20260101T250000\nRRULE:FREQ=DAILY"),
        *("DTSTART:18000101T090000\nRRULE:FREQ=DAILY", "DTSTART:20260101T090000\nRDATE:20260101T090000\nRRULE:FREQ=DAILY"),
        pytest.param("X" * 100_000, id="long"),
    ],
)
def test_lines_that_are_no_rule_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such time"):
        rrules.parse(text, "Europe/London")


def test_exceptions_are_left_out_and_counted() -> None:
    text = "DTSTART:20260101T090000\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20260102T090000"
    assert rrules.parse(text, "UTC").counted == [datetime(2026, 1, 1, 9), datetime(2026, 1, 3, 9)]
    without = rrules.parse("DTSTART:20260101T090000\nRRULE:FREQ=DAILY\nEXDATE:20260102T090000,20260103T090000", "UTC")
    assert without.next_wall(datetime(2026, 1, 1, 10)) == datetime(2026, 1, 4, 9)


def test_an_old_rule_costs_no_more_than_a_young_one() -> None:
    read = rrules.parse("DTSTART:19700101T090000\nRRULE:FREQ=DAILY;INTERVAL=2", "UTC")
    began = time.process_time()
    for day in range(200):
        read.next_wall(datetime(2026, 1, 1) + timedelta(days=day))
    assert time.process_time() - began < 0.2


def test_a_rule_rings_at_the_zones_wall_time() -> None:
    faults: list[triggers.Fault] = []
    said = {"rrule": "DTSTART;TZID=America/New_York:20260306T023000\nRRULE:FREQ=DAILY;UNTIL=20260310T235959Z"}
    read = triggers.read(said, zone="America/New_York", now=NOW, faults=faults)
    assert not faults
    assert read is not None
    found = list(triggers.Rule(trigger=read, zone="America/New_York").after(datetime.fromisoformat("2026-03-06T12:00:00Z")))
    assert [f"{one.at:%m-%dT%H:%MZ}" for one in found] == ["03-07T07:30Z", "03-08T07:00Z", "03-09T06:30Z", "03-10T06:30Z"]
    assert found[1].note is not None


def test_a_rule_with_half_a_million_times_in_a_year_costs_no_more_than_another() -> None:
    every = [",".join(map(str, range(most))) for most in (24, 60)]
    head = "DTSTART:20260101T000000\nRRULE:FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;"
    tracemalloc.start()
    began = time.process_time()
    read = rrules.parse(f"{head}BYHOUR={every[0]};BYMINUTE={every[1]}", "UTC")
    at = datetime(2026, 12, 24, 18, 30)
    for number in range(500):
        assert read.next_wall(at + timedelta(minutes=number)) == at + timedelta(minutes=number)
    last = rrules.parse(f"{head}BYHOUR={every[0]};BYMINUTE={every[1]};BYSETPOS=-1,2", "UTC")
    assert last.next_wall(datetime(2026, 1, 1)) == datetime(2026, 1, 1, 0, 1)
    assert last.next_wall(at) == datetime(2026, 12, 31, 23, 59)
    assert time.process_time() - began < 1
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_a_rule_counts_beyond_what_one_search_reaches() -> None:
    read = rrules.parse("DTSTART:19700101T090000\nRRULE:FREQ=YEARLY;COUNT=100", "UTC")
    assert read.counted is not None
    assert (len(read.counted), read.counted[-1]) == (100, datetime(2069, 1, 1, 9))


def test_a_rule_that_would_ring_every_second_is_refused() -> None:
    faults: list[triggers.Fault] = []
    triggers.read({"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYSECOND=1,2"}, zone="UTC", now=NOW, faults=faults)
    assert [(pointer, code) for pointer, code, _ in faults] == [("/rrule", "too_often")]
