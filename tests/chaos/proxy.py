"""A proxy before the database: it cuts connections, and swallows COMMITs or the answers to them."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from contextlib import suppress

# A COMMIT is sent alone, in one write: PostgreSQL's simple query, MySQL's COM_QUERY.
_COMMIT = re.compile(rb"(Q....|...\x00\x03)COMMIT;?\x00?", re.DOTALL | re.IGNORECASE)


def is_commit(chunk: bytes) -> bool:
    """Say whether these bytes of a client ask for a commit."""
    return _COMMIT.fullmatch(chunk) is not None


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.is_swallowing = False

    def cut(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """Listens on a port of its own and passes everything on, but for what it is told to spoil."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._orders: deque[bool] = deque()
        self._links: set[_Link] = set()
        self._meetings: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.swallowed = 0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._keep_meeting, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def swallow(self, *, lands: bool) -> None:
        """The next COMMIT is not answered and its connection ends; it reaches the database only if it `lands`."""
        self._orders.append(lands)

    def cut(self) -> None:
        """No connection is left; new ones are taken."""
        for link in list(self._links):
            link.cut()

    async def close(self) -> None:
        """Nobody is met any more, and every connection has ended."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._meetings)

    def _keep_meeting(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        meeting = asyncio.create_task(self._meet(reader, writer))
        self._meetings.add(meeting)
        meeting.add_done_callback(self._meetings.discard)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, server = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, server)
        self._links.add(link)
        try:
            await asyncio.gather(self._carry_questions(reader, link), self._carry_answers(answers, link))
        finally:
            link.cut()
            self._links.discard(link)

    async def _carry_questions(self, reader: asyncio.StreamReader, link: _Link) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if self._orders and not link.is_swallowing and is_commit(chunk):
                    self.swallowed += 1
                    link.is_swallowing = True
                    if not self._orders.popleft():
                        break
                link.server.write(chunk)
                await link.server.drain()
        link.server.close()
        if link.is_swallowing:
            link.client.transport.abort()

    async def _carry_answers(self, reader: asyncio.StreamReader, link: _Link) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if link.is_swallowing:
                    break
                link.client.write(chunk)
                await link.client.drain()
        link.cut()
