"""`campana preview`, which asks nobody."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli import program


def test_a_rule_is_shown_as_clocks_show_it_with_what_they_do(tmp_path: Path) -> None:
    done = program.run(
        *(tmp_path, "preview", "--cron", "30 2 * * *", "--tz", "America/New_York"),
        *("--from", "2026-03-07T08:00:00Z", "--count", "2"),
    )
    assert done.stdout.splitlines() == [
        "LOCAL                      UTC",
        "2026-03-08T03:00:00-04:00  2026-03-08T07:00:00Z  02:30 does not exist on 2026-03-08: clocks go from 02:00 to 03:00",
        "2026-03-09T02:30:00-04:00  2026-03-09T06:30:00Z",
    ]
    assert not list(tmp_path.iterdir())


def test_every_kind_of_rule_can_be_asked_about(tmp_path: Path) -> None:
    for rule in (
        ["--daily", "08:30", "--daily", "19:30", "--weekday", "mon"],
        ["--every", "90m", "--anchor", "2026-01-01T00:00:00Z"],
        ["--rrule", r"DTSTART:20260101T090000\nRRULE:FREQ=WEEKLY"],
        ["--at", "2099-12-01T09:00"],
    ):
        done = program.run(tmp_path, "preview", *rule, "--tz", "Europe/London", "--count", "1", "--json")
        assert len(json.loads(done.stdout)["items"]) == 1, done.stderr


def test_a_wrong_rule_is_a_wrong_call(tmp_path: Path) -> None:
    done = program.run(tmp_path, "preview", "--cron", "61 2 * * *")
    assert (done.returncode, done.stdout) == (2, "")
    assert "trigger/cron: expected 0 to 59 as minute, got 61" in done.stderr


def test_a_rule_that_is_over_says_so(tmp_path: Path) -> None:
    assert program.run(tmp_path, "preview", "--at", "2020-01-01T00:00:00Z").stdout == "It never rings after that.\n"
