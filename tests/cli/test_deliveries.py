"""`campana deliveries`: lists that fit the screen, one delivery in full, and acts on it or on all that match."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from campana.domain.deliveries import State
from tests.api import site
from tests.cli import program

ERROR = "boom \x1b[31mred\r\n\u202egnp.exe " + "x" * 300


@pytest.fixture
def made(tmp_path: Path) -> list[str]:
    """Four deliveries: one waits for anna, one is a dead letter, one waits with a label, one is another tenant's."""
    return asyncio.run(_made(tmp_path))


async def _made(folder: Path) -> list[str]:
    await site.prepare(folder)
    async with site.open_site(folder) as here:
        owner, other = await here.client(), await here.client(tenant="other")
        said = [site.wanted(recipient="anna", payload={"a": "é"}), site.wanted(dedupe_key="k"), site.wanted(labels={"team": "b"})]
        ids = [(await owner.post("/v1/deliveries", json=one)).json()["id"] for one in said]
        ended = {"wake_at": None, "finished_at": here.now, "attempt_count": 3, "reason": "exhausted", "last_error": ERROR}
        await here.force(ids[1], state=int(State.DEAD_LETTER), **ended)
        return [*ids, (await other.post("/v1/deliveries", json=site.wanted())).json()["id"]]


def run(folder: Path, *words: str, code: int = 0, **said: str) -> str:
    done = program.run(folder, "deliveries", *words, "--data", str(folder), CAMPANA_SECRET_KEY=site.SECRET, **said)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_lists_fit_the_screen_and_show_more_where_there_is_room(tmp_path: Path, made: list[str]) -> None:
    narrow = run(tmp_path, "list").splitlines()
    assert narrow[0].split() == ["ID", "STATUS", "CHANNEL", "DUE"]
    assert [line.split()[0] for line in narrow[1:]] == made[2::-1]
    assert narrow[1].endswith("scheduled      log      2199-01-01 00:00Z")
    assert max(map(len, narrow)) <= 80
    wide = run(tmp_path, "list", COLUMNS="150").splitlines()
    assert wide[0].split()[-2:] == ["LAST", "ERROR"]
    assert wide[3].split()[-1] == "anna"
    assert "boom \ufffd[31mred  \ufffdgnp.exe xxx" in wide[2]
    assert wide[2].endswith("…")
    assert max(map(len, wide)) <= 150


def test_lists_are_narrowed_by_every_filter_and_programs_get_a_line_each(tmp_path: Path, made: list[str]) -> None:
    def ids(*words: str) -> list[str]:
        return [json.loads(line)["id"] for line in run(tmp_path, "list", "--json", *words).splitlines()]

    assert ids() == made[2::-1]
    assert ids("--status", "dead_letter", "--status", "completed") == [made[1]]
    narrow = ("--channel", "log", "--recipient", "anna", "--due-from", "2199-01-01T00:00:00Z", "--due-to", "2199-01-02T00:00:00Z")
    assert ids(*narrow, "--project", "default") == [made[0]]
    assert ids("--dedupe-key", "k") == [made[1]]
    assert ids("--label", "team=b") == [made[2]]
    assert ids("--provider-call-id", "none") == []
    assert ids("--limit", "1") == [made[2]]
    assert ids("--tenant", "other") == [made[3]]
    assert run(tmp_path, "list", "--due-from", "soon", code=1).startswith("campana: --due-from: expected an RFC 3339 instant")


def test_a_list_of_all_turns_the_pages_and_bears_a_reader_who_leaves(tmp_path: Path) -> None:
    async def fill() -> None:
        await site.prepare(tmp_path)
        async with site.open_site(tmp_path) as here:
            many = [site.wanted(payload="x" * 500) for _ in range(450)]
            assert (await (await here.client()).post("/v1/deliveries/batch", json=many)).status_code == 200

    asyncio.run(fill())
    assert len(run(tmp_path, "list", "--all", "--json").splitlines()) == 450
    command = [sys.executable, "-m", "campana", "deliveries", "list", "--all", "--json", "--data", str(tmp_path)]
    environment = program.environment(CAMPANA_SECRET_KEY=site.SECRET)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(program.SECONDS) == 1


