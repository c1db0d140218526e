"""`campana switch`, `campana release` and the environment's stop, as an operator in a hurry uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database of the newest schema."""
    assert program.run(tmp_path, "migrate").returncode == 0
    return tmp_path


def test_a_switch_is_thrown_shown_and_lifted(folder: Path) -> None:
    thrown = program.run(folder, "switch", "off", "all/channel:voice", "--reason", "the provider repeats calls")
    assert thrown.returncode == 0, thrown.stderr
    assert thrown.stdout.startswith("OFF  all/channel:voice ")
    assert thrown.stdout.endswith("the command line: the provider repeats calls\n")
    listed = json.loads(program.run(folder, "switch", "list", "--json").stdout)
    assert [(one["scope"], one["off"]) for one in listed] == [("all/channel:voice", True)]
    assert program.run(folder, "switch", "on", "all/channel:voice").stdout.startswith("on   all/channel:voice ")
    assert program.run(folder, "switch", "list").stdout.startswith("on   all/channel:voice ")


def test_a_switch_of_another_tenant_is_thrown_by_its_name(folder: Path) -> None:
    assert program.run(folder, "switch", "off", "tenant", "--tenant", "nobody").stderr == "campana: there is no tenant 'nobody'\n"
    assert program.run(folder, "switch", "off", "channel:log", "--tenant", "default").returncode == 0
    outside = program.run(folder, "switch", "off", "tenant", "--project", "default")
    assert (outside.returncode, "there is no such scope here" in outside.stderr) == (3, True)


def test_a_scope_that_is_not_there_is_one_line_and_exit_code_3(folder: Path) -> None:
    done = program.run(folder, "switch", "off", "chanel:voice")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "there is no such scope here: expected tenant, " in done.stderr


def test_a_safe_hold_is_seen_by_the_doctor_and_released(folder: Path) -> None:
    assert program.run(folder, "release").stdout == "Nothing was held.\n"
    program.run(folder, "switch", "off", "all/hold")
    doctor = program.run(folder, "doctor", DISABLE_ALL_CALLS="true")
    assert doctor.returncode == 1
    assert "WRONG safe hold: engaged; reconcile with the providers, then `campana release`" in doctor.stdout
    assert "calls: none is placed, since DISABLE_ALL_CALLS is set here" in doctor.stdout
    assert program.run(folder, "release").stdout == "Released.\n"
    healthy = program.run(folder, "doctor")
    assert healthy.returncode == 0
    assert "switches: none is off" in healthy.stdout


def test_an_engine_told_to_hold_says_so_and_so_does_one_with_disabled_calls(folder: Path) -> None:
    with program.start(folder, "engine", "--hold", DISABLE_ALL_CALLS="1", LOG_FORMAT="json") as running:
        running.wait_for(r"engine\.held")
        running.wait_for(r'"off": \["all/DISABLE_ALL_CALLS", "all/hold"\]')
