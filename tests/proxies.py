"""A TCP proxy before a server, which can lose an answer, cut or freeze: what networks do, on demand.

async with proxies.Proxy.before(url) as proxy:
    proxy.next_commit = Commit.SWALLOWED     # it reaches the server, its answer never comes back
    ... connect to proxy.url ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto

from sqlalchemy import make_url

CHUNK = 1 << 16
# As both drivers send it: PostgreSQL's simple query, MySQL's COM_QUERY.
COMMITS = (b"Q\x00\x00\x00\x0cCOMMIT;\x00", b"\x03COMMIT")


class Commit(Enum):
    """What becomes of a COMMIT."""

    PASSED = auto()
    SWALLOWED = auto()
    """The server commits; its answer is dropped and the connection cut."""
    DROPPED = auto()
    """It never reaches the server; the connection is cut."""
    FROZEN = auto()
    """The server commits; from then on nothing comes back, and nobody hangs up."""


class Proxy:
    """Forwards to one server until told otherwise."""

    def __init__(self, url: str) -> None:
        self._server = make_url(url)
        self.url = url
        self.next_commit = Commit.PASSED
        self.commits_lost = 0
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._links: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def before(cls, url: str) -> AsyncIterator[Proxy]:
        """Listening on a loopback port of its own; `url` leads through it."""
        proxy = cls(url)
        listener = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        proxy.url = make_url(url).set(port=port).render_as_string(hide_password=False)
        try:
            yield proxy
        finally:
            listener.close()
            await proxy.cut()

    async def cut(self) -> None:
        """Every connection is gone, at both ends."""
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def freeze(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            await self._link(reader, writer)
        except (asyncio.CancelledError, OSError):
            pass  # cut, or hung up by either end
        finally:
            self._links.discard(link)
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(self._server.host, self._server.port)
        link = _Link(proxy=self)
        tasks = [asyncio.create_task(link.answer(answers, writer)), asyncio.create_task(link.ask(reader, server))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            server.transport.abort()

    def take_fate(self, data: bytes) -> Commit:
        """What becomes of these bytes; a fate is met once."""
        if self.next_commit is Commit.PASSED or not any(commit in data for commit in COMMITS):
            return Commit.PASSED
        fate, self.next_commit = self.next_commit, Commit.PASSED
        self.commits_lost += 1
        return fate

    async def open(self) -> None:
        """Return when nothing is frozen."""
        await self._thawed.wait()


class _Link:
    """One client's connection, and ours to the server."""

    def __init__(self, *, proxy: Proxy) -> None:
        self._proxy = proxy
        self._fate = Commit.PASSED
        self._answered = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._proxy.open()
            if self._fate is Commit.PASSED:
                writer.write(data)
                await writer.drain()
            self._answered.set()

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._proxy.open()
            self._fate = self._proxy.take_fate(data)
            if self._fate is Commit.DROPPED:
                return
            self._answered.clear()
            writer.write(data)
            await writer.drain()
            if self._fate is not Commit.PASSED:
                await self._answered.wait()  # so it is durable
            if self._fate is Commit.SWALLOWED:
                return
