"""Dice with a seed: the same seed throws the same numbers and gives the same ids."""

import random  # noqa: TID251 - chance that can be repeated is what this module is for
from datetime import datetime
from uuid import UUID

from campana.domain import instants
from campana.world import uuid7


class SeededChance:
    """Chance for `campana.world` that repeats itself."""

    def __init__(self, seed: int | str = 0) -> None:
        """Throw as this seed says."""
        self._dice = random.Random(seed)  # noqa: S311 - nothing here is a secret
        self._last = 0

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return self._dice.random()

    def token(self, size: int) -> bytes:
        """Return bytes that anybody with the seed can guess."""
        return self._dice.randbytes(size)

    def uuid7(self, at: datetime) -> UUID:
        """Return an id that sorts after every earlier one of this object."""
        self._last = max(instants.to_micros(at) * 4_096 // 1_000, self._last + 1)
        return uuid7(self._last, self._dice.getrandbits(62))
