"""Commands that end by themselves: what they say, their exit codes, and how little `--help` loads."""

from __future__ import annotations

import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from campana.cli.main import ENTRIES, main, root
from campana.errors import SettingsError
from campana.version import VERSION
from tests.cli import program

HEAVY = ("fastapi", "sqlalchemy", "uvicorn", "pydantic", "asyncio", "alembic")


def test_help_names_every_command_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.argv = ['campana', '--help']\nfrom campana.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        f"assert not [name for name in {HEAVY!r} if name in sys.modules], sys.modules.keys()\n"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    for name in ENTRIES:
        assert re.search(rf"^  {name} +\S", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_command_in_the_list_has_help(name: str) -> None:
    result = CliRunner().invoke(root, [name, "--help"])

    assert result.exit_code == 0
    assert f"Usage: root {name}" in result.output


def test_a_wrong_call_is_exit_code_2_and_says_where_help_is(tmp_path: Path) -> None:
    for words in (["upp"], ["up", "--bogus"], ["up", "--port", "70000"], ["up", "extra"], ["key", "delete"]):
        done = program.run(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Usage: campana" in done.stderr
        assert "Error: " in done.stderr


def test_the_shell_completes_commands_options_and_words(tmp_path: Path) -> None:
    for words, found in (
        ("campana dea", "dead"),
        ("campana deliveries resch", "reschedule"),
        ("campana remind --priority ur", "urgent"),
    ):
        said = {"_CAMPANA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        assert program.run(tmp_path, **said).stdout == f"plain,{found}\n"
    assert "complete" in program.run(tmp_path, _CAMPANA_COMPLETE="zsh_source").stdout


def test_the_version_is_said(tmp_path: Path) -> None:
    assert program.run(tmp_path, "--version").stdout == f"campana, version {VERSION}\n"


def one_line(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    assert (done.returncode, done.stdout) == (code, ""), done.stdout + done.stderr
    assert done.stderr.startswith("campana: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "command", [["up"], ["api"], ["engine"], ["migrate"], ["doctor"], ["key", "create"], ["remind", "--log", "x"]]
)
def test_bad_settings_are_one_line_whatever_the_command(tmp_path: Path, command: list[str]) -> None:
    said = one_line(program.run(tmp_path, *command, CAMPANA_PROT="1", CAMPANA_MAX_IN_FLIGHT="0"))

    assert "CAMPANA_PROT: unknown setting" in said
    assert "MAX_IN_FLIGHT: " in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["up"], ["api"], ["engine"], ["migrate"], ["key", "create"], ["deliveries", "list"]])
def test_a_database_that_is_not_there_is_one_line(tmp_path: Path, command: list[str]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        address = f"postgresql://campana:hunter2@127.0.0.1:{port}/campana"
        words = ["--port", "0"] if command in (["up"], ["api"]) else []
        done = program.run(tmp_path, *command, *words, "--database", address, CAMPANA_SECRET_KEY="s" * 40)

    assert "check DATABASE_URL" in one_line(done)
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("command", ["up", "api", "engine"])
def test_a_server_database_needs_a_secret_before_it_is_touched(tmp_path: Path, command: str) -> None:
    done = program.run(tmp_path, command, "--database", "postgresql://u:p@127.0.0.1:1/x")

    said = one_line(done)
    assert "SECRET_KEY: required" in said
    assert re.search(r"for example [0-9a-f]{64}$", said)


@pytest.mark.parametrize("command", [["api", "--port", "0"], ["engine"], ["key", "create"], ["remind", "--log", "x"]])
def test_without_the_schema_only_up_and_migrate_go_on(tmp_path: Path, command: list[str]) -> None:
    assert "run `campana migrate`" in one_line(program.run(tmp_path, *command))
    assert not (tmp_path / "campana-data" / "campana.db").exists()


def test_migrate_makes_the_schema_once(tmp_path: Path) -> None:
    first, second = (program.run(tmp_path, "migrate", "--data", "d") for _ in range(2))

    assert (first.returncode, second.returncode) == (0, 0)
    assert re.fullmatch(r"The schema is \S+ now \(before: none\)\.\n", first.stdout)
    assert re.fullmatch(r"The schema is \S+ already\.\n", second.stdout)


def test_a_folder_that_can_not_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    below = one_line(program.run(tmp_path, "up", "--port", "0", "--data", "file/below"))
    assert below == f"campana: the data folder {tmp_path}/file/below can't be made: not a directory; choose another --data\n"
    same = one_line(program.run(tmp_path, "up", "--port", "0", "--data", "file"))
    assert same == f"campana: the data folder can't be made: {tmp_path}/file is a file; choose another --data\n"


def test_a_host_that_is_left_empty_opens_no_door(tmp_path: Path) -> None:
    for done in (program.run(tmp_path, "up", "--port", "0", CAMPANA_HOST=""), program.run(tmp_path, "api", "--host", "")):
        assert "HOST: expected an address or a host name; 0.0.0.0 listens on every address, got ''" in one_line(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["256.1.1.1", "192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_one_line_and_leaves_no_key_behind(tmp_path: Path, host: str) -> None:
    said = one_line(program.run(tmp_path, "up", "--host", host, "--port", "0"))
    assert said.endswith(("there is no such address; check --host\n", "cannot assign requested address; check --host\n"))
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_one_line_and_leaves_no_key_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = one_line(program.run(tmp_path, "up", "--port", str(port)))

    assert said == f"campana: can't listen on 127.0.0.1:{port}: address already in use; choose another --port\n"
    assert list(tmp_path.iterdir()) == []


def test_key_create_prints_the_key_and_nothing_else(tmp_path: Path) -> None:
    program.run(tmp_path, "migrate")
    first, second = (program.run(tmp_path, "key", "create", "--name", "ci") for _ in range(2))

    assert re.fullmatch(r"cmp_live_[a-z2-7]{32,}\n", first.stdout)
    assert first.stdout != second.stdout
    assert stat.S_IMODE((tmp_path / "campana-data" / "secret.key").stat().st_mode) == 0o600


def test_doctor_finds_what_is_wrong_and_makes_nothing(tmp_path: Path) -> None:
    before = program.run(tmp_path, "doctor")
    assert (before.returncode, list(tmp_path.iterdir())) == (1, [])
    where = tmp_path / "campana-data" / "campana.db"
    assert f"WRONG there is no database {where}: check --data and DATABASE_URL" in before.stdout

    program.run(tmp_path, "migrate")
    after = program.run(tmp_path, "doctor")
    assert after.returncode == 0, after.stdout
    assert all(line.startswith("ok ") for line in after.stdout.splitlines())


def test_doctor_says_that_a_database_can_not_be_reached(tmp_path: Path) -> None:
    done = program.run(tmp_path, "doctor", "--database", "postgresql://u:hunter2@127.0.0.1:1/x")

    assert done.returncode == 1
    assert re.search(r"^WRONG the database can't be used: .*; check DATABASE_URL", done.stdout, re.MULTILINE)
    assert "hunter2" not in done.stdout + done.stderr


def test_doctor_shows_settings_and_no_secret(tmp_path: Path) -> None:
    done = program.run(
        tmp_path,
        "doctor",
        "--settings",
        "--data",
        "d",
        CAMPANA_DATABASE_URL="postgresql://campana:hunt@er2/@db.example.com/x",
        CAMPANA_SECRET_KEY="s" * 40,
        CAMPANA_BOOTSTRAP_KEY="cmp_" + "b" * 40,
        CAMPANA_ENCRYPTION_KEYS="k" * 40,
        LOG_LEVEL="debug",
    )

    shown = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert done.returncode == 0
    assert shown["DATABASE_URL"] == "postgresql://campana:***@db.example.com/x"
    assert (shown["SECRET_KEY"], shown["BOOTSTRAP_KEY"], shown["LOG_LEVEL"], shown["DATA"]) == ("***", "***", "DEBUG", "d")
    assert "er2" not in done.stdout
    assert "sss" not in done.stdout
    assert shown["ENCRYPTION_KEYS"] == "***"


def test_an_error_of_ours_inside_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**given: object) -> None:
        message = "this and that"
        raise SettingsError(message)

    monkeypatch.setattr("campana.cli.options.load", fail)
    monkeypatch.setattr("sys.argv", ["campana", "doctor"])
    with pytest.raises(SystemExit) as end:
        main()

    assert (end.value.code, capsys.readouterr().err) == (1, "campana: this and that\n")
