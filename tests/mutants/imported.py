"""A plugin of pytest: the run has no worth unless `campana` comes from the folder in which the mutant was planted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import campana
from tests.mutants.planting import PLANTED


def pytest_configure(config: pytest.Config) -> None:
    wanted = Path(os.environ[PLANTED], "campana")
    if Path(campana.__file__).parent != wanted:
        pytest.exit(f"expected campana from {wanted}, got {campana.__file__}", returncode=pytest.ExitCode.INTERNAL_ERROR)
