from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import pytest

from campana.domain import civil, triggers
from campana.domain.triggers import Rule
from tests.domain.builders import NOW

PLACE = "America/New_York"


def read(said: Any, zone: str | None = PLACE) -> triggers.Trigger:
    faults: list[triggers.Fault] = []
    trigger = triggers.read(said, zone=zone, now=NOW, faults=faults)
    assert faults == []
    assert trigger is not None
    return trigger


def faults_of(said: Any, zone: str | None = PLACE) -> list[tuple[str, str]]:
    found: list[triggers.Fault] = []
    assert triggers.read(said, zone=zone, now=NOW, faults=found) is None
    return [(pointer, code) for pointer, code, _ in found]


def rings(said: Any, after: str, count: int, **others: Any) -> list[str]:
    rule = Rule(trigger=read(said, others.get("zone", PLACE)), **{"zone": PLACE, **others})
    return [f"{one.at:%m-%dT%H:%MZ}" for one in islice(rule.after(datetime.fromisoformat(after + "Z")), count)]


def test_elapsed_time_keeps_to_the_anchors_grid_whatever_clocks_do() -> None:
    said = {"every": "90m", "anchor": "2026-03-01T00:10:00Z"}
    assert rings(said, "2026-03-08T05:00", 3) == ["03-08T06:10Z", "03-08T07:40Z", "03-08T09:10Z"]
    assert rings(said, "2020-01-01T00:00", 1) == ["01-01T00:10Z"]


def test_every_so_many_days_keeps_to_the_wall_time() -> None:
    said = {"every": "1d", "anchor": "2026-03-01T14:00:00Z"}
    assert rings(said, "2026-03-07T00:00", 3) == ["03-07T14:00Z", "03-08T13:00Z", "03-09T13:00Z"]
    weekly = {"every": "2w", "anchor": "2026-03-01T14:00:00Z"}
    assert rings(weekly, "2026-03-01T14:00", 2) == ["03-15T13:00Z", "03-29T13:00Z"]


def test_a_day_is_a_day_and_24_hours_are_24_hours() -> None:
    anchor = "2026-03-07T14:00:00Z"
    assert rings({"every": "24h", "anchor": anchor}, "2026-03-07T15:00", 1) == ["03-08T14:00Z"]
    assert rings({"every": "P1D", "anchor": anchor}, "2026-03-07T15:00", 1) == ["03-08T13:00Z"]


def test_slots_of_a_day_have_names_that_stay() -> None:
    rule = Rule(trigger=read({"daily": {"evening": "19:30", "morning": "02:30"}, "weekdays": ["sat", "sun"]}), zone=PLACE)
    found = list(islice(rule.after(datetime(2026, 3, 7, 5, tzinfo=UTC)), 5))
    assert [(f"{one.at:%m-%dT%H:%MZ}", triggers.name_of(one)) for one in found] == [
        ("03-07T07:30Z", "2026-03-07/morning"),
        ("03-08T00:30Z", "2026-03-07/evening"),
        ("03-08T07:00Z", "2026-03-08/morning"),
        ("03-08T23:30Z", "2026-03-08/evening"),
        ("03-14T06:30Z", "2026-03-14/morning"),
    ]


def test_two_slots_that_are_lost_in_one_gap_ring_once() -> None:
    assert rings({"daily": ["02:15", "02:45"]}, "2026-03-08T05:00", 2) == ["03-08T07:00Z", "03-09T06:15Z"]


def test_an_occurrence_is_called_by_its_wall_time_and_its_pass() -> None:
    rule = Rule(trigger=read({"cron": "30 1 * * *"}), zone=PLACE, fold=civil.Fold.BOTH)
    found = islice(rule.after(datetime(2026, 11, 1, tzinfo=UTC)), 3)
    assert [triggers.name_of(one) for one in found] == ["2026-11-01T01:30:00", "2026-11-01T01:30:00/2", "2026-11-02T01:30:00"]
    nuuk = Rule(trigger=read({"cron": "30 23 * * *"}, "America/Nuuk"), zone="America/Nuuk")
    assert triggers.name_of(next(nuuk.after(datetime(2026, 3, 28, 12, tzinfo=UTC)))) == "2026-03-28T23:30:00"
    every = Rule(trigger=read({"every": "1h", "anchor": "2026-01-01T00:00:00Z"}))
    assert triggers.name_of(next(every.after(NOW))) == "2026-03-01T13:00:00Z"


def test_bounds_are_within() -> None:
    rule = Rule(
        trigger=read({"cron": "0 9 * * *"}, "UTC"),
        starts_at=datetime(2026, 3, 5, 9, tzinfo=UTC),
        ends_at=datetime(2026, 3, 7, 9, tzinfo=UTC),
    )
    assert [one.at.day for one in rule.after(NOW)] == [5, 6, 7]
    assert [one.at.day for one in rule.after(datetime(2026, 3, 6, 9, tzinfo=UTC))] == [7]


