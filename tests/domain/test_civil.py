import base64
import contextlib
import io
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campana.domain import civil, cron, zones
from tests.domain import oracle

HERE = Path(__file__).parent
ROWS = json.loads((HERE / "wall_times.json").read_text())["cases"]
FOLDS = {"first": "first", "last": "second", "second": "second", "both": "both"}


@pytest.fixture
def as_of_2025b(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Zones as they were known when the expected instants were written down: what comes after is a government's to change."""
    then = json.loads((HERE / "zones_2025b.json").read_text())
    kept = {name: ZoneInfo.from_file(io.BytesIO(base64.b64decode(data)), name) for name, data in then.items()}
    real = zones.zone
    monkeypatch.setattr(zones, "zone", lambda name: kept.get(name) or real(name))
    civil._cuts.cache_clear()
    yield
    civil._cuts.cache_clear()


def instants(text: str, zone: str, begin: datetime, end: datetime, *, gap: str, fold: str) -> list[datetime]:
    rule = cron.parse(text)
    policy = civil.ELAPSED if rule.is_elapsed else civil.Policy(gap=civil.Gap(gap), fold=civil.Fold(FOLDS[fold]))
    found = civil.occurrences(rule, zone, policy, begin - timedelta(microseconds=1))
    return [one.at for one in takewhile(lambda one: one.at < end, found)]


@pytest.mark.usefixtures("as_of_2025b")
@pytest.mark.parametrize(
    ("row", "policies"),
    [(row, policies) for row in ROWS for policies in row["expect"]],
    ids=lambda it: it["label"] if isinstance(it, dict) else it,
)
def test_a_rule_rings_when_it_was_written_down_that_it_should(row: dict[str, Any], policies: str) -> None:
    gap, fold = policies.split("/")
    begin, end = (datetime.fromisoformat(row[name]).replace(tzinfo=UTC) for name in ("from", "to"))
    found = [f"{at:%Y-%m-%dT%H:%MZ}" for at in instants(row["expr"], row["zone"], begin, end, gap=gap, fold=fold)]
    assert found == row["expect"][policies]


def first(text: str, zone: str, after: str, count: int = 1, **policy: str) -> list[str]:
    begin = datetime.fromisoformat(after).replace(tzinfo=UTC)
    end = begin + timedelta(days=40)
    found = instants(text, zone, begin, end, gap=policy.get("gap", "shift"), fold=policy.get("fold", "first"))
    return [f"{at:%m-%dT%H:%MZ}" for at in found[:count]]


@pytest.mark.usefixtures("as_of_2025b")
@pytest.mark.parametrize(
    ("text", "zone", "after", "policy", "expected"),
    [
        ("30 1 * * *", "America/New_York", "2026-10-31T00:00", {}, "10-31T05:30Z 11-01T05:30Z 11-02T06:30Z"),
        ("30 1 * * *", "America/New_York", "2026-11-01T00:00", {"fold": "second"}, "11-01T06:30Z 11-02T06:30Z"),
        ("30 1 * * *", "America/New_York", "2026-11-01T00:00", {"fold": "both"}, "11-01T05:30Z 11-01T06:30Z 11-02T06:30Z"),
        ("*/30 2-3 * * *", "America/New_York", "2026-03-08T00:00", {}, "03-08T07:00Z 03-08T07:30Z 03-09T06:00Z"),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", {}, "04-04T14:45Z 04-05T15:15Z"),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", {"fold": "both"}, "04-04T14:45Z 04-04T15:15Z 04-05T15:15Z"),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", {}, "10-03T15:30Z 10-04T15:15Z"),
        ("30 2 * * *", "Africa/Casablanca", "2026-03-22T00:00", {}, "03-22T02:00Z 03-23T01:30Z"),
        ("30 2 * * *", "Africa/Casablanca", "2026-03-22T00:00", {"gap": "skip"}, "03-23T01:30Z"),
        ("0 9 * * *", "Asia/Kathmandu", "2026-03-08T00:00", {}, "03-08T03:15Z"),
        ("30 1 * * *", "Europe/London", "2026-10-25T00:00", {"fold": "second"}, "10-25T01:30Z"),
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T00:00", {}, "04-23T22:00Z 04-24T21:00Z"),
        ("0 0 1-31 * *", "Asia/Beirut", "2026-03-28T12:00", {}, "03-28T22:00Z 03-29T21:00Z"),
        ("30 2 * * *", "Antarctica/Troll", "2026-03-29T00:00", {}, "03-29T01:00Z"),
        ("0 3 * * *", "Pacific/Chatham", "2026-09-26T00:00", {}, "09-26T14:00Z"),
        ("30 23 * * *", "America/Nuuk", "2026-03-28T12:00", {}, "03-29T01:00Z 03-30T00:30Z"),
        ("*/15 2 * * *", "America/New_York", "2026-03-08T00:00", {}, "03-08T07:00Z 03-09T06:00Z"),
    ],
)
def test_gaps_and_folds_of_strange_zones(text: str, zone: str, after: str, policy: dict[str, str], expected: str) -> None:
    assert first(text, zone, after, len(expected.split()), **policy) == expected.split()


