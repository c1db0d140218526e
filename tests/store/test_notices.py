"""Notices between processes: heard after a commit elsewhere, and again after the line was cut, even where nobody said so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from campana import world
from campana.store import notices
from campana.store.notices import Notices
from tests import databases
from tests.proxies import Proxy
from tests.store import desk as desks
from tests.store.desk import Desk

LISTENERS = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where query like 'LISTEN%' and datname = current_database() and pid <> pg_backend_pid()"
)


class Ear:
    """Hears notices; `rung` returns with the next one."""

    def __init__(self) -> None:
        self._rung: asyncio.Queue[None] = asyncio.Queue()

    def ring(self) -> None:
        self._rung.put_nowait(None)

    async def rung(self) -> None:
        async with asyncio.timeout(30):
            await self._rung.get()

    def forget(self) -> None:
        while not self._rung.empty():
            self._rung.get_nowait()


@contextlib.asynccontextmanager
async def hearing(url: str) -> AsyncIterator[Ear]:
    """It listens: the first ring, which comes with the connection, is past."""
    ear = Ear()
    task = asyncio.create_task(Notices(url, world.real(), desks.quiet()).listen(ear.ring))
    try:
        await ear.rung()
        yield ear
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def speaking(url: str) -> AsyncIterator[Notices]:
    speaker = Notices(url, world.real(), desks.quiet())
    task = asyncio.create_task(speaker.speak())
    try:
        yield speaker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "AGAIN", 0.2)
    monkeypatch.setattr(notices, "LISTENING", 0.2)


async def test_what_is_due_soon_is_heard_elsewhere(notice_desk: Desk) -> None:
    async with hearing(notice_desk.url) as ear, speaking(notice_desk.url) as speaker:
        speaker.ring(world.real().clock.now())
        await ear.rung()


@pytest.mark.usefixtures("soon")
async def test_a_listener_whose_connection_was_killed_listens_again(notice_desk: Desk) -> None:
    async with hearing(notice_desk.url) as ear, speaking(notice_desk.url) as speaker:
        databases.ask(notice_desk.url, LISTENERS)
        await ear.rung()
        speaker.ring(world.real().clock.now())
        await ear.rung()


@pytest.mark.usefixtures("soon")
async def test_a_listener_whose_line_fell_silent_without_a_word_listens_again(notice_desk: Desk) -> None:
    async with Proxy.before(notice_desk.url) as proxy, hearing(proxy.url) as ear:
        proxy.freeze()
        ear.forget()
        given_up = asyncio.create_task(ear.rung())
        for _ in range(20):
            await world.real().clock.sleep(0.1)
        proxy.thaw()
        await given_up
        ear.forget()
        async with speaking(notice_desk.url) as speaker:
            speaker.ring(world.real().clock.now())
            await ear.rung()
