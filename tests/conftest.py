"""Databases for the tests, and laws that hold after each of them.

`--databases` says on which kinds of database the tests run that ask for `database_url`. The servers are started once
a run, in the process that was started by hand; the workers of pytest-xdist find them by their environment and use a
database of their own on each.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from campana.store import migrate
from tests import databases, programs, servers

hypothesis_settings.register_profile("campana", deadline=None)  # a busy machine is no failure
hypothesis_settings.load_profile("campana")

KINDS = pytest.StashKey[list[str]]()
RUNNING = pytest.StashKey[dict[str, servers.Server]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--databases",
        default="sqlite,postgresql,mariadb",
        help="kinds of database to test on, with commas between: sqlite, postgresql, mariadb, mysql, pgbouncer",
    )


def pytest_configure(config: pytest.Config) -> None:
    kinds = [kind.strip() for kind in str(config.getoption("--databases")).split(",")]
    if unknown := set(kinds) - set(programs.KINDS):
        message = f"--databases: expected some of {', '.join(programs.KINDS)}, got {', '.join(sorted(unknown))}"
        raise pytest.UsageError(message)
    config.stash[KINDS] = kinds
    config.stash[RUNNING] = {}
    if _has_workers(config):
        _start(config, kinds)  # now: workers collect by themselves, so nobody tells us what they will need


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    if _is_worker(config) or config.option.collectonly:
        return
    needed = {item.callspec.params.get("database_url") for item in session.items if hasattr(item, "callspec")}
    _start(config, [kind for kind in config.stash[KINDS] if kind in needed])


def pytest_unconfigure(config: pytest.Config) -> None:
    if RUNNING not in config.stash:
        return
    running = config.stash[RUNNING]
    for kind, server in running.items():
        server.dispose()
        del os.environ[programs.variable(kind)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database_url" in metafunc.fixturenames:
        kinds = metafunc.config.stash[KINDS]
        metafunc.parametrize("database_url", kinds, indirect=True, scope="module")


def _has_workers(config: pytest.Config) -> bool:
    return not _is_worker(config) and bool(config.getoption("tx", default=None)) and not config.option.collectonly


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _start(config: pytest.Config, kinds: list[str]) -> None:
    wanted = [kind for kind in kinds if kind in servers.SERVERS and not os.environ.get(programs.variable(kind))]
    if not wanted:
        return
    running = config.stash[RUNNING]
    try:
        for kind in wanted:
            programs.provide(kind)
        running.update({kind: servers.SERVERS[kind]() for kind in wanted})
        with ThreadPoolExecutor() as threads:
            list(threads.map(servers.Server.start, running.values()))
    except programs.UnavailableError as error:
        for kind in list(running):
            running.pop(kind).dispose()
        pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)
    for kind in wanted:
        os.environ[programs.variable(kind)] = running[kind].url


@pytest.fixture(scope="session")
def _own_databases() -> Iterator[dict[str, str]]:
    """The worker's own database on each server, made when first asked for, dropped at the end."""
    made: dict[str, str] = {}
    yield made
    for kind, url in made.items():
        databases.drop_database(os.environ[programs.variable(kind)], databases.database_of(url))


@pytest.fixture(scope="module")
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _own_databases: dict[str, str]) -> str:
    """An empty database of each kind in turn, this module's alone; `tests.databases.clear(url)` takes its rows out."""
    kind: str = request.param
    if kind == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'campana.db'}"
    if kind not in _own_databases:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        name = f"campana_{worker}_{os.getpid()}"
        _own_databases[kind] = databases.create_database(os.environ[programs.variable(kind)], name)
    else:
        databases.empty(_own_databases[kind])
    return _own_databases[kind]


@pytest.fixture(scope="module")
def migrated(database_url: str) -> str:
    """The URL of a database with our tables."""
    # In a thread of its own, so that it does not matter whether somebody runs a loop here.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate.upgrade(database_url)).result()
    return database_url


@pytest.fixture(autouse=True)
def _laws(request: pytest.FixtureRequest) -> None:
    """What must be true after every test. Asked for first, so checked last, when all other fixtures are gone."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("_no_pending_task")


@pytest.fixture
async def _no_pending_task() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = [task for task in asyncio.all_tasks() - before if task is not asyncio.current_task() and not task.done()]
    assert not left, f"the test left tasks pending: {left}"


@pytest.fixture
def root() -> Path:
    """The repository's folder."""
    return programs.ROOT
