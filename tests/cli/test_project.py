"""`campana project`, `campana reseal`, and the first start that shows a signing secret: on the command line, as processes."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.cli import program

OLD, NEW = "o" * 32, "n" * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database of the newest schema, and the project `default`."""
    assert program.run(tmp_path, "migrate").returncode == 0
    with program.start(tmp_path, "up", "--port", "0", CAMPANA_BOOTSTRAP_KEY="cmp_" + "b" * 40) as running:
        running.ready()
        assert running.end(signal.SIGTERM) == 0
        assert "whsec_" not in running.said, "whoever gives the key works without eyes, and rotates"
    return tmp_path


def test_a_secret_is_rotated_printed_alone_and_listed_without_itself(folder: Path) -> None:
    plain = program.run(folder, "project", "rotate-secret", "default", "--overlap", "2h")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=\n", plain.stdout), plain.stderr
    assert plain.stderr.startswith("Number 2, shown this once. Older ones have ended by 20")
    made = json.loads(program.run(folder, "project", "rotate-secret", "default", "--overlap", "0s", "--json").stdout)
    assert (made["number"], made["state"], made["who"], made["secret"][:6]) == (3, "current", "the command line", "whsec_")
    listed = program.run(folder, "project", "secrets", "default", "--json").stdout
    assert [(one["number"], one["state"]) for one in json.loads(listed)] == [(3, "current"), (2, "expired"), (1, "expired")]
    table = program.run(folder, "project", "secrets", "default").stdout
    assert re.search(r"^ +3  current   20\S+Z  the command line$", table, re.MULTILINE), table
    assert re.search(r"^ +1  expired   20\S+Z  the first start  until 20\S+Z$", table, re.MULTILINE), table
    assert not [one for one in (plain.stdout.strip(), made["secret"]) if one in listed + table]


def test_projects_are_listed_and_one_that_is_not_there_is_one_line(folder: Path) -> None:
    (one,) = json.loads(program.run(folder, "project", "list", "--json").stdout)
    assert one["name"] == "default"
    assert program.run(folder, "project", "list").stdout == f"{one['id']}  default\n"
    for words in (["secrets", "nowhere"], ["rotate-secret", "nowhere"]):
        done = program.run(folder, "project", *words)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == "campana: there is no such project for this key\n"
    done = program.run(folder, "project", "rotate-secret", one["id"], "--overlap", "31d")
    assert (done.returncode, done.stderr) == (1, "campana: /overlap: expected at most 30d, got '31d'\n")


def test_the_sealing_key_is_changed_step_by_step_and_the_doctor_sees_one_that_is_missing(folder: Path) -> None:
    def run(*words: str, keys: str) -> tuple[int, str]:
        done = program.run(folder, *words, CAMPANA_ENCRYPTION_KEYS=keys)
        return done.returncode, done.stdout

    assert run("reseal", keys=OLD) == (0, "Sealed anew: 1; not to be opened with the keys that are here: 0.\n")
    assert run("reseal", keys=f"{OLD},{NEW}") == (0, "Sealed anew: 0; not to be opened with the keys that are here: 0.\n")
    code, said = run("reseal", "--json", keys=f"{NEW}, {OLD}")
    assert (code, json.loads(said)) == (0, {"done": 1, "failed": 0})
    code, said = run("doctor", keys=NEW)
    assert (code, "ok    signing secrets: all can be opened" in said) == (0, True)
    code, said = run("doctor", keys=OLD)
    assert code == 1
    assert "WRONG signing secrets: 1 can't be opened, and no webhook leaves of the projects " in said
    assert run("reseal", keys=OLD) == (1, "Sealed anew: 0; not to be opened with the keys that are here: 1.\n")
    run("project", "rotate-secret", "default", "--overlap", "0s", keys=OLD)
    assert run("doctor", keys=OLD)[0] == 0


def test_the_first_start_shows_the_signing_secret_once_and_no_log_line_ever_does(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0", LOG_LEVEL="DEBUG") as running, running.client() as client:
        secret = running.wait_for(r"signed with this secret, shown this once: (whsec_\S+)\n")[1]
        with program.start(tmp_path, "api", "--port", "0") as nobody:
            target = {"url": nobody.ready() + "/hook"}
            made = client.post("/v1/deliveries", json={"channel": "webhook", "target": target, "payload": {}}).json()
            rotated = client.post("/v1/projects/default/webhook-secrets/rotate", json={}).json()["secret"]
            running.wait_for(r"delivery\.dead_letter")
            assert nobody.end(signal.SIGTERM) == 0
        story = program.run(tmp_path, "explain", made["id"]).stdout + client.get(f"/v1/deliveries/{made['id']}/attempts").text
        assert running.end(signal.SIGTERM) == 0
        assert running.said.count(secret.removeprefix("whsec_")) == 1
        assert rotated.removeprefix("whsec_") not in running.said + story
        assert secret.removeprefix("whsec_") not in story
    with program.start(tmp_path, "up", "--port", "0") as second:
        second.wait_for(r"engine\.started")
        assert "whsec_" not in second.said
        assert second.end(signal.SIGTERM) == 0


def test_an_engine_that_comes_first_shows_it_too(tmp_path: Path) -> None:
    program.run(tmp_path, "migrate")
    with program.start(tmp_path, "engine") as running:
        running.wait_for(r"owner key, shown this once: cmp_\S+\n")
        running.wait_for(r"signed with this secret, shown this once: whsec_\S+\n")
        assert running.end(signal.SIGTERM) == 0
