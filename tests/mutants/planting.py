"""Planted faults: each one breaks a law in a copy of the source, and the tests that hold the law must fail there.

The working tree is never touched. A mutant whose text is not found exactly once is a failure too, so that no change of the
source can quietly take a mutant out of the game.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.programs import ROOT

SOURCE = ROOT / "src"
PLANTED = "CAMPANA_PLANTED"
"""The environment variable that names the folder from which `campana` must be imported."""
LONGEST = 180
"""Seconds for the tests of one mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault as data."""

    name: str
    law: str
    """What it breaks."""
    file: str
    """Under src/campana."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Which tests must see it, as pytest names them."""
    databases: str = "sqlite"
    short: bool = False
    """Whether it is planted in every run of the suite."""


class Verdict(StrEnum):
    """What came of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_FOUND = "not found"
    """Its text does not stand exactly once in its file."""
    BROKEN = "broken"
    """Its tests said neither yes nor no: they could not be collected, or did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A verdict, and what led to it."""

    verdict: Verdict
    said: str
    seconds: float = 0.0


class NotFoundError(Exception):
    """A mutant's text does not stand exactly once in its file."""


def every() -> list[Mutant]:
    """All mutants, in the order of their files."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        found += [_mutant(name, said) for name, said in tomllib.loads(path.read_text()).items()]
    return found


def _mutant(name: str, said: dict[str, Any]) -> Mutant:
    return Mutant(name=name, **(said | {"tests": tuple(said["tests"])}))


def changed(mutant: Mutant, source: Path = SOURCE) -> str:
    """The text of the mutant's file with the fault in it."""
    text = (source / "campana" / mutant.file).read_text()
    if (count := text.count(mutant.old)) != 1:
        message = f"expected {mutant.old!r} once in {mutant.file}, found it {count} times"
        raise NotFoundError(message)
    return text.replace(mutant.old, mutant.new)


def plant(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the source in the folder, with the mutant in it."""
    copy = folder / "src"
    shutil.copytree(SOURCE, copy)
    if mutant is not None:
        path = copy / "campana" / mutant.file
        path.write_text(changed(mutant))
        # What is compiled is known by second and size: a fault of the same size would not be noticed.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
    return copy


def try_out(mutant: Mutant | None, tests: Sequence[str], databases: str = "sqlite", *, longest: float = LONGEST) -> Result:
    """Run tests on a copy of the source with the mutant in it (or none), and say what they made of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campana-mutant-") as folder:
        try:
            source = plant(mutant, Path(folder))
        except NotFoundError as error:
            return Result(verdict=Verdict.NOT_FOUND, said=str(error))
        try:
            done = subprocess.run(
                _command(tests, databases, Path(folder)), cwd=ROOT, env=_environment(source), check=False,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=longest,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Result(verdict=Verdict.BROKEN, said=f"no end within {longest:g} s", seconds=longest)
    verdict, said = _read(done)
    return Result(verdict=verdict, said=said, seconds=time.monotonic() - began)


def judge(mutant: Mutant) -> Result:
    """Say whether the tests that are named for a mutant see it."""
    return try_out(mutant, mutant.tests, mutant.databases)


def _command(tests: Sequence[str], databases: str, folder: Path) -> list[str]:
    still = ("-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0", "--basetemp", str(folder / "tests"))
    said = ("-q", "-x", "--tb=no", "-rf", "--databases", databases, "-o", "timeout=60")
    return [sys.executable, "-m", "pytest", "-p", "tests.mutants.imported", *still, *said, *tests]


def _environment(source: Path) -> dict[str, str]:
    # A run inside of a run is one of its own: no worker, no options of the outer one.
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # Examples that only a mutant fails on are nobody's to keep.
    examples = {"HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "examples")}
    return mine | examples | {"PYTHONPATH": str(source), PLANTED: str(source)}


def _read(done: subprocess.CompletedProcess[str]) -> tuple[Verdict, str]:
    if done.returncode == 0:
        return Verdict.SURVIVED, done.stdout.strip().rpartition("\n")[2]
    failed = re.search(r"^FAILED (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode == 1 and failed:
        return Verdict.KILLED, failed[1]
    return Verdict.BROKEN, f"pytest said {done.returncode}:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}"
