"""Migrations: what they make is what the code speaks, whoever runs them, however often, whatever ended them."""

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, make_url, text

from campana import store
from campana.domain.deliveries import State
from campana.store import migrate, schema, views
from campana.store.migrations import steps
from tests import databases
from tests.store import builders, desk
from tests.store.builders import NOW

VIEWS = {views.name_of(table) for table in schema.metadata.sorted_tables}


@pytest.fixture
def blank(database_url: str) -> str:
    """The URL of a database with nothing in it."""
    databases.empty(database_url)
    return database_url


async def _look(url: str, look: Callable[[Connection], Any]) -> Any:
    async with desk.hands(url, 1) as (hand,):
        return await hand.do(look)


def _differences(connection: Connection) -> list[Any]:
    ours = set(schema.metadata.tables)

    def mine(_1: Any, name: str | None, kind: str, *_2: Any) -> bool:
        return kind != "table" or name in ours

    options = {"compare_type": True, "include_object": mine}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), schema.metadata))


def _is_for_mysql(difference: Any) -> bool:
    """Generated columns stand in for partial indexes, and the indexes are on them."""
    if difference[0] in {"add_index", "remove_index"}:
        names = ("sends", "fair", "timers", "suspects")
        return difference[1].name in {*(f"deliveries_{name}" for name in names), "events_unnumbered"}
    return difference[0] == "remove_column" and difference[3].name in schema.MYSQL_GENERATED


async def test_what_the_migrations_make_is_what_the_code_speaks(blank: str) -> None:
    await migrate.upgrade(blank)
    found = await _look(blank, _differences)
    if "mysql" in blank:
        assert {difference[3].name for difference in found if difference[0] == "remove_column"} == set(schema.MYSQL_GENERATED)
        found = [difference for difference in found if not _is_for_mysql(difference)]
    assert found == []


def _generated(connection: Connection) -> dict[str, str]:
    columns = inspect(connection).get_columns("deliveries")
    return {column["name"]: str(column["computed"]["sqltext"]) for column in columns if "computed" in column}


async def test_generated_columns_say_what_the_partial_indexes_say(blank: str) -> None:
    await migrate.upgrade(blank)
    found = await _look(blank, _generated)
    expected = schema.MYSQL_GENERATED if "mysql" in blank else {}
    assert {name: _bare(said) for name, said in found.items()} == {name: _bare(said) for name, said in expected.items()}


def _bare(said: str) -> str:
    return said.lower().replace("`", "").replace("(", "").replace(")", "").replace(" ", "")


async def test_a_database_says_which_schema_it_has(blank: str) -> None:
    assert await migrate.current(blank) is None
    assert await migrate.upgrade(blank) == (None, migrate.newest())
    assert await migrate.current(blank) == migrate.newest()
    assert await migrate.upgrade(blank) == (migrate.newest(), migrate.newest())


async def test_of_two_processes_at_once_one_migrates_and_the_other_waits(blank: str) -> None:
    program = "import asyncio, sys; from campana.store import migrate;print(asyncio.run(migrate.upgrade(sys.argv[1]))[0], end='')"
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, blank, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    said = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sorted(out.decode() for out, _ in said) == sorted(["None", migrate.newest()])
    assert await _views(blank) == VIEWS


class KilledError(Exception):
    """Where the process was killed."""


def _dying_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    made = 0

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        made += 1
        if made > calls:
            raise KilledError
        return function(*args, **kwargs)

    return dying


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        ("create_table", 0),
        ("create_table", 4),
        ("create_table", 9),
        ("create_index", 3),
        ("create_index", 7),
        ("add_generated", 1),
    ],
)
async def test_a_migration_killed_inside_is_completed_by_the_next_one(
    blank: str, monkeypatch: pytest.MonkeyPatch, step: str, calls: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(steps, step, _dying_after(calls, getattr(steps, step)))
        if step == "add_generated" and "mysql" not in blank:
            await migrate.upgrade(blank)
        else:
            with pytest.raises(KilledError):
                await migrate.upgrade(blank)
            assert await migrate.current(blank) is None
    await migrate.upgrade(blank)
    await test_what_the_migrations_make_is_what_the_code_speaks(blank)
    assert await _views(blank) == VIEWS


@pytest.mark.parametrize("calls", [0, 1, 5])
async def test_views_that_a_killed_migration_left_out_are_made_by_the_next_one(
    blank: str, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(views, "name_of", _dying_after(calls + len(VIEWS), views.name_of))
        with pytest.raises(KilledError):
            await migrate.upgrade(blank)
    await migrate.upgrade(blank)
    assert await _views(blank) == VIEWS


async def _views(url: str) -> set[str]:
    return set(await _look(url, lambda connection: inspect(connection).get_view_names()))


async def test_views_show_instants_ids_states_and_names_as_people_read_them(blank: str) -> None:
    await migrate.upgrade(blank)
    async with desk.opened(blank) as opened:
        it = await opened.add(state=State.PENDING_RETRY, queue="línea 😀", wake_at=NOW, fence=3)
        await opened.add(state=State.COMPLETED)
        question = text("select * from deliveries_readable order by id")
        row, ended = await opened.read(lambda connection: connection.execute(question).all())
    assert str(row.id).replace("-", "") == it.hex
    assert str(row.tenant_id).replace("-", "") == builders.TENANT.hex
    assert str(row.wake_at).replace("T", " ").startswith("2026-03-01 12:00:00")
    assert (row.state, ended.state, row.queue, row.fence) == ("pending_retry", "completed", "línea 😀", 3)
    assert (ended.wake_at, row.finished_at, row.dedupe_key) == (None, None, None)


async def test_every_state_has_its_word_in_the_view(blank: str) -> None:
    await migrate.upgrade(blank)
    async with desk.opened(blank) as opened:
        await opened.add_all(*({"state": state} for state in State))
        question = text("select state from deliveries_readable order by id")
        words = await opened.read(lambda connection: list(connection.execute(question).scalars()))
    assert words == [state.word for state in State]


async def test_every_view_can_be_selected_from(blank: str) -> None:
    await migrate.upgrade(blank)
    async with desk.opened(blank) as opened:
        await opened.write(store.switches.throw, "all", off=True, reason="", actor="", now=NOW)
        for name in sorted(VIEWS):
            await opened.read(desk.execute, text(f"select * from {name}"))  # noqa: S608 - ours


def _pretend(url: str, revision: str) -> None:
    said = f"UPDATE campana_schema SET version_num = '{revision}'"  # noqa: S608 - ours
    if not desk.is_file(url):
        databases.ask(url, said)
        return
    with contextlib.closing(sqlite3.connect(str(make_url(url).database))) as connection, connection:
        connection.execute(said)


async def test_code_works_on_the_schema_of_a_newer_version_and_leaves_it_alone(blank: str) -> None:
    await migrate.upgrade(blank)
    _pretend(blank, "9999")
    assert migrate.is_enough(await migrate.current(blank))
    assert (await migrate.upgrade(blank))[0] == "9999"
    assert await migrate.current(blank) == "9999"


def test_no_schema_is_not_enough() -> None:
    assert not migrate.is_enough(None)
