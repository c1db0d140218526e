"""Reading deliveries back: one, many, and the newest first, narrowed by each filter alone."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from campana import store
from campana.domain.deliveries import State
from campana.domain.instants import MICROSECOND
from campana.store.deliveries import Filter, Window
from tests.store import builders
from tests.store.builders import HOUR, NOW, OTHER_PROJECT, OTHER_TENANT, TENANT
from tests.store.desk import Desk

DAY = timedelta(days=1)


async def _newest(desk: Desk, *, before: UUID | None = None, limit: int = 100, **wanted: Any) -> list[UUID]:
    found = await desk.read(store.deliveries.newest, TENANT, Filter(**wanted), before=before, limit=limit)
    return [record.id for record in found]


async def test_a_delivery_is_found_by_its_tenant_alone(desk: Desk) -> None:
    mine = await desk.add()
    found = await desk.read(store.deliveries.get, TENANT, mine)
    assert found is not None
    assert (found.id, store.deliveries.state(found)) == (mine, State.SCHEDULED)
    assert await desk.read(store.deliveries.get, OTHER_TENANT, mine) is None
    assert await desk.read(store.deliveries.get, TENANT, builders.new_id()) is None


async def test_many_are_found_by_id_those_of_other_tenants_left_out(desk: Desk) -> None:
    mine = await desk.add_all(*({} for _ in range(1_001)))
    theirs = await desk.add(tenant_id=OTHER_TENANT)
    found = await desk.read(store.deliveries.get_many, TENANT, [*mine, theirs, builders.new_id()])
    assert set(found) == set(mine)
    assert all(record.id == delivery_id for delivery_id, record in found.items())


async def test_the_newest_come_first_whatever_their_due_time(desk: Desk) -> None:
    made = await desk.add_all({"due_at": NOW}, {"due_at": NOW + DAY}, {"due_at": NOW - DAY})
    await desk.add(tenant_id=OTHER_TENANT)
    assert await _newest(desk) == made[::-1]


async def test_pages_follow_each_other_without_gap_or_repeat_while_new_ones_arrive(desk: Desk) -> None:
    made = await desk.add_all(*({} for _ in range(7)))
    seen: list[UUID] = []
    cursor = None
    while page := await _newest(desk, before=cursor, limit=3):
        seen += page
        cursor = page[-1]
        await desk.add()
    assert seen == made[::-1]


FILTERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"states": frozenset({State.COMPLETED})}, {"state": State.COMPLETED}, {}),
    ({"states": frozenset({State.SCHEDULED, State.SKIPPED})}, {"state": State.SCHEDULED}, {"state": State.CANCELLED}),
    ({"channel": "log"}, {"channel": "log"}, {"channel": "logs"}),
    ({"recipient": "ann"}, {"recipient": "ann"}, {"recipient": "ann "}),
    ({"recipient": "ann"}, {"recipient": "ann"}, {"recipient": "Ann"}),
    ({"recipient": "ann"}, {"recipient": "ann"}, {"recipient": None}),
    ({"project_id": OTHER_PROJECT}, {"project_id": OTHER_PROJECT}, {}),
    ({"dedupe_key": "k"}, {"dedupe_key": "k"}, {"dedupe_key": "k "}),
    ({"provider_call_id": "c"}, {"provider_call_id": "c"}, {"provider_call_id": "C"}),
    ({"schedule_id": UUID(int=7)}, {"schedule_id": UUID(int=7)}, {"schedule_id": UUID(int=8)}),
    ({"schedule_id": UUID(int=7)}, {"schedule_id": UUID(int=7)}, {"schedule_id": None}),
    ({"due_from": NOW}, {"due_at": NOW}, {"due_at": NOW - MICROSECOND}),
    ({"due_to": NOW}, {"due_at": NOW - MICROSECOND}, {"due_at": NOW}),
]


@pytest.mark.parametrize(("wanted", "inside", "outside"), FILTERS, ids=str)
async def test_each_filter_narrows_by_its_own_column(
    desk: Desk, wanted: dict[str, Any], inside: dict[str, Any], outside: dict[str, Any]
) -> None:
    found, _ = await desk.add_all(inside, outside)
    assert await _newest(desk, **wanted) == [found]


async def test_a_window_shows_what_matches_in_it_and_says_where_the_next_begins(desk: Desk) -> None:
    made = await desk.add_all(*({"recipient": "ann" if number % 4 == 0 else None} for number in range(10)))
    await desk.add(tenant_id=OTHER_TENANT, recipient="ann")
    found: list[tuple[list[UUID], UUID | None]] = []
    asked = Window(before=None, limit=5, size=4)
    while asked.before != made[0] and len(found) < 5:
        seen = await desk.read(store.deliveries.window, TENANT, Filter(recipient="ann"), asked)
        found.append(([record.id for record in seen.records], seen.end))
        if seen.end is None:
            break
        asked = Window(before=seen.end, limit=5, size=4)
    assert found == [([made[8]], made[6]), ([made[4]], made[2]), ([made[0]], None)]


async def test_a_window_that_is_full_goes_on_after_its_last_row(desk: Desk) -> None:
    made = await desk.add_all(*({"recipient": "ann"} for _ in range(6)))
    seen = await desk.read(store.deliveries.window, TENANT, Filter(recipient="ann"), Window(before=None, limit=2, size=5))
    assert ([record.id for record in seen.records], seen.end) == ([made[5], made[4]], made[4])
    every = await desk.read(store.deliveries.window, TENANT, Filter(), Window(before=made[4], limit=9, size=1))
    assert ([record.id for record in every.records], every.end) == (made[3::-1], None)


async def test_those_that_have_ended_or_are_gone_are_told(desk: Desk) -> None:
    waits, sent, retried, ended = await desk.add_all(
        {}, {"state": State.IN_PROGRESS}, {"state": State.PENDING_RETRY}, {"state": State.DEAD_LETTER}
    )
    gone = builders.new_id()
    assert await desk.read(store.deliveries.ended, [waits, sent, retried, ended, gone]) == [ended, gone]
    assert await desk.read(store.deliveries.ended, []) == []


async def test_filters_narrow_together(desk: Desk) -> None:
    both, _, _ = await desk.add_all(
        {"channel": "log", "recipient": "ann"}, {"channel": "log"}, {"recipient": "ann", "due_at": NOW + HOUR}
    )
    assert await _newest(desk, channel="log", recipient="ann") == [both]


async def _labelled(desk: Desk, *labels: dict[str, str]) -> list[UUID]:
    new = [builders.delivery(labels=one) for one in labels]
    await desk.write(store.deliveries.create, new, now=NOW)
    return [one.id for one in new]


LABELS = [
    ({"team": "red"}, {"team": "blue"}),
    ({"team": "red"}, {"team": "Red"}),
    ({"team": "red"}, {"Team": "red"}),
    ({"team": "red"}, {"team": "red "}),
    ({"team": "red"}, {"team": "re"}),
    ({"team": "red"}, {"my team": "red"}),
    ({"team": "red"}, {'my "team': "red"}),
    ({"team": "red"}, {"x": '", "team": "red'}),
    ({"team": "red"}, {}),
    ({"team": "100%"}, {"team": "1000"}),
    ({"team": "a_b"}, {"team": "axb"}),
    ({"team": "%"}, {"team": "anything"}),
    ({"team": "'; drop table x; --"}, {"team": "'"}),
    ({"team": 'quo"ted'}, {"team": "quo'ted"}),
    ({"team": "back\\slash"}, {"team": "back\\\\slash"}),
    ({"team": "línea"}, {"team": "linea"}),
    ({"équipe": "😀"}, {"équipe": "😁"}),
    ({"team": ""}, {"team": "x"}),
    ({"team": "line\nbreak"}, {"team": "line\\nbreak"}),
    ({"a/b:c": ":x"}, {"a/b:c": "x"}),
]


@pytest.mark.parametrize(("inside", "outside"), LABELS, ids=ascii)
async def test_a_label_is_found_by_exactly_its_name_and_value(
    desk: Desk, inside: dict[str, str], outside: dict[str, str]
) -> None:
    alone, first, middle, last, _ = await _labelled(
        desk,
        inside,
        {**inside, "zone": "north"},
        {"a": "1", **inside, "zone": "north"},
        {"a": "1", **inside},
        outside,
    )
    assert await _newest(desk, labels=inside) == [last, middle, first, alone]


async def test_several_labels_narrow_together(desk: Desk) -> None:
    both, _, _ = await _labelled(desk, {"a": "1", "b": "2"}, {"a": "1"}, {"b": "2"})
    assert await _newest(desk, labels={"b": "2", "a": "1"}) == [both]
