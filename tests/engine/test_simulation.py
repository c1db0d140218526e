"""Hundreds of made-up worlds, and every single fault in a small one; each must keep what is promised."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from campana.domain import retries
from campana.engine.lookups import PATIENCE
from campana.testing.channel import apply_then_drop, deliver, refuse
from tests.engine import simulation
from tests.engine.builders import SECOND
from tests.engine.faults import Kind, SingleFault
from tests.engine.processes import ProcessLoop
from tests.engine.simulation import OPTIONS, Result, Stage

SEEDS = 300
CHUNK = 30
REGRESSIONS = {
    1: "an engine that stopped while a group was being written spun for ever",
    22: "knowledge of the world that is too old to send on",
    97: "on a file, a tick that hung shifted the time by half of its length",
    100: "a first tick that hung for a whole lease let others' leases be ended at once",
    180: "as 1",
}
"""Seeds that once failed, and what was wrong."""
FAULTS = tuple(kind for kind in Kind if kind is not Kind.FINE)


def play(seed: int, empty_file: Path, folder: Path) -> Result:
    """The seed's result; where it breaks, how to play it again stands beside what broke."""
    try:
        return simulation.play(seed, empty_file, folder)
    except Exception as error:
        error.add_note(f"again: python -m tests.engine.simulation --seeds 1 --from {seed}")
        raise


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_seed_keeps_the_promises(empty_file: Path, tmp_path: Path, first: int) -> None:
    results = [play(seed, empty_file, tmp_path) for seed in range(first, first + CHUNK)]
    assert sum(result.sends for result in results) > 5 * CHUNK, "worlds in which nothing happens prove nothing"


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_once_failed_keep_the_promises(empty_file: Path, tmp_path: Path, seed: int) -> None:
    play(seed, empty_file, tmp_path)


@pytest.mark.parametrize("seed", [3, 4, 8])
def test_the_same_seed_gives_the_same_trace_in_this_and_in_another_process(empty_file: Path, tmp_path: Path, seed: int) -> None:
    first, second = (play(seed, empty_file, tmp_path) for _ in range(2))
    assert first == second
    command = [sys.executable, "-m", "tests.engine.simulation", "--seeds", "1", "--from", str(seed)]
    asked = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": str(seed)})
    assert first.trace in asked.stdout


# --- every single fault


def small_world(fates: SingleFault, empty_file: Path, folder: Path) -> Result:
    """Four deliveries, refused, slow and of unknown end, on two engines; one thing goes wrong."""
    path = Path(shutil.copy(empty_file, folder / "small.db"))
    with asyncio.Runner(loop_factory=ProcessLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ProcessLoop)
        return runner.run(_small_world(loop, fates, path))


async def _small_world(loop: ProcessLoop, fates: SingleFault, path: Path) -> Result:
    stage = Stage(loop, path, seed="small", has_server=True)
    stage.fates = fates
    first = {"plain": deliver(connecting=0.01, answering=2.3), "asked": apply_then_drop(answering=0.1)}
    stage.choose = lambda parcel, kind: first.get(kind, refuse(answering=0.01)) if parcel.number == 1 else deliver()
    operator = stage.process("operator")
    database = stage.database(operator, "operator", stage.quiet)

    async def operate() -> None:
        for number, kind in enumerate(("stable", "plain", "held", "asked")):
            await stage.add(database, number, kind, after=0.2, retry=retries.Policy(base=SECOND))

    async def inside() -> None:
        await operator.start(operate())

    return await stage.play(2, [inside], calm_from=0)


@pytest.fixture(scope="module")
def usual(empty_file: Path, tmp_path_factory: pytest.TempPathFactory) -> SingleFault:
    """The small world when nothing goes wrong."""
    fates = SingleFault()
    result = small_world(fates, empty_file, tmp_path_factory.mktemp("usual"))
    assert result.sends == 6
    assert {"claim", "intend", "apply", "take", "reclaim", "renew", "release", "leave"} - set(fates.calls) == {"release"}
    return fates


def faults(usual: SingleFault, kind: Kind) -> Iterator[SingleFault]:
    for number in range(len(usual.calls)):
        yield SingleFault(kind=kind, at_call=number)
    if kind in {Kind.CRASH_BEFORE, Kind.CRASH_AFTER}:
        for number in range(usual.sends):
            yield SingleFault(kind=kind, at_send=number)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_no_single_fault_breaks_a_promise(usual: SingleFault, empty_file: Path, tmp_path: Path, kind: Kind) -> None:
    tried = 0
    for fates in faults(usual, kind):
        if kind in {Kind.LOST, Kind.GONE} and fates.at_call >= 0 and usual.calls[fates.at_call].endswith("(reads)"):
            continue
        try:
            result = small_world(fates, empty_file, tmp_path)
        except Exception as error:
            error.add_note(f"{kind} at call {fates.at_call} (of {usual.calls}) or send {fates.at_send}")
            raise
        tried += 1
        # A look-up that died comes back when whoever answered it must have given up.
        assert result.seconds < (5 * OPTIONS.lease + 2 * PATIENCE) / SECOND
    assert tried >= 20
