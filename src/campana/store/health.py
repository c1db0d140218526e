"""How the work goes, as anybody who looks in from outside can tell: who lives, and what should have been sent long ago."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from campana.store import engines, wakes
from campana.store.explains import ALIVE
from campana.store.schema import engines as rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What lives, and what waits although it is due."""

    engines: int
    seen_at: datetime | None
    """When the last engine was seen, dead or alive; None if there never was one."""
    due: Mapping[str, datetime]
    """Queues in which something is due, each with the instant since which it has been."""
    unserved: frozenset[str]
    """Those of them that no living engine takes."""


def look(connection: Connection, *, now: datetime) -> Health:
    """Return how the work goes: a probe of an index for each queue, however much waits."""
    living = connection.execute(select(rows.c.queues).where(*engines.alive(now - ALIVE))).scalars().all()
    served = {queue for said in living if said is not None for queue in json.loads(said)}
    firsts = {queue: wakes.next_wake(connection, [queue], suspects=False) for queue in wakes.queues(connection)}
    due = {queue: first for queue, first in firsts.items() if first is not None and first <= now}
    return Health(
        engines=len(living),
        seen_at=engines.newest(connection),
        due=due,
        unserved=frozenset() if None in living else frozenset(due) - served,
    )
