"""The planted faults still fit the source, the tool tells seen from unseen, and a few of them are planted in every run."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace

import pytest

import campana
from campana.version import VERSION
from tests.mutants import planting
from tests.mutants.planting import Mutant, Verdict
from tests.programs import ROOT

EVERY = planting.every()
HERE = "tests/mutants/test_mutants.py"
SANITY = Mutant(
    name="sanity", law="what is planted is what is imported", file="version.py", old='VERSION = "', new='VERSION = "planted ',
    tests=(f"{HERE}::test_no_mutant_is_planted_here",),
)  # fmt: skip


def named(mutants: list[Mutant]) -> list[object]:
    return [pytest.param(mutant, id=mutant.name) for mutant in mutants]


# --- the data


@pytest.mark.parametrize("mutant", named(EVERY))
def test_every_mutant_stands_once_in_the_source_and_changes_it_to_what_can_be_read(mutant: Mutant) -> None:
    text = planting.changed(mutant)
    before = (planting.SOURCE / "campana" / mutant.file).read_text()
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(before))


def test_every_mutant_has_a_name_of_its_own_a_law_and_tests() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in EVERY).items() if count > 1] == []
    assert [mutant.name for mutant in EVERY if not mutant.law or not mutant.tests] == []


def test_every_test_that_is_named_is_there() -> None:
    def is_there(test: str) -> bool:
        path, _, name = test.partition("::")
        return (ROOT / path).exists() and (not name or f"def {name}(" in (ROOT / path).read_text())

    assert [(mutant.name, test) for mutant in EVERY for test in mutant.tests if not is_there(test)] == []


# --- the tool


def test_no_mutant_is_planted_here() -> None:
    assert not VERSION.startswith("planted"), f"{campana.__file__} has the sanity mutant in it"


def test_what_is_planted_is_what_is_imported() -> None:
    assert planting.judge(SANITY).verdict is Verdict.KILLED


def test_what_no_test_sees_has_survived() -> None:
    harmless = replace(SANITY, new='VERSION = "0" or "')
    result = planting.judge(harmless)
    assert (result.verdict, result.said.split(" in ")[0]) == (Verdict.SURVIVED, "1 passed")


@pytest.mark.parametrize("old", ["not in the file", '"'])
def test_a_text_that_does_not_stand_exactly_once_is_told(old: str) -> None:
    result = planting.judge(replace(SANITY, old=old))
    assert result.verdict is Verdict.NOT_FOUND
    assert "once in version.py, found it" in result.said


@pytest.mark.parametrize(
    "mutant",
    [
        replace(SANITY, new="VERSION = "),
        replace(SANITY, new='raise RuntimeError("planted '),
        replace(SANITY, tests=(f"{HERE}::test_that_is_not_there",)),
    ],
    ids=["no Python", "can't be imported", "no such test"],
)
def test_what_was_never_tested_is_not_taken_for_seen(mutant: Mutant) -> None:
    assert planting.judge(mutant).verdict is Verdict.BROKEN


def test_tests_that_do_not_end_are_not_taken_for_seen() -> None:
    result = planting.try_out(SANITY, SANITY.tests, longest=0.01)
    assert (result.verdict, result.said) == (Verdict.BROKEN, "no end within 0.01 s")


# --- a few in every run; all of them by `make mutants`


@pytest.mark.parametrize("mutant", named([mutant for mutant in EVERY if mutant.short]))
def test_the_fault_is_seen(mutant: Mutant) -> None:
    result = planting.judge(mutant)
    assert result.verdict is Verdict.KILLED, f"{mutant.law}: {result.verdict}, {result.said}"