def test_one_instant_says_what_clocks_do_to_it() -> None:
    lost = read({"at": "2026-03-08T02:30"})
    assert isinstance(lost, triggers.Once)
    assert (lost.at, lost.note) == (
        datetime(2026, 3, 8, 7, tzinfo=UTC),
        "02:30 does not exist on 2026-03-08: it rings at 03:00",
    )
    twice = read({"at": "2026-11-01T01:30"})
    assert isinstance(twice, triggers.Once)
    assert (twice.at, twice.note) == (
        datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
        "01:30 comes twice on 2026-11-01: this is the first time",
    )
    plain = read({"at": "2026-11-01T01:30:00Z"}, None)
    assert isinstance(plain, triggers.Once)
    assert plain.note is None
    assert [one.at for one in Rule(trigger=plain).after(NOW)] == [plain.at]
    assert not list(Rule(trigger=plain).after(plain.at))


def test_jitter_depends_on_schedule_and_occurrence_alone() -> None:
    rule = Rule(trigger=read({"cron": "0 9 * * *"}, "UTC"))
    found = list(islice(rule.after(NOW), 200))
    length, one, other = timedelta(minutes=10), UUID(int=1), UUID(int=2)
    late = [triggers.jittered(it, one, length) - it.at for it in found]
    assert late == [triggers.jittered(it, one, length) - it.at for it in found]
    assert late != [triggers.jittered(it, other, length) - it.at for it in found]
    assert all(timedelta(0) <= it < length for it in late)
    assert timedelta(minutes=4) < sum(late, timedelta(0)) / len(late) < timedelta(minutes=6)
    assert triggers.jittered(found[0], one, timedelta(0)) == found[0].at


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], [("", "wrong_type")]),
        ("0 9 * * *", [("", "wrong_type")]),
        ({}, [("", "invalid")]),
        ({"cron": "0 9 * * *", "every": "5m"}, [("", "invalid")]),
        ({"cron": "0 9 * * *", "anchor": "x"}, [("/anchor", "unknown_field")]),
        ({"cron": 5}, [("/cron", "wrong_type")]),
        ({"cron": None}, [("/cron", "wrong_type")]),
        ({"cron": "0 9 * *"}, [("/cron", "cron")]),
        ({"cron": "* * * * * *"}, [("/cron", "too_often")]),
        ({"every": "1s"}, [("/every", "too_often")]),
        ({"every": "0s"}, [("/every", "too_often")]),
        ({"every": "soon"}, [("/every", "duration")]),
        ({"every": "5"}, [("/every", "duration")]),
        ({"every": "5m", "anchor": "tomorrow"}, [("/anchor", "instant")]),
        ({"every": 5, "anchor": 5}, [("/every", "wrong_type"), ("/anchor", "wrong_type")]),
        ({"at": "2026-02-30T09:00"}, [("/at", "instant")]),
        ({"at": 1767225600}, [("/at", "wrong_type")]),
        ({"rrule": "FREQ=DAILY"}, [("/rrule", "rrule")]),
        ({"daily": []}, [("/daily", "invalid")]),
        ({"daily": "08:30"}, [("/daily", "wrong_type")]),
        ({"daily": ["8:30", "25:00", "08:60"]}, [("/daily/0", "time"), ("/daily/1", "time"), ("/daily/2", "time")]),
        ({"daily": ["08:30", "08:30"]}, [("/daily", "duplicate")]),
        ({"daily": {"a": "08:30", "b": "08:30"}}, [("/daily", "duplicate")]),
        ({"daily": {"Early Bird": "08:30"}}, [("/daily/Early Bird", "invalid")]),
        ({"daily": ["08:30"], "weekdays": []}, [("/weekdays", "wrong_type")]),
        ({"daily": ["08:30"], "weekdays": ["mon", "Montag"]}, [("/weekdays/1", "invalid")]),
        ({"daily": [f"{hour:02}:{minute}0" for hour in range(24) for minute in (0, 3)]}, [("/daily", "invalid")]),
        ({"after": []}, [("/after", "invalid")]),
        ({"after": ["x"], "on": "failed"}, [("/on", "invalid")]),
        ({"after": ["x"], "delay": 5}, [("/delay", "wrong_type")]),
        ({"after": ["x"], "delay": "5"}, [("/delay", "duration")]),
        ({"after": [7, ""]}, [("/after/0", "invalid"), ("/after/1", "invalid")]),
    ],
    ids=str,
)
def test_each_fault_is_named_where_it_is(said: Any, expected: list[tuple[str, str]]) -> None:
    assert faults_of(said) == expected


def test_a_local_time_without_a_zone_is_refused() -> None:
    assert faults_of({"at": "2026-12-01T09:00"}, None) == [("/at", "instant")]


def test_what_follows_another_schedule_has_no_instants_of_its_own() -> None:
    after = read({"after": ["nightly"], "on": "any", "delay": "5m"})
    assert after == triggers.After(schedules=("nightly",), on="any", delay=timedelta(minutes=5))
    assert not list(Rule(trigger=after).after(NOW))
