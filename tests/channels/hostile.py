"""A server on loopback that does to each connection exactly what a test says."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from campana.channels import http, netguard
from campana.domain.ambiguity import Trouble

LOOPBACK = netguard.Rules(allow=netguard.networks(("127.0.0.0/8",)))

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


SOON = 0.25
"""Seconds after which a server that says nothing has said nothing."""


def trouble(answer: object) -> Trouble:
    """Return the trouble that a failure had."""
    assert isinstance(answer, http.Failure), answer
    return answer.trouble


def response(answer: object) -> http.Response:
    """Return the answer, which is one."""
    assert isinstance(answer, http.Response), answer
    return answer


async def settle() -> None:
    """Let the loop hear what has already happened on the wire."""
    pause = asyncio.get_running_loop().create_future()

    def over() -> None:
        if not pause.done():
            pause.set_result(None)

    asyncio.get_running_loop().call_later(0.02, over)
    await pause


async def yes() -> bool:
    """Let everything out."""
    return True


@dataclass
class Server:
    """What a test sees of its server: where it is, what was asked of it, and how many connections there were."""

    port: int = 0
    scheme: str = "http"
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> netguard.Url:
        return netguard.Url(scheme=self.scheme, host=host, port=self.port, target=path)

    def post(self, path: str = "/", *, host: str = "127.0.0.1", body: bytes = b"{}") -> http.Request:
        return http.Request(method="POST", url=self.url(path, host), body=body)


@dataclass
class Talk:
    """One connection, from the server's side."""

    server: Server
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def request(self) -> bytes:
        """Read one request with its body; IncompleteReadError when the client has gone."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        raw = head + await self.reader.readexactly(length)
        self.server.requests.append(raw)
        return raw

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection by RST, not by FIN."""
        self.writer.transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER, nothing
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass


Script = Callable[[Talk], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(script: Script, context: ssl.SSLContext | None = None, *, port: int = 0) -> AsyncIterator[Server]:
    """Run a server that follows this script on every connection and closes each at the script's end."""
    seen = Server(scheme="https" if context else "http")
    tasks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        number = seen.connections
        try:
            await script(Talk(seen, reader, writer, number))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort() if writer.transport.get_write_buffer_size() == 0 else writer.close()
            seen.closed.put_nowait(number)

    server = await asyncio.start_server(talk, "127.0.0.1", port, ssl=context)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def answering(data: bytes) -> Script:
    """Return a script that answers every request on a connection with these bytes and keeps it open."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.say(data)

    return script


def once(data: bytes) -> Script:
    """Return a script that answers one request with these bytes and closes."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(data)

    return script


async def silent(talk: Talk) -> None:
    """Take the request and never say a word."""
    await talk.request()
    await talk.gone()


@contextlib.asynccontextmanager
async def client(rules: netguard.Rules = LOOPBACK, **options: object) -> AsyncIterator[http.Client]:
    """A client that is closed at the end."""
    made = http.Client(rules, **options)  # type: ignore[arg-type] # the options are the client's own
    try:
        yield made
    finally:
        await made.close()
