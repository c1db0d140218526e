"""When a delivery is due, until when it may be sent, and when it is tried again: as it is read and resolved."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from campana.domain import instants
from tests.api.site import Site, pointers, wanted


async def post(client: httpx2.AsyncClient, **said: Any) -> dict[str, Any]:
    answer = await client.post("/v1/deliveries", json=wanted(**said))
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def instant(text: str) -> datetime:
    return instants.parse(text)


@pytest.mark.parametrize(
    ("at", "timezone", "due_at"),
    [
        ("2100-12-01T14:00:00Z", None, "2100-12-01T14:00:00Z"),
        ("2100-12-01t14:00:00z", None, "2100-12-01T14:00:00Z"),
        ("2100-12-01 14:00:00Z", None, "2100-12-01T14:00:00Z"),
        ("2100-12-01T14:00:00.123456+05:30", None, "2100-12-01T08:30:00.123456Z"),
        ("2100-12-01T14:00:00-00:30", "Asia/Tokyo", "2100-12-01T14:30:00Z"),
        ("2027-01-15T09:00", "America/New_York", "2027-01-15T14:00:00Z"),
        ("2027-07-15T09:00:30", "America/New_York", "2027-07-15T13:00:30Z"),
        ("2027-03-14T02:30", "America/New_York", "2027-03-14T07:00:00Z"),
        ("2027-11-07T01:30", "America/New_York", "2027-11-07T05:30:00Z"),
        ("2027-03-28T01:15", "Europe/London", "2027-03-28T01:00:00Z"),
    ],
)
async def test_at_is_an_instant_or_a_local_time_in_a_zone(
    client: httpx2.AsyncClient, at: str, timezone: str | None, due_at: str
) -> None:
    shown = await post(client, at=at, timezone=timezone)

    assert (shown["due_at"], shown["scheduled_for"], shown["status"]) == (due_at, due_at, "scheduled")


@pytest.mark.parametrize(
    "at",
    [
        "2026-02-30T00:00:00Z",
        "2027-01-01T24:00:00Z",
        "2027-01-01T00:00:60Z",
        "2027-01-01T00:00:00+25:00",
        "2027-01-01T00:00:00+0530",
        "2027-01-01T00:00:00.1234567Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "10000-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "2027-01-01",
        "2027-01-01T09",
        "2027-1-1T09:00",
        "2027-02-30T09:00",
        "2027-01-01T09:00:00.5",
        "\uff12\uff10\uff12\uff17-01-01T00:00:00Z",
        "2027-01-01T00:00:00Z\n",
        "1767225600000",
        "now",
        "tomorrow at nine",
        "",
    ],
)
async def test_what_would_have_to_be_guessed_is_no_time(here: Site, client: httpx2.AsyncClient, at: str) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(at=at, timezone="Europe/London"))

    assert pointers(answer) == {("/at", "instant")}
    assert await here.count() == 0


@pytest.mark.parametrize(
    "zone", ["../etc/passwd", "/etc/passwd", "", "america/new_york", "UTC+5", "GMT+25", "localtime", "Europe/London ", "EST5EDT4"]
)
async def test_a_zone_is_an_iana_name_and_nothing_else(client: httpx2.AsyncClient, zone: str) -> None:
    for at in ("2027-01-01T09:00", "2027-01-01T09:00:00Z"):
        answer = await client.post("/v1/deliveries", json=wanted(at=at, timezone=zone))
        assert pointers(answer) == {("/timezone", "unknown_timezone")}


async def test_a_zone_of_ten_kilobytes_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(at="2027-01-01T09:00", timezone="x" * 10_240))

    assert pointers(answer) == {("/timezone", "string_too_long")}


async def test_a_local_time_needs_a_zone(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(at="2027-01-01T09:00"))

    assert pointers(answer) == {("/timezone", "required")}


async def test_without_at_it_is_due_now(here: Site, client: httpx2.AsyncClient) -> None:
    before = here.now
    shown = await post(client, at=None)

    assert before <= instant(shown["due_at"]) <= here.now
    assert shown["due_at"] == shown["created_at"]


async def test_up_to_a_minute_ago_means_now_and_older_is_refused(here: Site, client: httpx2.AsyncClient) -> None:
    recent = instants.show(here.now - timedelta(seconds=50))
    older = instants.show(here.now - timedelta(seconds=61))

    assert (await post(client, at=recent))["status"] == "scheduled"
    answer = await client.post("/v1/deliveries", json=wanted(at=older))
    assert pointers(answer) == {("/at", "at_in_past")}
    local = await client.post("/v1/deliveries", json=wanted(at="2020-01-01T09:00", timezone="Asia/Kolkata"))
    assert pointers(local) == {("/at", "at_in_past")}


async def test_what_is_late_is_sent_or_skipped_where_that_was_said(client: httpx2.AsyncClient) -> None:
    sent = await post(client, at="2020-01-01T00:00:00Z", late="send")
    skipped = await post(client, at="2020-01-01T00:00:00Z", late="skip")

    assert (sent["due_at"], sent["expires_at"]) == ("2020-01-01T00:00:00Z", None)
    assert (skipped["due_at"], skipped["expires_at"]) == ("2020-01-01T00:00:00Z", "2020-01-01T00:01:00Z")


async def test_expiry_is_an_instant_or_counted_from_the_due_time(client: httpx2.AsyncClient) -> None:
    absolute = await post(client, expires_at="2199-01-01T02:00:00+01:00")
    relative = await post(client, expires_after="PT90M")

    assert absolute["expires_at"] == "2199-01-01T01:00:00Z"
    assert relative["expires_at"] == "2199-01-01T01:30:00Z"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"expires_at": "2199-01-01T00:00:00Z"}, ("/expires_at", "before_due")),
        ({"expires_at": "2026-01-01T00:00:00Z"}, ("/expires_at", "before_due")),
        ({"expires_at": "2199-06-01T00:00:00Z", "expires_after": "2h"}, ("/expires_after", "conflict")),
        ({"expires_after": "0s"}, ("/expires_after", "duration")),
        ({"expires_after": "-5m"}, ("/expires_after", "duration")),
        ({"expires_after": "200000d"}, ("/expires_after", "duration")),
        ({"expires_after": "5"}, ("/expires_after", "duration")),
        ({"expires_at": "2199-06-01T00:00"}, ("/expires_at", "instant")),
    ],
)
async def test_an_expiry_that_makes_no_sense_is_refused(
    client: httpx2.AsyncClient, said: dict[str, str], expected: tuple[str, str]
) -> None:
    answer = await client.post("/v1/deliveries", json=wanted(**said))

    assert pointers(answer) == {expected}


async def test_an_expiry_past_the_end_of_the_calendar_is_its_end(client: httpx2.AsyncClient) -> None:
    assert (await post(client, expires_after="36500d"))["expires_at"] == "2200-01-01T00:00:00Z"


async def test_a_retry_policy_is_resolved_when_the_delivery_is_made(client: httpx2.AsyncClient) -> None:
    plain = await post(client)
    own = await post(client, retry={"max_attempts": 7, "backoff": "fixed", "delays": {"failed": "PT2M"}, "only": ["failed"]})

    assert plain["retry"] == {
        "max_attempts": 3,
        "backoff": "exponential",
        "base": "1m",
        "cap": "1h",
        "jitter": 0.0,
        "delays": {},
        "only": None,
        "enabled": True,
    }
    assert own["retry"] == plain["retry"] | {
        "max_attempts": 7,
        "backoff": "fixed",
        "delays": {"failed": "2m"},
        "only": ["failed"],
    }
    assert (plain["max_attempts"], own["max_attempts"]) == (3, 7)


async def test_a_first_delay_over_the_usual_cap_is_what_was_asked_for(client: httpx2.AsyncClient) -> None:
    assert (await post(client, retry={"base": "2h"}))["retry"]["cap"] == "2h"
    assert (await post(client, retry={"base": "2h", "cap": "30m"}))["retry"]["cap"] == "30m"


@pytest.mark.parametrize(
    ("channel", "target"),
    [("webhook", {"url": "https://example.com/hook"}), ("python", {"handler": "x"}), ("log", {})],
)
async def test_what_follows_an_ambiguous_attempt_is_retry_unless_said(
    client: httpx2.AsyncClient, channel: str, target: dict[str, Any]
) -> None:
    plain = await post(client, channel=channel, target=target)
    held = await post(client, channel=channel, target=target, on_ambiguous="hold")

    assert (plain["on_ambiguous"], held["on_ambiguous"]) == ("retry", "hold")
