"""Who takes part: something that takes in work, works through it in processes of its own, and keeps a record."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from bench.machine import BenchError

PAYLOAD_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be sent: ids from 0 on, all at once, or from `start` on at a steady `rate`."""

    count: int
    start: datetime | None = None
    rate: float = 0

    def dues(self) -> list[datetime | None]:
        """Return when each is due; None means at once."""
        if self.start is None:
            return [None] * self.count
        begin = self.start.timestamp()
        return [datetime.fromtimestamp(begin + number / self.rate, self.start.tzinfo) for number in range(self.count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a contender's own database says afterwards."""

    done: int
    attempts: int | None = None
    """Rows that tell of the attempts; None where the contender keeps none."""

    def check(self, count: int) -> None:
        """Raise BenchError unless everything that was sent is on record, once."""
        if self.done != count or self.attempts not in (None, count):
            raise BenchError(f"expected {count} on record, got {self}")


class Contender(Protocol):
    """One way to do the work."""

    processes: int
    signs: bool
    """Whether each of its requests must bear a signature, or the run does not count."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    @property
    def kind(self) -> str:
        """The kind of its database."""

    def prepare(self) -> None:
        """An empty database with the contender's schema is there."""

    def intake(self) -> AbstractContextManager[Intake]:
        """Open the way in; whatever runs for it ends with it."""

    def work(self) -> AbstractContextManager[Sequence[int]]:
        """Run the workers; gives their process ids."""

    def record(self) -> Record:
        """Return what the database says."""

    def transactions(self) -> int | None:
        """Return how many transactions the database has committed so far, where it counts them."""


class Intake(Protocol):
    """The way in."""

    def put(self, plan: Plan) -> float:
        """Put it in, durably; return the seconds that this took."""