def test_what_was_lost_or_comes_twice_keeps_its_wall_time_and_says_so() -> None:
    rule, policy = cron.parse("30 2 * * *"), civil.Policy(fold=civil.Fold.BOTH)
    lost = next(civil.occurrences(rule, "America/New_York", policy, datetime(2026, 3, 8, tzinfo=UTC)))
    assert (lost.wall, lost.fold) == (datetime(2026, 3, 8, 2, 30), 0)
    assert lost.note == "02:30 does not exist on 2026-03-08: clocks go from 02:00 to 03:00"
    found = civil.occurrences(cron.parse("30 1 * * *"), "America/New_York", policy, datetime(2026, 11, 1, tzinfo=UTC))
    assert [(one.wall, one.fold, (one.note or "").rpartition(": ")[2]) for one in (next(found), next(found))] == [
        (datetime(2026, 11, 1, 1, 30), 0, "this is the first time"),
        (datetime(2026, 11, 1, 1, 30), 1, "this is the second time"),
    ]
    assert next(found).note is None


# --- against brute force

numbers = st.integers


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda it: f"{min(it)}-{max(it)}")
    step = st.integers(1, max(2, high // 2)).map(lambda it: f"*/{it}")
    stepped = st.tuples(span, st.integers(1, 7)).map(lambda it: f"{it[0]}/{it[1]}")
    return st.one_of(st.just("*"), one, span, step, stepped, st.lists(one, min_size=2, max_size=4).map(",".join))


_days = st.one_of(_field(1, 31), st.sampled_from(["L", "LW", "L-3", "1W", "15W", "31W", "L,15", "1,L-5", "30W,2"]))
_weekdays = st.one_of(_field(0, 6), st.sampled_from(["7", "5-7", "1#1", "5#5", "0L", "3L", "2#2,4", "6#3,0L"]))
expressions = st.tuples(_field(0, 59), _field(0, 23), _days, _field(1, 12), _weekdays).map(" ".join)
names = st.sampled_from(sorted(available_timezones() - {"localtime", "Factory", "posixrules"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A rule, a place, a time and what is done about gaps and folds."""

    text: str
    zone: str
    begin: datetime
    gap: str = "shift"
    fold: str = "first"
    days: int = 3


def _is_as_said(case: Case) -> bool:
    end = case.begin + timedelta(days=case.days)
    found = []
    with contextlib.suppress(ValueError):  # where it never matches
        found = instants(case.text, case.zone, case.begin, end, gap=case.gap, fold=case.fold)
    return found == oracle.instants(case.text, zones.zone(case.zone), case.begin, end, gap=case.gap, fold=case.fold)


@given(
    text=expressions,
    zone=names,
    day=st.integers(0, 365 * 7 - 10),
    gap=st.sampled_from(["shift", "skip"]),
    fold=st.sampled_from(["first", "second", "both"]),
)
@settings(max_examples=60, deadline=None)
def test_any_rule_in_any_zone_rings_as_a_walk_over_all_minutes_says(text: str, zone: str, day: int, gap: str, fold: str) -> None:
    begin = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day)
    assert _is_as_said(Case(text=text, zone=zone, begin=begin, gap=gap, fold=fold))


def test_around_the_cuts_of_all_zones_it_rings_as_a_walk_over_all_minutes_says() -> None:
    dice = random.Random(20260308)
    cuts = [
        (zone, cut.at)
        for zone in sorted(available_timezones())
        if zone not in {"localtime", "Factory"}
        for year in range(2024, 2031)
        for cut in civil._cuts(zone, year)
    ]
    assert len(cuts) > 2_000
    for zone, at in dice.sample(cuts, 60):
        minute, hour = dice.randrange(60), at.astimezone(zones.zone(zone)).hour
        hours = dice.choice(
            [str(hour), f"{(hour - 1) % 24},{hour}", f"{max(0, hour - 2)}-{min(23, hour + 1)}", "*", "*/2", f"{(hour - 1) % 24}"]
        )
        text = f"{dice.choice([str(minute), '*/15', '0', '59', '*'])} {hours} * * *"
        begin = at.replace(minute=0, second=0) - timedelta(hours=30)
        for gap, fold in (("shift", "first"), ("skip", "second"), ("shift", "both")):
            case = Case(text=text, zone=zone, begin=begin, gap=gap, fold=fold)
            assert _is_as_said(case), case
