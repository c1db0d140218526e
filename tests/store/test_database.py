"""`Database`: what it runs again, how often, and what it tells."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from campana import store
from campana.domain.deliveries import State
from campana.errors import UnavailableError
from campana.store import dialects, migrate
from campana.store.database import ATTEMPTS, CommitLostError, Database, Unit, Urgency
from campana.store.schema import deliveries
from campana.store.sqlite import FileRunner
from tests.store import builders
from tests.store import desk as desks
from tests.store.builders import NOW, wish
from tests.store.desk import Desk

Fault = Callable[[], Exception]


class Faulty:
    """A file's runner that fails as it is told, before its work or after."""

    def __init__(self, url: str) -> None:
        self._runner = FileRunner(url)
        self.dialect = self._runner.dialect
        self.before: list[Fault | None] = []
        self.after: list[Fault | None] = []
        self.runs = 0

    async def write(self, unit: Unit, urgency: Urgency) -> Any:
        self.runs += 1
        if self.before and (fault := self.before.pop(0)):
            raise fault()
        result = await self._runner.write(unit, urgency)
        if self.after and (fault := self.after.pop(0)):
            raise fault()
        return result

    async def read(self, unit: Unit) -> Any:
        self.runs += 1
        if self.before and (fault := self.before.pop(0)):
            raise fault()
        return await self._runner.read(unit)

    async def close(self) -> None:
        await self._runner.close()


def _lost_connection() -> Exception:
    return DBAPIError("", {}, OSError("reset"), connection_invalidated=True)


def _lost_commit() -> Exception:
    return CommitLostError("reset")


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncIterator[tuple[Desk, Faulty]]:
    url = f"sqlite:///{tmp_path / 'campana.db'}"
    await migrate.upgrade(url)
    runner, told = Faulty(url), desks.quiet()
    desk = Desk(url=url, database=Database(runner, desks.hurried(), told), telemetry=told)
    yield desk, runner
    await desk.database.close()


async def test_a_lost_connection_is_run_again_until_it_works(faulty: tuple[Desk, Faulty]) -> None:
    desk, runner = faulty
    runner.before = [_lost_connection] * (ATTEMPTS - 1)
    wanted = builders.delivery()
    (made,) = await desk.write(store.deliveries.create, [wanted], now=NOW)
    assert (made.id, runner.runs) == (wanted.id, ATTEMPTS)
    assert desk.telemetry.counts["store.retry"] == ATTEMPTS - 1
    assert desk.telemetry.counts["store.create"] == 1


@pytest.mark.parametrize("call", ["read", "write"])
async def test_a_database_that_stays_away_is_unavailable(faulty: tuple[Desk, Faulty], call: str) -> None:
    desk, runner = faulty
    runner.before = [_lost_connection] * (ATTEMPTS + 1)
    with pytest.raises(UnavailableError, match="has_keys: the database did not answer after 8 tries"):
        await getattr(desk, call)(store.tenants.has_keys)
    assert runner.runs == ATTEMPTS


async def test_a_fault_of_ours_is_raised_at_once(faulty: tuple[Desk, Faulty]) -> None:
    desk, runner = faulty

    def unit(_: Connection) -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        await desk.write(unit)
    assert runner.runs == 1


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_create_whose_commit_was_lost_finds_its_own_rows(faulty: tuple[Desk, Faulty], times: int) -> None:
    desk, runner = faulty
    runner.after = [_lost_commit] * times
    wanted = [builders.delivery(dedupe_key="k"), builders.delivery()]
    made = await desk.write(store.deliveries.create, wanted, now=NOW)
    assert [(one.id, one.deduplicated) for one in made] == [(one.id, False) for one in wanted]
    assert len(await desk.rows(deliveries)) == 2
    assert desk.telemetry.counts["store.commit_lost"] == times


LOSSES: list[tuple[list[Fault | None], list[Fault | None]]] = [
    ([], [_lost_commit]),
    ([_lost_commit], []),
    ([None, _lost_connection], [_lost_commit]),
    ([None, _lost_connection, _lost_connection], [_lost_commit]),
    ([_lost_commit, None, _lost_commit], []),
]


@pytest.mark.parametrize(("before", "after"), LOSSES)
async def test_a_claim_whose_commit_was_lost_is_looked_for_first(
    faulty: tuple[Desk, Faulty], before: list[Fault | None], after: list[Fault | None]
) -> None:
    desk, runner = faulty
    made = await desk.add_all(*({} for _ in range(6)))
    runner.before, runner.after = list(before), list(after)
    claimed = await desk.database.claim(wish(free=2))
    assert [ticket.id for ticket in claimed.tickets] == made[:2]
    states = [row.state for row in await desk.rows(deliveries)]
    assert states.count(State.PROCESSING) == 2


async def test_a_claim_that_found_nothing_and_was_lost_is_run_again(faulty: tuple[Desk, Faulty]) -> None:
    desk, runner = faulty
    runner.after = [_lost_commit]
    assert (await desk.database.claim(wish())).tickets == []
    assert runner.runs == 3


SQLSTATES = {"40001": True, "40P01": True, "55P03": True, "57P01": True, "23505": False, "22021": False, "42P01": False}


@pytest.mark.parametrize(("sqlstate", "is_transient"), SQLSTATES.items())
def test_postgresql_says_by_its_sqlstate_what_passes(sqlstate: str, *, is_transient: bool) -> None:
    original = type("Error", (Exception,), {"sqlstate": sqlstate})()
    assert dialects.named("postgresql").is_transient(DBAPIError("", {}, original)) is is_transient


NUMBERS = {1213: True, 1205: True, 1020: True, 2006: True, 2013: True, 1062: False, 1406: False, 1064: False, 1146: False}


@pytest.mark.parametrize(("number", "is_transient"), NUMBERS.items())
@pytest.mark.parametrize("name", ["mysql", "mariadb"])
def test_mysql_says_by_its_number_what_passes(name: str, number: int, *, is_transient: bool) -> None:
    assert dialects.named(name).is_transient(DBAPIError("", {}, Exception(number, "said"))) is is_transient
