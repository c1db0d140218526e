"""`python -m tests.mutants`: plant each fault in turn and see the tests fail. Exit code 1 if any is not seen."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby

from tests.mutants.planting import Mutant, Verdict, every, judge, try_out


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these alone")
    parser.add_argument("--short", action="store_true", help="only those that are planted in every run of the suite")
    parser.add_argument("--list", action="store_true", help="say which there are, and plant none")
    parser.add_argument("--tests", nargs="+", metavar="TEST", default=[], help="ask these tests, whatever a mutant names")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _wanted(only: Sequence[str], *, short: bool) -> list[Mutant]:
    mutants = every()
    if unknown := set(only) - {mutant.name for mutant in mutants}:
        message = f"expected names that --list shows, got {', '.join(sorted(unknown))}"
        raise SystemExit(message)
    return [mutant for mutant in mutants if (not only or mutant.name in only) and (mutant.short or not short)]


def _are_sound(mutants: Sequence[Mutant], tests: Sequence[str]) -> bool:
    """Say whether the tests pass where nothing is planted: else every mutant would seem to be seen."""
    for databases, group in groupby(sorted(mutants, key=lambda one: one.databases), key=lambda one: one.databases):
        named = tests or sorted({test for mutant in group for test in mutant.tests})
        result = try_out(None, named, databases, longest=1_800)
        _say(f"without a mutant, on {databases}: {result.said} ({result.seconds:.0f} s)")
        if result.verdict is not Verdict.SURVIVED:
            return False
    return True


def main() -> int:
    """Judge each mutant, and say at the end which were not killed."""
    given = _arguments()
    mutants = _wanted(given.only, short=given.short)
    if given.list:
        for mutant in mutants:
            _say(f"{mutant.name:<44} {mutant.file:<26} {mutant.law}")
        return 0
    if not _are_sound(mutants, given.tests):
        return 1
    alive = []
    for mutant in mutants:
        result = try_out(mutant, given.tests, mutant.databases) if given.tests else judge(mutant)
        _say(f"{result.verdict:<9} {mutant.name:<44} {result.seconds:5.1f} s  {result.said}")
        if result.verdict is not Verdict.KILLED:
            alive.append(f"{mutant.name}: {result.verdict}; {mutant.law}")
    _say(f"{len(mutants) - len(alive)} of {len(mutants)} killed")
    for line in alive:
        _say(f"  {line}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
