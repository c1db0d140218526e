"""What the doctor says of the work: who does it, and what is late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from campana.cli import doctor
from campana.store.health import Health
from tests.cli import program

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATE = NOW - timedelta(hours=1)


def told(*, engines: int = 1, due: dict[str, datetime] | None = None, unserved: str = "") -> list[tuple[bool, str]]:
    seen = Health(engines=engines, seen_at=NOW, due=due or {}, unserved=frozenset(unserved.split()))
    return list(doctor.work(seen, NOW))


def test_engines_that_keep_up_are_well() -> None:
    well = [(True, "engines: 2 running"), (True, "queues: nothing is late")]
    assert told(engines=2) == well
    assert told(engines=2, due={"webhook": NOW - timedelta(seconds=59)}) == well


def test_what_has_been_due_for_long_is_wrong_though_it_is_served() -> None:
    assert told(due={"webhook": LATE}) == [
        (True, "engines: 1 running"),
        (
            False,
            "queue webhook: work has been due since 2026-03-01 11:00:00 UTC; engines are behind: see their log",
        ),
    ]


def test_a_queue_that_nobody_serves_is_wrong_as_soon_as_anything_is_due() -> None:
    ((_, _), (is_well, said)) = told(due={"python:a": NOW}, unserved="python:a")
    assert not is_well
    assert said.endswith("no engine that runs serves it; start the program that does")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert program.run(tmp_path, "migrate").returncode == 0
    return tmp_path


def test_work_without_an_engine_is_wrong_and_says_what_to_start(folder: Path) -> None:
    idle = program.run(folder, "doctor")
    assert (idle.returncode, "ok    engines: none is running, there never was one\n" in idle.stdout) == (0, True)
    program.run(folder, "remind", "--log", "x")
    waiting = program.run(folder, "doctor")
    assert waiting.returncode == 1
    assert "WRONG engines: none is running, there never was one; start `campana up`, or `campana engine`\n" in waiting.stdout
    assert "WRONG queue log: work has been due since " in waiting.stdout


def test_a_switch_that_is_off_is_told_with_who_when_and_why(folder: Path) -> None:
    program.run(folder, "switch", "off", "all/channel:log", "--reason", "flood\x1b[31m")
    done = program.run(folder, "doctor")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if "switches" in line]
    assert line.startswith("ok    switches: all/channel:log is off since ")
    assert ", by the command line: flood" in line
    assert "\x1b" not in line
