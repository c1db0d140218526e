"""`office`: the product's own wiring on a database of each kind in turn, its engine at work when a test says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import databases
from tests.receivers.office import Opener


@pytest.fixture
def opener(migrated: str, tmp_path: Path) -> Opener:
    """How to open an office on the database, which is empty."""
    databases.clear(migrated)
    return Opener(migrated, tmp_path)
