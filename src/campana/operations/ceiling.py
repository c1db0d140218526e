"""The ceiling: no tenant fills the house for the others. What a tenant has live is counted now and then, and not at each request.

Between two counts this process adds up what it takes in, and counts again when that is a tenth of the room that was left:
with ten processes beside it the ceiling still holds.
"""

import asyncio
import logging

from campana import store
from campana.errors import TooManyLiveError, UnavailableError
from campana.operations.office import Actor, Load, Office

PATIENCE = 10.0
GOOD_FOR = 600.0
FULL_FOR = 5.0
"""Seconds until a full tenant is counted again, or twenty times as long as the count took."""


async def admit(office: Office, actor: Actor, wanted: int) -> None:
    """Raise unless the tenant has room for so many more; where it can't be counted, nobody is turned away."""
    load = office.loads.setdefault(actor.tenant_id, Load())
    async with load.lock:
        if _is_stale(office, load, wanted):
            await _count(office, actor, load)
        if load.live + load.added + wanted > office.most_live:
            raise TooManyLiveError(
                f"expected at most {office.most_live:,} deliveries that wait at once in this tenant, it has "
                f"{load.live + load.added:,}: wait until some have ended, or cancel some",
                retry_after=60,
            )
        load.added += wanted


def _is_stale(office: Office, load: Load, wanted: int) -> bool:
    age = office.world.clock.steady() - load.counted_at
    if load.live + load.added + wanted > office.most_live:
        return age > max(FULL_FOR, 20 * load.took) or load.added > 0
    return age > GOOD_FOR or load.added > (office.most_live - load.live) / 10


async def _count(office: Office, actor: Actor, load: Load) -> None:
    clock = office.world.clock
    began = clock.steady()
    try:
        async with asyncio.timeout(PATIENCE):
            load.live = await office.database.read(store.ceilings.waiting, actor.tenant_id, at_most=office.most_live + 1)
        load.added = 0
    except (TimeoutError, UnavailableError) as error:
        office.telemetry.emit(logging.WARNING, "ceiling.not_counted", tenant=str(actor.tenant_id), error=repr(error)[:300])
    load.counted_at, load.took = clock.steady(), clock.steady() - began
