"""When to look next, and leases: prolonged, proven for a suspect, and ended."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.domain.instants import MICROSECOND
from tests.store.builders import HOUR, LEASE, ME, MINUTE, NOW, SECOND, YOU, settlement
from tests.store.desk import Desk, hands

LATER = NOW + HOUR
WAKES: list[tuple[str, dict[str, Any], Sequence[str], bool, datetime | None]] = [
    ("a row of a queue", {"queue": "a"}, ("a",), False, LATER),
    ("a retry", {"queue": "a", "state": State.PENDING_RETRY}, ("a",), False, LATER),
    ("a row of the second queue", {"queue": "b"}, ("a", "b"), False, LATER),
    ("a row of a queue nobody named", {"queue": "b"}, ("a",), True, None),
    ("a queue with a quote", {"queue": "'a"}, ("'a",), False, LATER),
    ("a queue that differs by a blank", {"queue": "a "}, ("a",), False, None),
    ("no queue at all", {"queue": "a"}, (), False, None),
    ("a suspect that is wanted", {"queue": "a", "crash_count": 2}, ("a",), True, LATER),
    ("a suspect that is not wanted", {"queue": "a", "crash_count": 2}, ("a",), False, None),
    ("a suspect of a queue without room", {"queue": "a", "crash_count": 2}, ("b",), True, None),
    ("a suspect under way", {"state": State.PROCESSING, "crash_count": 2}, (), True, None),
    ("a claimed row", {"queue": "a", "state": State.PROCESSING}, ("a",), True, None),
    ("an accepted row", {"queue": "a", "state": State.IN_PROGRESS}, ("a",), True, None),
    ("a row that has ended", {"queue": "a", "state": State.COMPLETED}, ("a",), True, None),
]


@pytest.mark.parametrize(("why", "column", "queues", "suspects", "found"), WAKES, ids=[case[0] for case in WAKES])
async def test_the_next_send_is_the_first_that_can_be_claimed(
    desk: Desk, why: str, column: dict[str, Any], queues: Sequence[str], *, suspects: bool, found: datetime | None
) -> None:
    await desk.add(wake_at=LATER, **column)
    assert await desk.read(store.wakes.next_wake, queues, suspects=suspects) == found


async def test_the_earliest_of_all_queues_and_suspects_is_the_next_send(desk: Desk) -> None:
    rows = [{"queue": "a", "wake_at": NOW + 3 * HOUR}, {"queue": "a", "wake_at": NOW + 4 * HOUR}]
    await desk.add_all(*rows, {"queue": "b", "wake_at": NOW + 2 * HOUR}, {"queue": "c", "wake_at": NOW + HOUR, "crash_count": 2})
    for queues, suspects, hours in (
        (("a",), False, 3),
        (("a", "b"), False, 2),
        (("a", "b"), True, 2),
        (("a", "b", "c"), True, 1),
    ):
        assert await desk.read(store.wakes.next_wake, queues, suspects=suspects) == NOW + hours * HOUR


@pytest.mark.parametrize("state", State)
async def test_the_next_timer_is_the_first_lease_callback_or_look_up(desk: Desk, state: State) -> None:
    await desk.add_all({"state": state, "wake_at": NOW + HOUR}, {"state": state, "wake_at": NOW + MINUTE})
    found = NOW + MINUTE if state in {State.PROCESSING, State.IN_PROGRESS} else None
    assert await desk.read(store.wakes.next_timer) == found


async def _renewed(desk: Desk, **column: Any) -> datetime:
    row = {"state": State.PROCESSING, "wake_at": NOW + 30 * SECOND, "lease_owner": ME, **column}
    it = await desk.add(**row)
    await desk.write(store.claims.renew, me=ME, held=[it], now=NOW, lease=LEASE)
    found: datetime = (await desk.row(it)).wake_at
    return found


RENEWALS: list[tuple[str, dict[str, Any], datetime]] = [
    ("half is left", {}, NOW + LEASE),
    ("just under two thirds are left", {"wake_at": NOW + 40 * SECOND - MICROSECOND}, NOW + LEASE),
    ("two thirds are left", {"wake_at": NOW + 40 * SECOND}, NOW + 40 * SECOND),
    ("it is over", {"wake_at": NOW}, NOW),
    ("it is nearly over", {"wake_at": NOW + MICROSECOND}, NOW + LEASE),
    ("it may not run so long", {"run_until": NOW + 45 * SECOND}, NOW + 45 * SECOND),
    ("somebody else's", {"lease_owner": YOU}, NOW + 30 * SECOND),
    ("a callback", {"state": State.IN_PROGRESS}, NOW + 30 * SECOND),
    ("waiting", {"state": State.SCHEDULED}, NOW + 30 * SECOND),
]


@pytest.mark.parametrize(("why", "column", "until"), RENEWALS, ids=[case[0] for case in RENEWALS])
async def test_a_lease_is_prolonged(desk: Desk, why: str, column: dict[str, Any], until: datetime) -> None:
    assert await _renewed(desk, **column) == until


async def test_a_lease_at_its_run_limit_is_never_prolonged_beyond_it(desk: Desk) -> None:
    limit = NOW + 30 * SECOND
    it = await desk.add(state=State.PROCESSING, wake_at=limit, run_until=limit)
    for seconds in (0, 10, 20, 29):
        await desk.write(store.claims.renew, me=ME, held=[it], now=NOW + seconds * SECOND, lease=LEASE)
    assert (await desk.row(it)).wake_at == limit


async def test_what_is_claimed_and_held_no_more_is_not_prolonged(desk: Desk) -> None:
    row = {"state": State.PROCESSING, "wake_at": NOW + 30 * SECOND, "lease_owner": ME}
    held, fallen = await desk.add(**row), await desk.add(**row)
    await desk.write(store.claims.renew, me=ME, held=[held], now=NOW, lease=LEASE)
    assert [(await desk.row(it)).wake_at for it in (held, fallen)] == [NOW + LEASE, NOW + 30 * SECOND]


async def test_a_row_that_somebody_else_has_locked_costs_no_other_its_lease(server_desk: Desk) -> None:
    row = {"state": State.PROCESSING, "wake_at": NOW + 30 * SECOND, "lease_owner": ME}
    locked, free = await server_desk.add(**row), await server_desk.add(**row)
    async with hands(server_desk.url, 1) as (somebody,):
        await somebody.do(store.settlements.apply, [settlement(locked)], now=NOW)
        await server_desk.write(store.claims.renew, me=ME, held=[locked, free], now=NOW, lease=LEASE)
    assert (await server_desk.row(free)).wake_at == NOW + LEASE


async def test_a_suspects_start_is_written_under_its_fence(desk: Desk) -> None:
    it = await desk.add(state=State.PROCESSING, fence=3, crash_count=2)
    for _ in range(2):
        assert await desk.write(store.claims.start_suspect, it, 3) is True
        assert (await desk.row(it)).suspect_fence == 3


@pytest.mark.parametrize(
    "column", [{"fence": 4}, {"state": State.PENDING_RETRY}, {"state": State.IN_PROGRESS}, {"state": State.COMPLETED}], ids=str
)
async def test_a_suspect_whose_claim_is_lost_does_not_start(desk: Desk, column: dict[str, Any]) -> None:
    it = await desk.add(**{"state": State.PROCESSING, "fence": 3, "crash_count": 2, **column})
    assert await desk.write(store.claims.start_suspect, it, 3) is False
    assert (await desk.row(it)).suspect_fence is None


ENDED: list[tuple[str, dict[str, Any], bool]] = [
    ("another engine's", {}, True),
    ("mine", {"lease_owner": ME}, False),
    ("already over", {"wake_at": NOW - SECOND}, False),
    ("a callback", {"state": State.IN_PROGRESS}, False),
    ("waiting", {"state": State.SCHEDULED}, False),
]


@pytest.mark.parametrize(("why", "column", "is_ended"), ENDED, ids=[case[0] for case in ENDED])
async def test_only_open_leases_of_other_engines_are_ended(
    desk: Desk, why: str, column: dict[str, Any], *, is_ended: bool
) -> None:
    it = await desk.add(**{"state": State.PROCESSING, "lease_owner": YOU, "wake_at": NOW + LEASE, **column})
    before = await desk.row(it)
    assert await desk.write(store.claims.expire_others, me=ME, now=NOW) == is_ended
    expected = {**before._mapping, **({"wake_at": NOW} if is_ended else {})}
    assert (await desk.row(it))._mapping == expected
