"""`office`: the product's own wiring on a database of each kind in turn, its engine at work when a test says so."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from campana.store import migrate
from tests import databases
from tests.receivers.office import Opener


@pytest.fixture(scope="module")
def migrated(database_url: str) -> str:
    """The URL of a database with our tables."""
    # In a thread of its own, so that it does not matter whether somebody runs a loop here.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate.upgrade(database_url)).result()
    return database_url


@pytest.fixture
def opener(migrated: str, tmp_path: Path) -> Opener:
    """How to open an office on the database, which is empty."""
    databases.clear(migrated)
    return Opener(migrated, tmp_path)
