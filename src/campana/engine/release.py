"""The release of what is parked: found by comparing what holds with what is closed, never by an event that can be missed."""

from datetime import timedelta

from campana import store
from campana.engine.tick import Tick
from campana.engine.wakeup import Wakeup
from campana.store.database import Database
from campana.world import World

BATCH = 500
LONGEST = timedelta(seconds=60)
SLOWEST = timedelta(milliseconds=10)
"""What is released comes a step apart: all of it within a minute, and never slower than this."""
MOST = 6_000_000


async def release(world: World, database: Database, tick: Tick, wakeup: Wakeup) -> int:
    """Bring forward whatever a scope holds that is open again; return how many rows."""
    held = await database.read(store.holds.scopes)
    resources = [scope for scope in held if scope.startswith("slots:")]
    closed = tick.board.closed
    opened = [scope for scope in held if scope not in closed and scope not in resources]
    # Only on what is known now: a scope that was closed a moment ago must not be let go.
    if not tick.is_fresh():
        return 0
    now = world.clock.now()
    woken = await database.write(store.lanes.fill, resources, now=now) if resources else 0
    if opened:
        woken += await _spread(world, database, opened)
    if woken:
        wakeup.ring(now)
    return woken


async def _spread(world: World, database: Database, scopes: list[str]) -> int:
    count = await database.read(store.holds.depth, scopes, at_most=MOST)
    step = min(SLOWEST, LONGEST / max(count, 1))
    first = world.clock.now()
    released = 0
    while batch := await database.write(store.holds.release, scopes, first=first + step * released, step=step, limit=BATCH):
        released += batch
    return released
