"""`campana remind`: one delivery made at the terminal, and what is said when it can't be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of the newest schema, and no engine."""
    made = tmp_path_factory.mktemp("remind")
    assert program.run(made, "migrate").returncode == 0
    return made


def remind(folder: Path, *words: str, code: int = 0, **said: str) -> str:
    done = program.run(folder, "remind", *words, **said)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def made(folder: Path, *words: str, **said: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(remind(folder, *words, "--json", code=0, **said))
    return shown


def test_every_option_becomes_a_field_of_the_delivery(folder: Path) -> None:
    (folder / "payload.json").write_text('{"name": "Anna"}')
    shown = made(
        folder,
        *("anna", "--to", "https://example.com/hook", "--method", "put", "--header", "X-Team: billing: a", "--header", "X-B:b"),
        *(
            "--payload",
            "@payload.json",
            "--template",
            '{"hi": "{{ payload.name }}"}',
            "--label",
            "team=billing",
            "--label",
            "a=b=c",
        ),
        *("--at", "2199-06-01T09:00", "--tz", "America/New_York", "--expires-after", "2h", "--late", "send"),
        *("--dedupe-key", "every-option", "--priority", "urgent", "--on-ambiguous", "hold", "--project", "default"),
        *("--retry-attempts", "5", "--retry-backoff", "linear", "--retry-base", "10s", "--retry-cap", "20m", "--no-retry"),
    )
    target = {"url": "https://example.com/hook", "headers": {"X-Team": "billing: a", "X-B": "b"}, "method": "PUT"}
    assert shown["target"] == target | {"body_template": {"hi": "{{ payload.name }}"}}
    assert (shown["channel"], shown["recipient"], shown["payload"]) == ("webhook", "anna", {"hi": "Anna"})
    assert (shown["labels"], shown["dedupe_key"]) == ({"team": "billing", "a": "b=c"}, "every-option")
    assert (shown["due_at"], shown["expires_at"]) == ("2199-06-01T13:00:00Z", "2199-06-01T15:00:00Z")
    assert (shown["priority"], shown["on_ambiguous"], shown["project"]) == ("urgent", "hold", "default")
    wanted = {"max_attempts": 5, "backoff": "linear", "base": "10s", "cap": "20m", "enabled": False}
    assert {name: shown["retry"][name] for name in wanted} == wanted


def test_what_was_made_and_when_it_rings_is_said_in_local_time_and_utc(folder: Path) -> None:
    words = ("--log", "Dentist", "--at", "2199-06-01T09:00")
    lines = remind(folder, *words, "--tz", "Asia/Kolkata").splitlines()
    assert lines[0].endswith("  scheduled")
    assert lines[1] == "rings 2199-06-01 09:00:00 Asia/Kolkata (2199-06-01 03:30:00 UTC)"
    instant = remind(folder, "--log", "x", "--at", "2199-06-01T09:00:00Z", TZ="XYZ-3").splitlines()[1]
    assert instant == "rings 2199-06-01 12:00:00 XYZ (2199-06-01 09:00:00 UTC)"
    assert remind(folder, "--log", "x", TZ="UTC").splitlines()[1].startswith("rings now, 2")
    later = made(folder, "--python", "send_invoice", "--in", "10m")
    assert later["target"] == {"handler": "send_invoice"}
    assert later["created_at"][:13] <= later["due_at"][:13]
    assert later["due_at"] > later["created_at"]


def test_the_same_dedupe_key_finds_what_is_there(folder: Path) -> None:
    first = made(folder, "--log", "x", "--dedupe-key", "again", "--in", "1d")
    second = remind(folder, "--log", "y", "--dedupe-key", "again")
    assert second.startswith(f"{first['id']}  scheduled  (there already: nothing new was made)\n")
    assert made(folder, "--log", "y", "--dedupe-key", "again")["deduplicated"] is True


def test_a_payload_comes_from_the_line_a_file_or_standard_input(folder: Path) -> None:
    command = [sys.executable, "-m", "campana", "remind", "--log", "x", "--payload", "-", "--json"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=program.environment(),
        input='[1, "é"]',
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert json.loads(done.stdout)["payload"] == [1, "é"]
    assert "expected JSON, @FILE or -, but it is not JSON" in remind(folder, "--log", "x", "--payload", "hello", code=2)
    assert "names 'a' twice" in remind(folder, "--log", "x", "--payload", '{"a": 1, "a": 2}', code=2)
    assert "can't be read" in remind(folder, "--log", "x", "--payload", "@nothing.json", code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected one of --to, --python and --log"),
        (["--log", "x", "--to", "http://127.0.0.1"], "expected one of --to, --python and --log"),
        (["--log", "x", "--method", "PUT"], "--method belongs to a webhook"),
        (["--python", "x", "--header", "A: b"], "--header belongs to a webhook"),
        (["--to", "http://127.0.0.1", "--header", "A"], "expected 'Name: value', got 'A'"),
        (["--to", "http://127.0.0.1", "--payload", "-", "--template", "-"], "standard input can be read once"),
        (["--log", "x", "--label", "a"], "expected NAME=VALUE"),
        (["--log", "x", "--label", "a=1", "--label", "a=2"], "expected 'a' once"),
        (["--log", "x", "--at", "2199-01-01T00:00:00Z", "--in", "5m"], "expected either --at or --in"),
        (["--log", "x", "--in", "soon"], "expected a duration such as 90s"),
        (["--log", "x", "--timeout", "5s"], "give both"),
    ],
)
def test_a_wrong_call_is_exit_code_2(folder: Path, words: list[str], said: str) -> None:
    assert said in remind(folder, *words, code=2)


def test_what_is_refused_is_told_by_option_a_line_each(folder: Path) -> None:
    words = ("--to", "http://10.0.0.1/", "--header", "Host: x", "--at", "2199-01-01T00:00", "--retry-attempts", "0")
    lines = remind(folder, *words, "--template", '"{{ no }}"', "--label", "a=" + "y" * 300, code=1).splitlines()
    starts = ("--to: ", "--header (Host): ", "--tz: ", "--retry-attempts: ", "--template: ", "--label (a): ")
    assert sorted(line.removeprefix("campana: ").partition(": ")[0] + ": " for line in lines) == sorted(starts)
    assert remind(folder, "--log", "x", "--tenant", "nobody", code=3) == "campana: there is no tenant 'nobody'\n"


def test_without_an_engine_waiting_ends_when_it_was_told_to_and_says_what_keeps_it(folder: Path) -> None:
    said = remind(folder, "--log", "x", "--wait", "--timeout", "50ms", code=5)
    assert said.startswith("campana: it has not ended in time: It waits to be sent. No engine is running.")


def test_ctrl_c_while_waiting_is_a_sentence_and_its_exit_code(folder: Path) -> None:
    with program.start(folder, "remind", "--log", "x", "--wait") as running:
        running.wait_for(r"rings now")
        assert running.end(signal.SIGINT) == 130
        running.wait_for(r"campana: interrupted; what was done stays done\n")
        assert "Traceback" not in running.said


def test_waiting_ends_with_the_delivery_and_its_exit_code_says_how(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0") as running:
        running.ready()
        assert "completed after 1 attempt\n" in remind(tmp_path, "--log", "x", "--wait")
        assert made(tmp_path, "--log", "x", "--wait")["status"] == "completed"
        failed = program.run(tmp_path, "remind", "--to", "http://127.0.0.1:1/", "--no-retry", "--wait")
        assert failed.returncode == 4, failed.stderr
        assert "  dead_letter" in failed.stdout
        assert "after 1 attempt: " in failed.stdout
        assert running.end(signal.SIGTERM) == 0
