"""The guide about endpoints that are down says the numbers that the code has."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from campana.channels.webhook import ABORT
from campana.channels.webhook_target import RETRY_ON
from campana.domain import breakers, guards, outcomes, retries
from campana.engine import destinations
from campana.engine.options import Options
from campana.settings import Settings
from campana.wiring import options_of
from tests.domain.builders import NOW

DOWN = outcomes.Failed(error="refused", sent=False)
SECOND = timedelta(seconds=1)


@pytest.fixture
def guide(root: Path) -> str:
    return " ".join((root / "docs" / "guides" / "endpoint-down.md").read_text(encoding="utf-8").split())


def opened() -> breakers.Breaker:
    breaker = breakers.CLOSED
    for _ in range(breakers.DEFAULT.trip_after):
        breaker = breakers.heard(breaker, DOWN, breakers.DEFAULT, now=NOW)
    return breaker


def rests(until: timedelta) -> list[tuple[int, int]]:
    """When, in seconds since the breaker opened, something goes or would have, and the rest that follows, as the code has it."""
    breaker, now, found = opened(), NOW, []
    while now - NOW < until:
        assert breaker.until is not None
        found.append((int((now - NOW) / SECOND), int((breaker.until - now) / SECOND)))
        now = breaker.until
        breaker = breakers.heard(breaker, DOWN, breakers.DEFAULT, now=now, was_probe=True)
    return found


def test_the_table_is_what_happens(root: Path) -> None:
    said = (root / "docs" / "guides" / "endpoint-down.md").read_text(encoding="utf-8")
    rows = [(int(at), int(rest)) for at, rest in re.findall(r"^\| (\d+) s \|[^|]*\| (\d+) s \|$", said, re.MULTILINE)]
    assert rows == rests(timedelta(seconds=rows[-1][0] + 1))
    # As far as the rests grow, and one more.
    assert rows[-1][1] == rows[-2][1] == breakers.DEFAULT.longest / SECOND


def test_an_hour_costs_as_many_probes_as_it_says(guide: str) -> None:
    probes = len(rests(timedelta(hours=1))) - 1
    assert f"down for an hour is asked {probes} times after the {breakers.DEFAULT.trip_after} failures" in guide


def test_the_numbers_are_those_of_the_code(guide: str) -> None:
    options, retry = Options(), retries.Policy()
    longest = f"{breakers.DEFAULT.longest // timedelta(minutes=1)} minutes"
    first, second = (int(retries.delay(retry, attempt) / SECOND) for attempt in (1, 2))
    for words in (
        f"by default {retry.max_attempts} attempts, {first} and {second} seconds apart",
        f"the policy's longest delay ({retry.cap // timedelta(hours=1)} hour)",
        f"After {breakers.DEFAULT.trip_after} failures in a row",
        f"about {destinations.SLOWEST:g} a second",
        f"for more than {destinations.AHEAD // timedelta(minutes=1)} minutes after the end of the rest",
        f"for {longest} at the most (`{guards.RETRY_AFTER}`)",
        f"has {options.in_flight} places",
        f"has {options.per_host} of them at the most",
        f"and {destinations.FIRST_BERTHS} until it has answered",
        f"waits at most {destinations.DOOR:g} seconds, or {destinations.LOOK:g} where",
        f"(`{guards.BREAKER_OPEN}`)",
        f"(`{guards.BUSY}`)",
        f"`webhook-delivery: {ABORT}`",
        "408, 425, 429 or 5xx",
    ):
        assert words in guide, words
    assert destinations.RESERVED == 4
    assert RETRY_ON == (408, 425, 429, "5xx")


def test_the_settings_defaults_are_the_codes(tmp_path: Path, guide: str) -> None:
    made = options_of(Settings.load({}, folder=tmp_path))
    assert (made.breaker, made.per_host, made.in_flight) == (breakers.DEFAULT, Options().per_host, Options().in_flight)
    for name in re.findall(r"`((?:BREAKER|MAX)_[A-Z_]+)`", guide):
        assert name.lower() in Settings.model_fields
