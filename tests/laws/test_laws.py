"""The rooms of the house and the bans on time and chance: kept, and seen to be kept.

A rule that has never failed may be a rule that cannot fail, so each is broken once here, on a copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]}
BANS = set(PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])

# contract, the room that breaks it, and the line that does
FAULTS = [
    ("layers", "store", "import campana.wiring"),
    ("layers", "operations", "import campana.engine"),
    ("layers", "domain", "from campana import world"),
    ("layers", "channels", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import campana.engine"),
    ("layers", "a_new_room", ""),
    ("domain is pure", "domain", "import pydantic"),
    ("domain is pure", "domain", "import asyncio"),
    ("domain is pure", "domain", "from campana import world"),
    ("only store speaks SQL", "wiring", "import sqlalchemy"),
    ("only store speaks SQL", "cli", "from alembic import command"),
    ("only sealing speaks cryptography", "operations", "from cryptography.hazmat.primitives.ciphers.aead import AESGCM"),
    ("only sealing speaks cryptography", "store", "import cryptography"),
    ("only web speaks HTTP frameworks", "operations", "from fastapi import HTTPException"),
    ("channels know neither store nor engine", "channels", "from campana import store"),
    ("channels do not know their siblings", "channels.webhook", "from campana.channels import log"),
    ("faces do not import the engine", "web", "from campana import engine"),
    ("operations know no face", "operations", "from campana import web"),
]

BANNED = {
    "datetime.datetime.now": "from datetime import datetime, UTC\nprint(datetime.now(UTC))",
    "datetime.datetime.utcnow": "import datetime as dt\nprint(dt.datetime.utcnow())",
    "datetime.datetime.today": "import datetime\nprint(datetime.datetime.today())",
    "datetime.date.today": "from datetime import date\nprint(date.today())",
    "time.time": "import time\nprint(time.time())",
    "time.time_ns": "from time import time_ns\nprint(time_ns())",
    "time.monotonic": "import time\nclock = time.monotonic",
    "time.monotonic_ns": "import time\nprint(time.monotonic_ns())",
    "time.perf_counter": "from time import perf_counter as tick\nprint(tick())",
    "time.perf_counter_ns": "import time\nprint(time.perf_counter_ns())",
    "time.clock_gettime": "import time\nprint(time.clock_gettime(0))",
    "time.clock_gettime_ns": "import time\nprint(time.clock_gettime_ns(0))",
    "time.sleep": "import time\ntime.sleep(1)",
    "asyncio.sleep": "from asyncio import sleep\nprint(sleep(1))",
    "uuid.uuid1": "import uuid\nprint(uuid.uuid1())",
    "uuid.uuid4": "from uuid import uuid4\nprint(uuid4())",
    "uuid.uuid6": "import uuid\nprint(uuid.uuid6())",
    "uuid.uuid7": "import uuid\nprint(uuid.uuid7())",
    "random": "import random\nprint(random.random())",
    "secrets": "from secrets import token_hex\nprint(token_hex())",
    "os.urandom": "import os\nprint(os.urandom(8))",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project's source and its rules, free to break."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def _plant(folder: Path, room: str, line: str) -> None:
    path = folder / "src" / "campana" / Path(*room.split("."))
    module = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    with module.open("a") as source:
        source.write(f"\n{line}\n")


def _lint_imports(folder: Path) -> tuple[bool, str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--config", str(folder / "pyproject.toml"), "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode == 0, done.stdout + done.stderr


def _ruff(source: str, *, where: str, select: str = "TID251") -> tuple[bool, str]:
    ruff = str(Path(sys.executable).parent / "ruff")
    options = ["--no-cache", "--output-format=concise", f"--select={select}", f"--stdin-filename={ROOT / where}"]
    done = subprocess.run([ruff, "check", *options, "-"], input=source, cwd=ROOT, check=False, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def test_the_house_keeps_its_rooms(copy: Path) -> None:
    kept, said = _lint_imports(copy)
    assert kept, said


@pytest.mark.parametrize(("contract", "room", "line"), FAULTS)
def test_a_planted_import_breaks_its_contract(copy: Path, contract: str, room: str, line: str) -> None:
    _plant(copy, room, line)
    kept, said = _lint_imports(copy)
    assert not kept
    assert f"{contract} BROKEN" in said or (room == "a_new_room" and room in said), said


def test_every_contract_is_broken_once_here() -> None:
    assert {contract for contract, _, _ in FAULTS} == CONTRACTS


@pytest.mark.parametrize("name", sorted(BANNED))
def test_time_and_chance_are_banned_outside_world(name: str) -> None:
    kept, said = _ruff(BANNED[name], where="src/campana/engine/planted.py")
    assert not kept
    assert f"`{name}` is banned: only campana.world speaks of time and chance" in said


@pytest.mark.parametrize("name", sorted(BANNED))
def test_world_may_speak_of_time_and_chance(name: str) -> None:
    kept, said = _ruff(BANNED[name], where="src/campana/world.py")
    assert kept, said


def test_every_task_that_is_made_is_held_by_somebody() -> None:
    lint = PROJECT["tool"]["ruff"]["lint"]
    assert lint["select"] == ["ALL"]
    assert not [code for code in lint["ignore"] if code.startswith("RUF006"[: len(code)])]
    for way in ("create_task", "ensure_future"):
        source = f"import asyncio\n\n\nasync def begin(work):\n    asyncio.{way}(work)\n"
        kept, said = _ruff(source, where="src/campana/engine/planted.py", select="RUF006")
        assert not kept
        assert "RUF006" in said


@pytest.mark.parametrize("where", ["tests/engine/test_planted.py", "tests/planted.py"])
@pytest.mark.parametrize("name", ["time.sleep", "asyncio.sleep"])
def test_no_test_may_sleep(name: str, where: str) -> None:
    kept, said = _ruff(BANNED[name], where=where)
    assert not kept
    assert f"`{name}` is banned: no test sleeps" in said


@pytest.mark.parametrize("name", ["time.monotonic", "datetime.datetime.now", "uuid.uuid4", "random"])
def test_tests_may_read_the_clock_and_throw_dice(name: str) -> None:
    kept, said = _ruff(BANNED[name], where="tests/engine/test_planted.py")
    assert kept, said


def test_every_ban_is_broken_once_here() -> None:
    assert set(BANNED) == BANS


def test_every_exception_from_a_rule_has_its_reason() -> None:
    for file in ("pyproject.toml", "tests/ruff.toml"):
        for line in (ROOT / file).read_text().splitlines():
            if re.match(r' +"[A-Z]+[0-9]+",', line):
                assert re.search(r"# .*\w{3}", line), f"{file}: expected a reason, got {line.strip()}"
