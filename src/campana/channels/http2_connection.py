"""One HTTP/2 connection that many exchanges share: each is bounded, and ends alone wherever the protocol lets it.

The library `h2` knows the protocol's states; what a receiver may cost us is decided here, before it (`http2_frames`).
"""

import asyncio
import contextlib
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from campana.channels.http2_frames import (
    DATA_FRAME,
    GOAWAY_FRAME,
    HEADERS_FRAME,
    LARGEST,
    SETTINGS_FRAME,
    BrokenError,
    Frame,
    Frames,
    HeaderDecoder,
    last_stream,
    without_strange_settings,
)
from campana.channels.http2_stream import Stream, fields
from campana.channels.http_connection import HEAD
from campana.channels.http_message import Request
from campana.domain.ambiguity import Trouble

NOISE = 1_000
"""Frames that bring no answer nearer, between one whole answer and the next."""
_WINDOW = 1_048_576
"""Bytes that may be on their way to us over all streams together; one stream has the protocol's 65,535."""
_PING = b"campana?"


class _Protocol(H2Connection):
    MAX_CLOSED_STREAMS = 256  # each is remembered by the library: 65,536 of them, on a thousand connections, is too much


class Http2Connection(asyncio.Protocol):
    """A connection to a checked address that carries as many exchanges as its peer allows."""

    def __init__(self, *, keepalive: float) -> None:
        """Wait for the transport."""
        self.idle_since = 0.0
        self.opened_at = 0.0
        self.keepalive = keepalive
        self.dead = False
        self.places = 0
        """How many exchanges have a place here, written or not."""
        self.settled: asyncio.Future[bool]
        """Whether the peer has said that it speaks HTTP/2, and how much of it."""
        self._leaving = False
        self._suspect = False
        self._held_up = False
        self._heard_at = 0.0
        self._noise = 0
        self._streams: dict[int, Stream] = {}
        self._frames = Frames()
        self._decoder = HeaderDecoder()
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        # Headers are judged by us, stream by stream: for the library a bad one would end everybody's connection.
        config = H2Configuration(
            validate_inbound_headers=False, normalize_inbound_headers=False,
            validate_outbound_headers=False, normalize_outbound_headers=False,
        )  # fmt: skip
        self._h2 = _Protocol(config)
        self._h2.decoder = self._decoder

    # -- the client's side

    @property
    def open(self) -> bool:
        """Say whether a request may be written: the connection stands and the peer is not leaving."""
        return not (self.dead or self._leaving or self._transport.is_closing())

    @property
    def unsent(self) -> bool:
        """Say whether something that was written has not left yet."""
        return self._transport.get_write_buffer_size() > 0

    @property
    def reusable(self) -> bool:
        """Say whether another exchange may begin here at all, now or when there is a place."""
        return self.open and not self._suspect and not self.unsent

    @property
    def has_room(self) -> bool:
        """Say whether another exchange may begin here now."""
        return self.reusable and self.places < self._h2.remote_settings.max_concurrent_streams

    def place(self, request: Request) -> Stream:
        """Hold a place for this request."""
        self.places += 1
        return Stream(self, request)

    def close(self) -> None:
        """Close at once: what was to be sent or read is either done or given up."""
        self.dead = True
        self._transport.abort()

    # -- the streams' side

    def begin(self, stream: Stream) -> None:
        """Write the stream's request; where the library refuses, nothing of it was written."""
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, fields(stream.request), end_stream=not stream.pending)
        except H2Error as error:
            self._leaving = True
            stream.fail(Trouble.NO_CONNECTION, f"no stream: {error}")
            return
        stream.number = number
        self._streams[number] = stream
        self._pump(stream)
        self._flush()

    def done(self, stream: Stream) -> None:
        """Forget the stream, and tell the peer where it does not know that it has ended."""
        if self._streams.pop(stream.number, None) is None:
            return
        known = self._h2.streams.get(stream.number)
        if self.dead or known is None or known.closed:
            return
        with contextlib.suppress(H2Error):
            self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
        self._flush()

    def leave(self, stream: Stream) -> None:
        """Give the stream's place back; what is under way on it is reset."""
        self.places -= 1
        if stream.number in self._streams:
            self.done(stream)
            if not self.dead:
                # A peer that has gone without a word must not take the next request with it: it is asked first.
                self._suspect = self._heard_at <= stream.asked_at
                with contextlib.suppress(H2Error):
                    self._h2.ping(_PING)
                self._flush()
        if self._leaving and not self.places:
            self.close()

    def _pump(self, stream: Stream) -> None:
        """Write as much of the body as the peer's windows take."""
        while stream.pending and not self._held_up:
            size = min(len(stream.pending), self._h2.local_flow_control_window(stream.number), LARGEST)
            if size <= 0:
                return
            piece, stream.pending = stream.pending[:size], stream.pending[size:]
            self._h2.send_data(stream.number, bytes(piece), end_stream=not stream.pending)
            self._flush()

    def _pump_all(self) -> None:
        for stream in list(self._streams.values()):
            self._pump(stream)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what we take: no pushes, and headers within our bounds."""
        # uvloop's transports are no subclasses of asyncio's, so there is nothing to check.
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self.settled = self._loop.create_future()
        self._h2.local_settings = settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.MAX_CONCURRENT_STREAMS: 100,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEAD,
            },
        )
        # Of no use to us, and some receivers can't bear a setting that is younger than they are.
        del settings[SettingCodes.ENABLE_CONNECT_PROTOCOL]
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Heed what came, frame by frame; what is broken ends the connection and everything on it."""
        if self.dead:
            return
        self._heard_at = self._loop.time()
        self._suspect = False
        try:
            for frame in self._frames.feed(data):
                self._take(frame)
                if self._transport.is_closing():
                    return
        except (BrokenError, H2Error) as error:
            self._break(str(error) or type(error).__name__)
            return
        except Exception as error:  # noqa: BLE001 - whatever bytes do to a library, every exchange has its end
            self._break(f"{type(error).__name__}: {error}")
            return
        self._flush()
        if self._leaving and not self.places:
            self.close()

    def pause_writing(self) -> None:
        """Keep the bodies back while the peer does not read."""
        self._held_up = True

    def resume_writing(self) -> None:
        """Go on with the bodies."""
        self._held_up = False
        if not self.dead:
            self._pump_all()

    def eof_received(self) -> None:
        """Take the other side's end as the end: half-open connections have no use here."""
        self._ended(clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the loss as the end, unless the end came before."""
        self._ended(clean=exc is None)

    def _ended(self, *, clean: bool) -> None:
        self.dead = True
        self._settle(well=False)
        for stream in list(self._streams.values()):
            stream.lost(clean=clean)

    def _break(self, why: str) -> None:
        self.dead = True
        self._settle(well=False)
        for stream in list(self._streams.values()):
            stream.fail(Trouble.UNREADABLE, why)
        self.close()

    def _settle(self, *, well: bool) -> None:
        if not self.settled.done():
            self.settled.set_result(well)

    # -- what frames say

    def _take(self, frame: Frame) -> None:
        if not self.settled.done() and frame.kind != SETTINGS_FRAME:
            raise BrokenError("it does not begin as HTTP/2 does")
        if frame.kind in (DATA_FRAME, HEADERS_FRAME) and frame.stream % 2 == 0:
            raise BrokenError("an answer on a stream of its own")
        self._noise += 1
        if self._noise > NOISE:
            raise BrokenError(f"more than {NOISE} frames that say nothing")
        if frame.kind == GOAWAY_FRAME:
            # The library would take nothing more after it, but what the peer has begun it may still end.
            self._told_to_go(frame)
            return
        self._decoder.is_for_nobody = frame.stream not in self._streams
        raw = without_strange_settings(frame) if frame.kind == SETTINGS_FRAME else frame.raw
        for event in self._h2.receive_data(raw):
            self._heed(event)

    def _told_to_go(self, frame: Frame) -> None:
        last, _ = last_stream(frame)
        self._leaving = True
        for number, stream in list(self._streams.items()):
            if number > last:
                stream.not_taken()

    def _heed(self, event: Event) -> None:
        match event:
            case DataReceived():
                self._data(event)
            case ResponseReceived() | InformationalResponseReceived():
                self._head(event)
            case StreamEnded():
                self._stream_ended(event)
            case StreamReset():
                stream = self._streams.get(event.stream_id)
                if stream is not None:
                    stream.reset(int(event.error_code))
            case WindowUpdated():
                self._pump_all()
            case RemoteSettingsChanged():
                self._settle(well=True)
                self._pump_all()
            case _:
                pass

    def _head(self, event: ResponseReceived | InformationalResponseReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        if isinstance(event, InformationalResponseReceived):
            stream.interim(event.headers)
        else:
            self._noise -= 1
            stream.head(event.headers, self._decoder.lengths, self._decoder.count)

    def _data(self, event: DataReceived) -> None:
        if event.flow_controlled_length:
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            # How many there may be of one answer is the stream's to say.
            self._noise -= 1
            stream.data(event.data)

    def _stream_ended(self, event: StreamEnded) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            self._noise = 0
            stream.end()
