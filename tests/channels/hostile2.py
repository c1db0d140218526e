"""An HTTP/2 server on loopback that does to each connection exactly what a test says."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamEnded
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from campana.channels import http
from tests.channels import hostile
from tests.channels.authority import Authority
from tests.channels.hostile import LOOPBACK, Server, client

HOST = "hook.example.com"

_Kind = TypeVar("_Kind", bound=Event)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame as it goes over the wire, whatever it says."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


@dataclass
class Asked:
    """One whole request."""

    stream: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Peer:
    """One connection, from the server's side."""

    server: Server
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    h2: H2Connection
    generous: bool = True
    asked: dict[int, Asked] = field(default_factory=dict)
    whole: asyncio.Queue[Asked] = field(default_factory=asyncio.Queue)
    events: list[Event] = field(default_factory=list)

    async def read(self) -> list[Event]:
        """Read once; IncompleteReadError when the client has gone."""
        data = await self.reader.read(65_536)
        if not data:
            raise asyncio.IncompleteReadError(b"", None)
        events = self.h2.receive_data(data)
        for event in events:
            self._heed(event)
        self.events += events
        await self.flush()
        return events

    def _heed(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            headers = {bytes(name).decode(): bytes(value).decode("latin-1") for name, value in event.headers}
            self.asked[event.stream_id] = Asked(event.stream_id, headers, b"")
        elif isinstance(event, DataReceived):
            self.asked[event.stream_id].body += event.data
            if self.generous:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            asked = self.asked[event.stream_id]
            self.server.requests.append(asked.body)
            self.whole.put_nowait(asked)

    async def request(self) -> Asked:
        """Return the next whole request."""
        while self.whole.empty():
            await self.read()
        return self.whole.get_nowait()

    async def heard(self, kind: type[_Kind]) -> _Kind:
        """Return the first event of this kind, which may have come already."""
        while not (found := [event for event in self.events if isinstance(event, kind)]):
            await self.read()
        return found[0]

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def raw(self, data: bytes) -> None:
        """Say bytes that the library would not."""
        await self.flush()
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, stream: int, *headers: tuple[str, str], status: str = "200", end: bool = False) -> None:
        self.h2.send_headers(stream, [(":status", status), *headers], end_stream=end)
        await self.flush()

    async def data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data as fast as the client's windows allow."""
        while True:
            size = min(len(data), self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if size or not data:
                piece, data = data[:size], data[size:]
                self.h2.send_data(stream, piece, end_stream=end and not data)
                await self.flush()
                if not data:
                    return
            else:
                await self.read()

    async def answer(self, stream: int, body: bytes = b"ok", *headers: tuple[str, str], status: str = "200") -> None:
        await self.head(stream, *headers, status=status, end=not body)
        if body:
            await self.data(stream, body, end=True)

    async def gone(self) -> None:
        """Wait until the client has closed."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, H2Error):
            while True:
                await self.read()

    def reset(self) -> None:
        """End the connection by RST, not by FIN."""
        self.writer.transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER, nothing
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(
    script: Script, authority: Authority, *, protocols: Sequence[str] = ("h2",), mute: bool = False, **settings: int
) -> AsyncIterator[Server]:
    """Run a server that follows this script on every connection and closes each at the script's end."""
    context = authority.server(HOST)
    context.set_alpn_protocols(list(protocols))

    async def speak(talk: hostile.Talk) -> None:
        peer = Peer(talk.server, talk.reader, talk.writer, talk.number, _h2())
        if not mute:
            peer.h2.local_settings.update({SettingCodes[name.upper()]: value for name, value in settings.items()})
            peer.h2.local_settings.acknowledge()
            peer.h2.initiate_connection()
            await peer.flush()
        await script(peer)

    async with hostile.serving(speak, context) as seen:
        yield seen


def _h2() -> H2Connection:
    # It must be able to say what no server should.
    return H2Connection(H2Configuration(client_side=False, validate_outbound_headers=False, normalize_outbound_headers=False))


def trusting(authority: Authority) -> ssl.SSLContext:
    """Return a client's context that offers what the product's own does."""
    context = authority.trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@contextlib.asynccontextmanager
async def sending(authority: Authority, **options: object) -> AsyncIterator[http.Client]:
    """A client that trusts the test's authority and finds its name on loopback."""

    async def resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    given: dict[str, object] = {"context": trusting(authority), "resolver": resolver, **options}
    async with client(LOOPBACK, **given) as made:
        yield made


def post(server: Server, path: str = "/", body: bytes = b"{}") -> http.Request:
    return server.post(path, host=HOST, body=body)


async def answering(peer: Peer) -> None:
    """Answer every request and keep the connection open."""
    while True:
        asked = await peer.request()
        await peer.answer(asked.stream)
