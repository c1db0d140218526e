"""Crowds: what is due for receivers that have their fill, or are left alone, is put off many at a time."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from campana import store
from campana.domain import instants
from campana.engine.claim import Claimer
from campana.engine.destinations import Destinations
from campana.store.crowds import Waiting
from campana.store.database import Database, Urgency
from campana.world import World

PAGE = 2_000


async def disperse(world: World, database: Database, destinations: Destinations, claimer: Claimer, queues: Iterable[str]) -> int:
    """Where there is a crowd: put off what could not be sent if it were claimed now, of the longest due; return how many."""
    if not destinations.has_crowd:
        return 0
    destinations.has_crowd = False

    def choose(rows: Sequence[Waiting]) -> list[tuple[UUID, datetime, str]]:
        chosen = []
        for row in rows:
            away = destinations.away(row, retry=row.attempt_count > 0)
            if away is not None and (row.expires_at is None or row.expires_at > away[0]):
                chosen.append((row.id, *away))
        return chosen

    now, floors, count = world.clock.now(), claimer.floors, 0
    for queue in queues:
        floor = floors.get(queue, instants.EPOCH)
        page = store.crowds.put_off
        count += await database.urgently(Urgency.CLAIM, page, queue, choose, now=now, floor=floor, limit=PAGE)
    if count:
        # Where there were so many there may be more.
        destinations.has_crowd = True
    return count
