"""`campana explain` and `campana dead`, as a person uses them when something went wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api import site
from tests.api.test_acts import letter
from tests.cli import program


@pytest.fixture
def letters(tmp_path: Path) -> list[str]:
    """Three dead letters in this folder: one to anna, one that is ambiguous, one of another tenant."""
    return asyncio.run(_letters(tmp_path))


async def _letters(folder: Path) -> list[str]:
    await site.prepare(folder)
    async with site.open_site(folder) as here:
        owner, other = await here.client(), await here.client(tenant="other")
        made: Sequence[tuple[httpx2.AsyncClient, dict[str, Any]]] = [
            (owner, {"recipient": "anna", "ambiguous_attempts": 0, "last_error": "refused"}),
            (owner, {"reason": "ambiguous"}),
            (other, {}),
        ]
        return [(await letter(here, client, **values)).rpartition("/")[2] for client, values in made]


def run(folder: Path, *words: str, code: int = 0, **said: str) -> str:
    done = program.run(folder, *words, "--data", str(folder), CAMPANA_SECRET_KEY=site.SECRET, **said)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_delivery_is_explained_to_people_and_to_programs(tmp_path: Path, letters: list[str]) -> None:
    for it in letters:
        page = run(tmp_path, "explain", it).splitlines()
        assert page[0].startswith("dead_letter (")
        assert page[1].startswith("It wants a person: ")
        assert page[3].endswith("It was accepted, to be sent at 2199-01-01 00:00:00 UTC.")
    told = json.loads(run(tmp_path, "explain", letters[1], "--json"))
    assert (told["status"], told["reason"], told["next"]) == ("dead_letter", "ambiguous", None)
    nobody = run(tmp_path, "explain", "00000000-0000-7000-8000-000000000000", code=3)
    assert nobody == "campana: there is no delivery with this id\n"
    assert "is not a valid UUID" in run(tmp_path, "explain", "17", code=2)


def test_letters_are_listed_by_filter(tmp_path: Path, letters: list[str]) -> None:
    lines = run(tmp_path, "dead", "list").splitlines()
    assert [line.split()[0] for line in lines] == [letters[1], letters[0]]
    assert "1 ambiguous" in lines[0]
    assert lines[1].endswith("3 of 3  refused")
    found = json.loads(run(tmp_path, "dead", "list", "--recipient", "anna", "--json"))
    assert [one["id"] for one in found] == letters[:1]
    assert run(tmp_path, "dead", "list", "--label", "team=none") == ""
    assert run(tmp_path, "dead", "list", "--project", "x", code=3) == "campana: there is no project 'x' in this tenant\n"
    assert run(tmp_path, "dead", "list", "--tenant", "x", code=3) == "campana: there is no tenant 'x'\n"


def test_who_names_a_tenant_reaches_nothing_outside_of_it(tmp_path: Path, letters: list[str]) -> None:
    assert [line.split()[0] for line in run(tmp_path, "dead", "list", "--tenant", "other").splitlines()] == [letters[2]]
    assert "there is no delivery" in run(tmp_path, "explain", letters[0], "--tenant", "other", code=3)
    refused = run(tmp_path, "dead", "discard", letters[0], "--yes", "--tenant", "other", code=3)
    assert refused == f"campana: {letters[0]}: there is no delivery with this id\n"
    assert run(tmp_path, "explain", letters[2], "--tenant", "other").startswith("dead_letter")
    assert run(tmp_path, "dead", "redrive", "--project", "default", "--tenant", "other", "--yes") == "redrive: 1 done\n"
    assert len(run(tmp_path, "dead", "list").splitlines()) == 2


def test_letters_are_redriven_discarded_and_resolved_by_id(tmp_path: Path, letters: list[str]) -> None:
    assert run(tmp_path, "dead", "redrive", letters[0], letters[2]) == f"{letters[0]}  scheduled\n{letters[2]}  scheduled\n"
    again = run(tmp_path, "dead", "redrive", letters[0], code=1)
    assert again == f"campana: {letters[0]}: only a dead letter can be redriven, this delivery is scheduled\n"
    resolved = json.loads(run(tmp_path, "dead", "resolve", letters[1], "sent", "--note", "asked them", "--json"))
    assert [(one["status"], one["reason"]) for one in resolved] == [("completed", "sent")]
    assert "It had its effect, as the command line said" in run(tmp_path, "explain", letters[1])


def test_what_can_not_be_undone_is_asked_about(tmp_path: Path, letters: list[str]) -> None:
    assert "This can't be undone." in run(tmp_path, "dead", "discard", letters[0], code=1)
    assert "This can't be undone." in run(tmp_path, "dead", "redrive", "--all", code=1)
    assert "expected either the ids" in run(tmp_path, "dead", "discard", "--yes", code=2)
    assert "expected either the ids" in run(tmp_path, "dead", "discard", letters[0], "--all", "--yes", code=2)
    assert run(tmp_path, "dead", "discard", letters[0], "--yes") == f"{letters[0]}  cancelled\n"


@pytest.mark.usefixtures("letters")
def test_letters_are_done_by_filter_without_an_engine(tmp_path: Path) -> None:
    assert run(tmp_path, "dead", "discard", "--recipient", "anna", "--yes") == "discard: 1 done\n"
    ended = json.loads(run(tmp_path, "dead", "redrive", "--all", "--yes", "--json"))
    assert (ended["status"], ended["total"], ended["actor"]) == ("finished", 1, "the command line")
    assert run(tmp_path, "dead", "list") == ""
