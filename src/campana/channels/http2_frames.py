"""The frames of an HTTP/2 connection as they come: each is weighed before anything of it is decoded.

The library that decodes them waits for a frame's end before it looks at its length, and keeps every setting that it is
told of. So frames are cut here, and what is too large, too many or of no use to us does not reach it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hpack import Decoder, HeaderTuple

from campana.channels.http_connection import HEAD, HEADERS

LARGEST = 16_384
"""The payload that a frame may have, unless we had allowed more."""
BLOCK_FRAMES = 32
"""Frames that one block of headers may be cut into."""

DATA_FRAME = 0x0
HEADERS_FRAME = 0x1
SETTINGS_FRAME = 0x4
GOAWAY_FRAME = 0x7
CONTINUATION_FRAME = 0x9

_HEADER = 9
_SETTING = 6
_ACK = 0x1
_KNOWN_SETTINGS = frozenset({1, 2, 3, 4, 5, 6})
_LENGTH = b"content-length"


class BrokenError(Exception):
    """What came is not HTTP/2, or more of it than is put up with."""


@dataclass(slots=True)
class Frame:
    """One frame, whole."""

    kind: int
    flags: int
    stream: int
    raw: bytes

    @property
    def payload(self) -> bytes:
        return self.raw[_HEADER:]


class Frames:
    """Cuts a stream of bytes into frames; keeps no more than one of them."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._rest = b""
        self._block = 0
        self._pieces = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the frames that are complete with these bytes; a BrokenError where one is too large."""
        rest = self._rest + data if self._rest else data
        self._rest = b""
        place, end = 0, len(rest)
        while end - place >= _HEADER:
            length = int.from_bytes(rest[place : place + 3])
            kind, flags = rest[place + 3], rest[place + 4]
            if length > LARGEST:
                raise BrokenError(f"a frame of {length} bytes")
            if kind in (HEADERS_FRAME, CONTINUATION_FRAME):
                self._weigh(kind, length)
            if end - place < _HEADER + length:
                self._unweigh(kind, length)
                break
            stream = int.from_bytes(rest[place + 5 : place + _HEADER]) & 0x7FFF_FFFF
            yield Frame(kind, flags, stream, rest[place : place + _HEADER + length])
            place += _HEADER + length
        self._rest = rest[place:]

    def _weigh(self, kind: int, length: int) -> None:
        if kind == HEADERS_FRAME:
            self._block = self._pieces = 0
        self._block += length
        self._pieces += 1
        if self._block > HEAD or self._pieces > BLOCK_FRAMES:
            raise BrokenError(f"more than {HEAD} bytes or {BLOCK_FRAMES} frames of headers")

    def _unweigh(self, kind: int, length: int) -> None:
        # The rest of the frame is still to come, and then it is weighed again.
        if kind in (HEADERS_FRAME, CONTINUATION_FRAME):
            self._block -= length
            self._pieces -= 1


def without_strange_settings(frame: Frame) -> bytes:
    """Return the frame with only the settings that mean something to us: others would be kept for nothing."""
    payload = frame.payload
    if frame.flags & _ACK or len(payload) % _SETTING:
        return frame.raw
    pairs = (payload[start : start + _SETTING] for start in range(0, len(payload), _SETTING))
    known = b"".join([pair for pair in pairs if int.from_bytes(pair[:2]) in _KNOWN_SETTINGS])
    return len(known).to_bytes(3) + frame.raw[3:_HEADER] + known


def last_stream(frame: Frame) -> tuple[int, int]:
    """Return the last stream that the receiver may have acted on, and its error code, of a GOAWAY frame."""
    payload = frame.payload
    if len(payload) < 8 or frame.stream:  # noqa: PLR2004 - its two numbers
        raise BrokenError("a GOAWAY frame without its numbers")
    return int.from_bytes(payload[:4]) & 0x7FFF_FFFF, int.from_bytes(payload[4:8])


class HeaderDecoder(Decoder):
    """Decodes headers within our bounds, and keeps the declared lengths to itself.

    Lengths are judged where the answer is: to the library a wrong one is the end of everybody's connection.
    """

    def __init__(self) -> None:
        """Allow as much as HTTP/1.1 may."""
        super().__init__(max_header_list_size=HEAD)
        self.is_for_nobody = False
        """Whether the stream has ended for us: what comes on it is decoded, for the table's sake, and is nothing."""
        self.lengths: list[bytes] = []
        self.count = 0

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:  # noqa: FBT001, FBT002 - the library's signature
        """Return the headers without their lengths."""
        found = list(super().decode(data, raw=raw))
        if self.is_for_nobody:
            # The library takes any late answer on a reset stream but an interim one, which it ends the connection for.
            return [HeaderTuple(b":status", b"200")]
        self.count = len(found)
        self.lengths = [value for name, value in found if name == _LENGTH]
        kept = [header for header in found if header[0] != _LENGTH]
        return kept[:HEADERS]
