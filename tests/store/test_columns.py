"""What goes in comes out, on every database: instants to the microsecond, ids in the order of their making, names by bytes."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Select, insert, select
from sqlalchemy.exc import StatementError

from campana.domain import instants
from campana.store.schema import deliveries, leases, versions
from tests.store import builders
from tests.store.builders import NOW
from tests.store.desk import Desk, execute

EXTREMES = [
    instants.EPOCH,
    instants.EPOCH + instants.MICROSECOND,
    datetime(2038, 1, 19, 3, 14, 8, 1, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 30, 0, 999_999, tzinfo=UTC),
    instants.LAST - instants.MICROSECOND,
    datetime(1900, 1, 1, tzinfo=UTC),
]
NAMES = [
    "a",
    "a ",
    " a",
    "A",
    "á",
    "a\u0301",
    "ß",
    "ss",
    "😀",
    "😁",
    "%",
    "_",
    "'",
    '"',
    "\\",
    "a\n",
    "a\t",
    "\u200b",
    "😀" * 30,
    "x" * 120,
]


def _keep(connection: Connection, at: datetime) -> None:
    connection.execute(insert(leases), {"name": "it", "fence": 0, "until": at})


def _found(connection: Connection, query: Select[Any]) -> list[Any]:
    return list(connection.execute(query))


@pytest.mark.parametrize("at", EXTREMES, ids=str)
async def test_an_instant_comes_back_to_the_microsecond(desk: Desk, at: datetime) -> None:
    await desk.write(_keep, at)
    (row,) = await desk.rows(leases)
    assert row.until == at
    assert row.until.tzinfo is UTC


async def test_an_instant_of_another_offset_comes_back_as_the_same_instant(desk: Desk) -> None:
    await desk.write(_keep, NOW.astimezone(timezone(timedelta(hours=5, minutes=45))))
    (row,) = await desk.rows(leases)
    assert row.until == NOW


async def test_a_naive_instant_is_refused(desk: Desk) -> None:
    with pytest.raises(StatementError, match="naive"):
        await desk.write(_keep, NOW.replace(tzinfo=None))
    assert await desk.rows(leases) == []


async def test_an_instant_can_be_compared_in_the_database(desk: Desk) -> None:
    await desk.write(_keep, NOW)
    for at, found in ((NOW, 1), (NOW + instants.MICROSECOND, 0), (NOW - instants.MICROSECOND, 1)):
        query = select(leases.c.name).where(leases.c.until >= at)
        assert len(await desk.read(_found, query)) == found


async def test_ids_sort_in_the_order_of_their_making(desk: Desk) -> None:
    edges = [UUID(int=0), UUID(int=1), UUID(int=1 << 64), UUID(int=(1 << 127) - 1), UUID(int=1 << 127), UUID(int=(1 << 128) - 1)]
    made = sorted([*edges, *(builders.new_id() for _ in range(50))])
    await desk.add_all(*({"id": one} for one in reversed(made)))
    query = select(deliveries.c.id).order_by(deliveries.c.id)
    assert await desk.read(lambda connection: list(connection.execute(query).scalars())) == made


async def test_names_are_the_same_only_if_their_bytes_are(desk: Desk) -> None:
    short = [name for name in NAMES if len(name) <= 40]
    await desk.write(execute, insert(versions), [{"name": n, "number": i} for i, n in enumerate(short)])
    for number, name in enumerate(short):
        query = select(versions.c.name, versions.c.number).where(versions.c.name == name)
        assert await desk.read(_found, query) == [(name, number)]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_a_name_comes_back_as_it_was(desk: Desk, name: str) -> None:
    await desk.write(execute, insert(leases), [{"name": name, "fence": 0}])
    assert [row.name for row in await desk.rows(leases)] == [name]
