"""The cases that others' systems broke on, as data: what must hold, in a sentence, and the tests that hold it."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ROOT

FILES = sorted((ROOT / "tests" / "cases").glob("*.toml"))


@cache
def _tests_in(path: Path) -> frozenset[str]:
    defined = ast.parse(path.read_text()).body if path.is_file() else []
    return frozenset(one.name for one in defined if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def _faults(said: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the cases of a file: one without a sentence or a test, or a test that is not there."""
    for case in said.get("case", []):
        says, tests = case.get("says", ""), case.get("tests", [])
        if not says.endswith(".") or not tests or case.keys() != {"says", "tests"}:
            yield f"{says!r}: expected a sentence that ends and at least one test, and nothing else"
        for test in tests:
            path, _, name = test.partition("::")
            if not name.startswith("test_") or name not in _tests_in(ROOT / path):
                yield f"{says!r}: there is no test {test}"
    if said.keys() != {"case"}:
        yield f"expected cases and nothing else, got {sorted(said)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_case_is_held_by_tests_that_are_there(path: Path) -> None:
    assert list(_faults(tomllib.loads(path.read_text()))) == []


def test_there_are_cases_and_each_is_told_once() -> None:
    told = Counter(case["says"] for path in FILES for case in tomllib.loads(path.read_text())["case"])
    assert told
    assert [says for says, times in told.items() if times > 1] == []


@pytest.mark.parametrize(
    "case",
    [
        'says = "It holds."\ntests = []',
        'says = "It holds."',
        'says = "It holds"\ntests = ["tests/laws/test_cases.py::test_a_faulty_case_is_seen"]',
        'says = "It holds."\ntests = ["tests/laws/test_cases.py::test_that_is_not_there"]',
        'says = "It holds."\ntests = ["tests/laws/test_nothing.py::test_a_faulty_case_is_seen"]',
        'says = "It holds."\ntests = ["tests/laws/test_cases.py::_faults"]',
        'says = "It holds."\ntests = ["tests/laws/test_cases.py::test_a_faulty_case_is_seen"]\nnumber = 1',
    ],
)
def test_a_faulty_case_is_seen(case: str) -> None:
    assert list(_faults(tomllib.loads(f"[[case]]\n{case}\n")))


def test_a_good_case_is_left_alone() -> None:
    case = 'says = "It holds."\ntests = ["tests/laws/test_cases.py::test_a_faulty_case_is_seen"]'
    assert list(_faults(tomllib.loads(f"[[case]]\n{case}\n"))) == []
