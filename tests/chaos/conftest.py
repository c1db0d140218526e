"""Chaos runs on the databases of `--databases`, but on servers of its own: it kills them."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        kinds = [kind.strip() for kind in str(metafunc.config.getoption("--databases")).split(",")]
        metafunc.parametrize("kind", kinds)
