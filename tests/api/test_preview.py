"""`POST /v1/schedules/preview`: what a rule does, before anybody relies on it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.api.site import Site, pointers

NIGHTLY = {"trigger": {"cron": "30 2 * * *"}, "timezone": "America/New_York", "from": "2026-03-07T00:00:00Z"}


async def preview(here: Site, said: Any) -> Any:
    answer = await (await here.client()).post("/v1/schedules/preview", json=said)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_next_instants_are_shown_in_utc_and_as_clocks_show_them(here: Site) -> None:
    said = await preview(here, NIGHTLY | {"count": 2})
    assert said == {
        "items": [
            {
                "at": "2026-03-07T07:30:00Z",
                "local": "2026-03-07T02:30:00-05:00",
                "nominal": "2026-03-07T02:30",
                "fold": 0,
                "note": None,
            },
            {
                "at": "2026-03-08T07:00:00Z",
                "local": "2026-03-08T03:00:00-04:00",
                "nominal": "2026-03-08T02:30",
                "fold": 0,
                "note": "02:30 does not exist on 2026-03-08: clocks go from 02:00 to 03:00",
            },
        ],
        "never": False,
    }


async def test_from_is_without_and_to_is_with_its_instant(here: Site) -> None:
    said = await preview(here, NIGHTLY | {"from": "2026-03-07T07:30:00Z", "to": "2026-03-09T06:30:00Z", "dst": "skip"})
    assert [one["at"] for one in said["items"]] == ["2026-03-09T06:30:00Z"]
    assert await preview(here, NIGHTLY | {"to": "2026-03-07T01:00:00Z"}) == {"items": [], "never": False}


async def test_a_rule_that_is_over_says_so(here: Site) -> None:
    assert await preview(here, {"trigger": {"at": "2020-01-01T00:00:00Z"}}) == {"items": [], "never": True}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"trigger": {"cron": "0 0 30 2 *"}}, "/trigger/cron"),
        ({"trigger": {"every": "1s"}}, "/trigger/every"),
        ({"trigger": "0 9 * * *"}, "/trigger"),
        ({"trigger": {}}, "/trigger"),
        ({"timezone": "america/new_york"}, "/timezone"),
        ({"timezone": None, "trigger": {"at": "2026-12-01T09:00"}}, "/trigger/at"),
        ({"dst": "sideways"}, "/dst"),
        ({"fold": "last"}, "/fold"),
        ({"count": 0}, "/count"),
        ({"count": 1001}, "/count"),
        ({"count": "5"}, "/count"),
        ({"from": "yesterday"}, "/from"),
        ({"starts_at": "2026-05-01T00:00:00Z", "ends_at": "2026-04-01T00:00:00Z"}, "/ends_at"),
        ({"zone": "UTC"}, "/zone"),
    ],
    ids=str,
)
async def test_what_can_not_be_meant_is_refused_by_name(here: Site, change: dict[str, Any], expected: str) -> None:
    answer = await (await here.client()).post("/v1/schedules/preview", json=NIGHTLY | change)
    assert answer.status_code == 422, answer.text
    assert {pointer for pointer, _ in pointers(answer)} == {expected}


async def test_all_faults_come_at_once(here: Site) -> None:
    said = {"trigger": {"cron": "61 * * * *"}, "timezone": "Mars/Olympus", "dst": 1, "count": -1}
    answer = await (await here.client()).post("/v1/schedules/preview", json=said)
    assert {pointer for pointer, _ in pointers(answer)} == {"/count", "/dst", "/timezone", "/trigger/cron"}


@pytest.mark.parametrize(
    "trigger",
    [
        {"cron": "0 0 29 2 *"},
        {"every": "2s"},
        {"rrule": "DTSTART:19700101T000000\nRRULE:FREQ=YEARLY;BYYEARDAY=366"},
        {"rrule": "DTSTART:20280229T000000\nRRULE:FREQ=DAILY;BYDAY=TU;BYMONTHDAY=29;BYMONTH=2"},
        {"cron": "0 0 29 2 1"},
        {"daily": ["08:30"]},
    ],
    ids=str,
)
async def test_the_longest_preview_of_the_rarest_rule_comes_soon(here: Site, trigger: dict[str, Any]) -> None:
    client, began = await here.client(), time.process_time()
    answer = await client.post("/v1/schedules/preview", json={"trigger": trigger, "timezone": "Europe/Paris", "count": 1000})
    assert answer.status_code == 200
    assert time.process_time() - began < 2
