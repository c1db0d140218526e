"""Engine tests run in virtual time, each on a fresh copy of one migrated SQLite file."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from campana.testing.loop import VirtualLoop
from tests.engine import builders
from tests.engine.builders import Bench


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, type[VirtualLoop]]:
    return {"virtual": VirtualLoop}


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file without rows; copy it, never write to it."""
    return builders.migrated(tmp_path_factory.mktemp("engine") / "empty.db")


@pytest.fixture
async def bench(empty_file: Path, tmp_path: Path) -> AsyncIterator[Bench]:
    """A workbench; at the end every task that its engines started has come to its end by itself."""
    path = Path(shutil.copy(empty_file, tmp_path / "campana.db"))
    made = Bench(asyncio.get_running_loop(), f"sqlite:///{path}")
    yield made
    await made.close()
