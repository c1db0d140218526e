"""Throw chance at the product until it breaks or the time is over.

python -m tests.fuzz NAME ...    runs tests/fuzz/NAME.py, whose `main` takes the words that follow; `--help` says which

Every program prints the seed of what it found, and takes it back.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


def names() -> list[str]:
    """Return what can be run: the modules of this folder, but for tests and what begins with an underscore."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith(("_", "test_")))


def main(words: Sequence[str]) -> int:
    """Run the program that the first word names; 0 where it found nothing."""
    if not words or words[0] not in names():
        sys.stderr.write(f"expected one of {', '.join(names())}, got {words[0] if words else 'nothing'}\n")
        return 2
    program = importlib.import_module(f"tests.fuzz.{words[0]}")
    return int(program.main(words[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
