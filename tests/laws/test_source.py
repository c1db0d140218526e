"""The house's other customs, over every file; and a red example of each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.laws import rules
from tests.programs import ROOT

SOURCE = sorted((ROOT / "src").rglob("*.py"))
PYTHON = SOURCE + sorted(path for folder in ("tests", "bench", "scripts") for path in (ROOT / folder).rglob("*.py"))
DOMAIN = sorted((ROOT / "src" / "campana" / "domain").rglob("*.py"))

Rule = Callable[[str], Iterator[str]]


def _complaints(rule: Rule, files: list[Path]) -> list[str]:
    assert files, "expected files to look at, got none"
    return [f"{path.relative_to(ROOT)}: {said}" for path in files for said in rule(path.read_text())]


@pytest.mark.parametrize(
    ("rule", "files"),
    [
        (rules.too_long, SOURCE),
        (rules.type_only_imports, SOURCE),
        (rules.silence_without_reason, PYTHON),
        (rules.impure_imports, DOMAIN),
        (rules.places_in_lock, sorted((ROOT / "requirements").glob("*.txt"))),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_every_file_keeps_the_custom(rule: Rule, files: list[Path]) -> None:
    assert _complaints(rule, files) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [said for path in SOURCE for said in rules.empty_names(path.relative_to(ROOT / "src"))] == []


def test_no_file_names_a_package_registry() -> None:
    said = []
    for path in rules.files_of_the_repository(ROOT):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a picture
        said += [f"{path.relative_to(ROOT)} {complaint}" for complaint in rules.registry_hosts(text)]
    assert said == []


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (rules.too_long, "x = 1\n" * 401),
        (rules.too_long, "async def long():\n" + "    x = 1\n" * 60),
        (rules.type_only_imports, "from typing import TYPE_CHECKING\n"),
        (rules.type_only_imports, "import typing\nif typing.TYPE_CHECKING:\n    import os\n"),
        (rules.silence_without_reason, "x = 1  # no" + "qa\n"),
        (rules.silence_without_reason, "x = 1  # no" + "qa: E501\n"),
        (rules.silence_without_reason, "x = 1  # no" + "qa: E501, S101\n"),
        (rules.silence_without_reason, "x = 1  # type: " + "ignore\n"),
        (rules.silence_without_reason, "x = 1  # type: " + "ignore[attr-defined]\n"),
        (rules.impure_imports, "import sqlalchemy\n"),
        (rules.impure_imports, "from dateutil import rrule\n"),
        (rules.impure_imports, "import os.path\n"),
        (rules.impure_imports, "from urllib import request\n"),
        (rules.impure_imports, "def late():\n    from campana.store import deliveries\n"),
        (rules.impure_imports, "from campana import world\n"),
        (rules.registry_hosts, "index: https://" + "pypi" + ".org/simple"),
        (rules.places_in_lock, "--index-url https://example.com/simple\n"),
        (rules.places_in_lock, "package @ file:///opt/wheels/package.whl\n"),
        (rules.places_in_lock, "    # via -r /home/me/requirements.in\n"),
    ],
)
def test_the_rule_sees_a_fault(rule: Rule, source: str) -> None:
    assert list(rule(source))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (rules.too_long, "x = 1\n" * 400),
        (rules.too_long, "def long():\n" + "    x = 1\n" * 59),
        (rules.silence_without_reason, "x = 1  # no" + "qa: S608 - the names are ours\n"),
        (rules.silence_without_reason, "x = 1  # no" + "qa: S608, E501  # the names are ours\n"),
        (rules.silence_without_reason, "x = 1  # type: " + "ignore[attr-defined]  # asyncmy has no types\n"),
        (rules.impure_imports, "import datetime\nfrom urllib.parse import urlsplit\nfrom campana import errors\n"),
        (rules.places_in_lock, "click==8.5.1 \\\n    --hash=sha256:0123\n    # via campana (pyproject.toml)\n"),
    ],
)
def test_the_rule_leaves_the_faultless_alone(rule: Rule, source: str) -> None:
    assert list(rule(source)) == []


@pytest.mark.parametrize("name", sorted(rules.EMPTY_NAMES))
def test_an_empty_name_is_seen(name: str) -> None:
    assert list(rules.empty_names(Path("campana", "store", f"{name}.py")))
    assert list(rules.empty_names(Path("campana", name, "deliveries.py")))


def test_every_source_file_is_readable_by_the_oldest_python() -> None:
    for path in SOURCE:
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 11))
