"""`campana sweep`: a table for people, JSON for programs, and exit codes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from campana.store.sweeps import SWEEPS
from tests.cli import program
from tests.cli.test_commands import one_line


@pytest.fixture
def house(tmp_path: Path) -> Path:
    assert program.run(tmp_path, "migrate").returncode == 0
    return tmp_path


def ask(house: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(house / "campana-data" / "campana.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_the_list_shows_each_sweep_before_and_after_it_ran(house: Path) -> None:
    before = program.run(house, "sweep", "list")
    assert before.stdout.split("\n")[0].split() == ["SWEEP", "EVERY", "LAST", "NEXT", "ROWS", "RESULT"]
    assert [line.split()[0] for line in before.stdout.splitlines()[1:]] == list(SWEEPS)
    assert all(line.endswith("never run") for line in before.stdout.splitlines()[1:])
    ran = program.run(house, "sweep", "run", "events")
    assert (ran.returncode, ran.stdout.splitlines()[1].split()[:2]) == (0, ["events", "10m"])
    after = {one["name"]: one for one in json.loads(program.run(house, "sweep", "list", "--json").stdout)}
    assert (after["events"]["rows"], after["events"]["result"], after["events"]["error"]) == (0, "done", None)
    assert after["events"]["finished_at"] < after["events"]["next_at"]
    assert after["lanes"]["result"] == "never run"


def test_a_sweep_can_be_run_whether_it_is_due_or_not(house: Path) -> None:
    for _ in range(2):
        done = program.run(house, "sweep", "run", "engines", "--json")
        assert (done.returncode, json.loads(done.stdout)[0]["result"]) == (0, "done")


def test_a_sweep_that_fails_says_so_and_exits_with_one(house: Path) -> None:
    ask(house, "drop table operations")
    done = program.run(house, "sweep", "run", "operations")
    assert done.returncode == 1
    assert "failed" in done.stdout
    assert "no such table: operations" in done.stdout


def test_a_sweep_that_is_under_way_elsewhere_is_left_alone(house: Path) -> None:
    far = 4_000_000_000_000_000
    said = "insert into leases (name, holder, fence, until) values ('sweep:lanes', ?, 1, ?)"
    ask(house, said, bytes(16), far)
    assert "lanes is under way elsewhere" in one_line(program.run(house, "sweep", "run", "lanes"))


def test_an_unknown_sweep_is_a_wrong_call(house: Path) -> None:
    done = program.run(house, "sweep", "run", "everything")
    assert done.returncode == 2
    assert "'deliveries', 'events'" in done.stderr