def test_one_is_shown_to_people_and_to_programs(tmp_path: Path, made: list[str]) -> None:
    page = run(tmp_path, "show", made[0]).splitlines()
    assert page[0] == f"id                  {made[0]}"
    assert 'payload             {"a": "é"}' in page
    assert json.loads(run(tmp_path, "show", made[1], "--json"))["attempts"] == []
    assert "\x1b" not in run(tmp_path, "show", made[1])
    assert run(tmp_path, "attempts", made[0]) == ""
    nobody = "00000000-0000-7000-8000-000000000000"
    assert run(tmp_path, "show", nobody, code=3) == "campana: there is no delivery with this id\n"


def test_what_is_cancelled_is_asked_about_and_told_one_by_one(tmp_path: Path, made: list[str]) -> None:
    assert "Cancel 1 deliveries? This can't be undone." in run(tmp_path, "cancel", made[0], code=1)
    assert run(tmp_path, "cancel", made[0], made[3], "--yes") == f"{made[0]}  cancelled\n{made[3]}  cancelled\n"
    assert "has already ended as dead_letter" in run(tmp_path, "cancel", made[1], "--yes", code=1)


def test_what_matches_is_cancelled_and_never_everything_by_leaving_something_out(tmp_path: Path, made: list[str]) -> None:
    assert "expected either the ids of deliveries, or filters\n" in run(tmp_path, "cancel", "--yes", code=2)
    assert run(tmp_path, "cancel", "--label", "team=b", "--status", "pending_retry", "--yes") == "cancel: 0 done\n"
    assert run(tmp_path, "cancel", "--label", "team=b", "--yes") == "cancel: 1 done\n"
    assert json.loads(run(tmp_path, "cancel", "--project", "default", "--yes", "--json"))["done"] == 1
    assert json.loads(run(tmp_path, "show", made[3], "--json"))["status"] == "scheduled"


def test_what_waits_is_moved_and_waited_for(tmp_path: Path, made: list[str]) -> None:
    moved = run(tmp_path, "reschedule", made[0], "--at", "2199-06-01T09:00", "--tz", "Europe/London")
    assert moved == f"{made[0]}  rings 2199-06-01 09:00:00 Europe/London (2199-06-01 08:00:00 UTC)\n"
    assert run(tmp_path, "reschedule", made[0], "--at", "2020-01-01T00:00:00Z", code=1).startswith("campana: --at: 2020-01-01")
    assert "It is due at 2199-06-01 08:00:00 UTC." in run(tmp_path, "wait", made[0], "--timeout", "1ms", code=5)
    done = program.run(tmp_path, "deliveries", "wait", made[1], "--data", str(tmp_path), CAMPANA_SECRET_KEY=site.SECRET)
    assert done.returncode == 4
    assert done.stdout.startswith(f"{made[1]}  dead_letter (exhausted) after 3 attempts: boom ")


def test_attempts_are_shown_each_on_a_line(tmp_path: Path) -> None:
    async def tried() -> str:
        await site.prepare(tmp_path)
        async with site.open_site(tmp_path, with_engine=True) as here:
            client = await here.client()
            said = site.wanted(channel="webhook", target={"url": "http://127.0.0.1:1/"}, at=None, retry={"enabled": False})
            made: str = (await client.post("/v1/deliveries", json=said)).json()["id"]
            async with asyncio.timeout(timedelta(minutes=1).total_seconds()):
                while (await client.get(f"/v1/deliveries/{made}")).json()["status"] != "dead_letter":
                    pass
            return made

    it = asyncio.run(tried())
    lines = run(tmp_path, "attempts", it).splitlines()
    assert lines[0].split() == ["NO", "STARTED", "OUTCOME", "TOOK", "CODE", "ERROR"]
    assert lines[1].split()[0] == "1"
    assert " failed " in lines[1]
    assert max(map(len, lines)) <= 80
    assert [json.loads(line)["number"] for line in run(tmp_path, "attempts", it, "--json").splitlines()] == [1]
    assert run(tmp_path, "show", it).splitlines()[-2:] == lines
