"""How much of a tenant's waits."""

from campana import store
from campana.domain.deliveries import State
from tests.store.builders import NOW, OTHER_TENANT, TENANT
from tests.store.desk import Desk


async def _count(desk: Desk, at_most: int = 100) -> int:
    return await desk.read(store.ceilings.waiting, TENANT, at_most=at_most)


async def test_what_waits_is_counted_over_all_queues_and_priorities_and_nothing_else(desk: Desk) -> None:
    assert await _count(desk) == 0
    waiting = [{"queue": queue, "priority": priority} for queue in ("webhook", "python:a") for priority in (0, 1, 2)]
    ended = [{"state": state, "wake_at": None} for state in (State.COMPLETED, State.CANCELLED)]
    under_way = [{"state": state, "wake_at": NOW} for state in (State.PROCESSING, State.IN_PROGRESS)]
    await desk.add_all(*waiting, {"state": State.PENDING_RETRY}, *ended, *under_way, {"tenant_id": OTHER_TENANT})
    assert await _count(desk) == 7


async def test_it_is_counted_no_further_than_asked(desk: Desk) -> None:
    await desk.add_all(*({"queue": queue} for queue in ("a", "a", "a", "b", "b", "c")))
    assert [await _count(desk, at_most) for at_most in (1, 3, 4, 6, 9)] == [1, 3, 4, 6, 6]
