"""`desk`: an empty database with our schema, of each kind in turn."""

from collections.abc import AsyncIterator

import pytest

from tests.store import desk as desks


@pytest.fixture
async def desk(migrated: str) -> AsyncIterator[desks.Desk]:
    async with desks.opened(migrated) as opened:
        await opened.write(desks.clear)
        yield opened


@pytest.fixture
def server_desk(desk: desks.Desk) -> desks.Desk:
    """As `desk`, for what only servers have: on a file these tests are not collected."""
    return desk


@pytest.fixture
def session_desk(desk: desks.Desk) -> desks.Desk:
    """As `server_desk`, for what needs a session of its own: behind a pooler these tests are not collected either."""
    return desk


@pytest.fixture
def notice_desk(desk: desks.Desk) -> desks.Desk:
    """As `session_desk`, for what PostgreSQL alone has."""
    return desk


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without = [item for item in items if _kind(item) in _can_not(item)]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


def _can_not(item: pytest.Item) -> set[str]:
    names = getattr(item, "fixturenames", ())
    if "notice_desk" in names:
        return {"sqlite", "pgbouncer", "mariadb", "mysql"}
    if "session_desk" in names:
        return {"sqlite", "pgbouncer"}
    return {"sqlite"} if "server_desk" in names else set()


def _kind(item: pytest.Item) -> str | None:
    kind: str | None = item.callspec.params.get("database_url") if hasattr(item, "callspec") else None
    return kind
