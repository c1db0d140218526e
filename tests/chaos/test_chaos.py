"""Real processes on real databases, killed under load: nothing is lost, and every double is accounted for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests import programs
from tests.chaos.arena import run
from tests.chaos.plan import Plan

FEW = Plan(kills=3, freezes=1, restarts=1, commits=2, cuts=1, receivers=1, rate=50, lease=2.0, seed=4)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_was_acknowledged_has_its_effect_whatever_is_killed(kind: str, tmp_path: Path) -> None:
    if kind != "sqlite":
        programs.provide(kind)
    report = asyncio.run(run(kind, FEW, tmp_path))
    assert not report.breaches, "\n".join([*report.breaches, f"evidence in {tmp_path}"])
    assert report.figures["kill"] == FEW.kills
    assert report.figures["effects"] > 100
    assert report.figures["ambiguous"] > 0
    assert report.figures["commit"] == (0 if kind == "sqlite" else FEW.commits)
