"""Waiting for a delivery to end, by asking now and then: whoever waits may be in another process than the engine."""

import math
from uuid import UUID

from campana import store
from campana.domain.deliveries import FINAL
from campana.operations import deliveries
from campana.operations.office import Actor, Office
from campana.store.deliveries import Record

FIRST = 0.05
LONGEST = 1.0
"""Seconds between two looks: few at first, for most end at once."""


async def until_final(office: Office, actor: Actor, delivery_id: UUID, *, seconds: float = math.inf) -> Record:
    """Return a delivery of the actor's tenant once it has ended, or as it stands after so many seconds."""
    clock = office.world.clock
    until, pause = clock.steady() + seconds, FIRST
    while True:
        record = await deliveries.get(office, actor, delivery_id)
        left = until - clock.steady()
        if has_ended(record) or left <= 0:
            return record
        await clock.sleep(min(pause, left))
        pause = min(pause * 2, LONGEST)


def has_ended(record: Record) -> bool:
    """Say whether nothing more will happen to it by itself."""
    return store.deliveries.state(record) in FINAL
