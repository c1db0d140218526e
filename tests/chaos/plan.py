"""What shall go wrong in a run, in a seeded order."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often each fault happens, and under what load."""

    kills: int = 20
    freezes: int = 0
    restarts: int = 0
    commits: int = 0
    cuts: int = 0
    receivers: int = 0
    """Kills of the receiver."""
    engines: int = 2
    rate: int = 120
    """Deliveries asked for, a second."""
    lease: float = 3.0
    seed: int = 1

    def order(self, kind: str) -> list[str]:
        """The faults in the order in which they happen; a file has no server that could be spoilt."""
        counts = {"kill": self.kills, "freeze": self.freezes, "receiver": self.receivers}
        if kind != "sqlite":
            counts |= {"restart": self.restarts, "commit": self.commits, "cut": self.cuts}
        faults = [name for name, count in counts.items() for _ in range(count)]
        random.Random(f"{self.seed}|{kind}").shuffle(faults)
        return faults
