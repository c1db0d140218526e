"""What a bad HTTP/2 server says, byte by byte, and the trouble that each must be told as."""

from collections.abc import Awaitable, Callable

from hpack import Encoder

from campana.domain.ambiguity import Trouble
from tests.channels.hostile import settle
from tests.channels.hostile2 import Peer, Script, frame

Say = Callable[[Peer, int], Awaitable[None]]


def saying(*pieces: bytes) -> Say:
    """Say these bytes, in which a stream of 0xAAAAAAAA is the one that was asked on."""

    async def say(peer: Peer, stream: int) -> None:
        for piece in pieces:
            await peer.raw(piece.replace(b"\xaa" * 4, stream.to_bytes(4)))

    return say


OURS = 0xAAAA_AAAA
END_STREAM, END_HEADERS = 1, 4


def block(*headers: tuple[str, str]) -> bytes:
    """Return headers as they are encoded when nothing was before them, and nothing is remembered of them."""
    # Header by header as never-indexed literals: what a test says must not depend on what was said before.
    return b"".join([Encoder().encode([(name, value)], huffman=False).replace(b"\x40", b"\x00", 1) for name, value in headers])


def head(*headers: tuple[str, str], status: str = "200", flags: int = END_HEADERS) -> bytes:
    return frame(1, flags, OURS, block((":status", status), *headers))


def data(payload: bytes, flags: int = 0) -> bytes:
    return frame(0, flags, OURS, payload)


def rst(code: int) -> bytes:
    return frame(3, 0, OURS, code.to_bytes(4))


def goaway(last: int, code: int = 0) -> bytes:
    return frame(7, 0, 0, last.to_bytes(4) + code.to_bytes(4) + b"because")


def ending(say: Say) -> Script:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        await say(peer, asked.stream)

    return script


def staying(say: Say) -> Script:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        await say(peer, asked.stream)
        await peer.gone()

    return script


async def drip(peer: Peer) -> None:
    asked = await peer.request()
    for byte in head(("content-length", "1000")).replace(b"\xaa" * 4, asked.stream.to_bytes(4)) + bytes(1_000):
        await peer.raw(bytes([byte]))
        await settle()


async def reset_at_once(peer: Peer) -> None:
    await peer.request()
    peer.reset()


async def goes_then_closes(peer: Peer) -> None:
    asked = await peer.request()
    await peer.raw(goaway(asked.stream))


# One header of 4,000 bytes that is remembered, and 60,000 bytes that each stand for it.
_PACKED = b"\x88\x40\x01a\x7f\xa1\x1e" + b"b" * 4_000 + b"\xbe" * 60_000
BOMB = [
    frame(9 if at else 1, END_HEADERS if at + 16_000 > len(_PACKED) else 0, OURS, _PACKED[at : at + 16_000])
    for at in range(0, len(_PACKED), 16_000)
]
_CODES = (*range(7), *range(8, 15), 99)
_STATUSES = ("", "20", "2000", "abc", "1ab", "099", "600", "999", "²00")
_SMALL = frame(9, 0, OURS, b"\x00\x01a\x01b")
ENDS: dict[str, tuple[Script, Trouble]] = {
    "refuses the stream": (staying(saying(rst(7))), Trouble.NOT_TAKEN),
    "goes before it": (staying(saying(goaway(0))), Trouble.NOT_TAKEN),
    "goes before it, with an error": (staying(saying(goaway(0, 11))), Trouble.NOT_TAKEN),
    "goes before it and closes": (ending(saying(goaway(0))), Trouble.NOT_TAKEN),
    "goes after it and closes": (goes_then_closes, Trouble.RESET),
    "goes twice": (staying(saying(goaway(2**31 - 1), goaway(0))), Trouble.NOT_TAKEN),
    "closes without an answer": (ending(saying()), Trouble.RESET),
    "resets the connection": (reset_at_once, Trouble.RESET),
    **{f"resets the stream with code {code}": (staying(saying(rst(code))), Trouble.RESET) for code in _CODES},
    "refuses after it began to answer": (staying(saying(head(), rst(7))), Trouble.TRUNCATED),
    "refuses after an interim answer": (staying(saying(head(status="103"), rst(7))), Trouble.TRUNCATED),
    "resets in the body": (staying(saying(head(), data(b"abc"), rst(2))), Trouble.TRUNCATED),
    "closes in the body": (ending(saying(head(), data(b"abc"))), Trouble.TRUNCATED),
    "goes before what it has begun": (staying(saying(head(), goaway(0))), Trouble.TRUNCATED),
    "closes in a frame": (ending(saying(head()[:-2])), Trouble.RESET),
    "never answers": (staying(saying()), Trouble.READ_TIMEOUT),
    "stops in the headers": (staying(saying(head(flags=0))), Trouble.READ_TIMEOUT),
    "stops in the body": (staying(saying(head(), data(b"abc"))), Trouble.READ_TIMEOUT),
    "stops after an interim answer": (staying(saying(head(status="100"))), Trouble.READ_TIMEOUT),
    "drips": (drip, Trouble.READ_TIMEOUT),
    "sends less than it declared": (staying(saying(head(("content-length", "9")), data(b"abc", END_STREAM))), Trouble.TRUNCATED),
    "declares a body and sends none": (
        staying(saying(head(("content-length", "9"), flags=END_HEADERS | END_STREAM))),
        Trouble.TRUNCATED,
    ),
    "sends more than it declared": (staying(saying(head(("content-length", "2")), data(b"abc", END_STREAM))), Trouble.UNREADABLE),
    "declares two lengths": (
        staying(saying(head(("content-length", "2"), ("content-length", "3")), data(b"abc", END_STREAM))),
        Trouble.UNREADABLE,
    ),
    "declares a length that is none": (staying(saying(head(("content-length", "-3")))), Trouble.UNREADABLE),
    "declares a length beyond numbers": (staying(saying(head(("content-length", "9" * 30)))), Trouble.UNREADABLE),
    **{f"has the status {status!r}": (staying(saying(head(status=status))), Trouble.UNREADABLE) for status in _STATUSES},
    "switches protocols": (staying(saying(head(status="101"))), Trouble.UNREADABLE),
    "has no status": (staying(saying(frame(1, END_HEADERS, OURS, block(("x", "y"))))), Trouble.UNREADABLE),
    "has two statuses": (staying(saying(head((":status", "200")))), Trouble.UNREADABLE),
    "has a request's fields": (staying(saying(head((":path", "/")))), Trouble.UNREADABLE),
    "has a name in capitals": (staying(saying(head(("X-Big", "1")))), Trouble.UNREADABLE),
    "has a name without letters": (staying(saying(head(("", "1")))), Trouble.UNREADABLE),
    "has HTTP/1.1's connection": (staying(saying(head(("connection", "close")))), Trouble.UNREADABLE),
    "has HTTP/1.1's framing": (staying(saying(head(("transfer-encoding", "chunked")))), Trouble.UNREADABLE),
    "has NUL in a header": (staying(saying(head(("x", "a\0b")))), Trouble.UNREADABLE),
    "has a line break in a header": (staying(saying(head(("x", "a\r\nb: c")))), Trouble.UNREADABLE),
    "has 201 headers": (staying(saying(head(*[("x", "y")] * 200))), Trouble.UNREADABLE),
    "has ten thousand headers": (staying(saying(frame(1, END_HEADERS, OURS, b"\x88" * 10_000))), Trouble.UNREADABLE),
    "has a header of a megabyte": (
        staying(saying(frame(1, 0, OURS, b"\x88\x00\x01a" + b"\x7f\x80\x80\x40"), *[frame(9, 0, OURS, b"b" * 16_000)] * 64)),
        Trouble.UNREADABLE,
    ),
    "has headers that unpack to megabytes": (staying(saying(*BOMB)), Trouble.UNREADABLE),
    "has headers without end": (staying(saying(head(flags=0), *[_SMALL] * 100)), Trouble.UNREADABLE),
    "has empty headers without end": (staying(saying(head(flags=0), *[frame(9, 0, OURS)] * 100)), Trouble.UNREADABLE),
    "has headers that are broken": (staying(saying(frame(1, END_HEADERS, OURS, b"\xff" * 20))), Trouble.UNREADABLE),
    "interrupts its headers": (staying(saying(head(flags=0), frame(6, 0, 0, bytes(8)))), Trouble.UNREADABLE),
    "has a body and no headers": (staying(saying(data(b"abc", END_STREAM))), Trouble.UNREADABLE),
    "has 17 interim answers": (staying(saying(*[head(status="103")] * 17)), Trouble.UNREADABLE),
    "ends with an interim answer": (staying(saying(head(status="103", flags=5))), Trouble.UNREADABLE),
    "floods with pings": (staying(saying(frame(6, 0, 0, bytes(8)) * 2_000)), Trouble.UNREADABLE),
    "floods with answers to pings": (staying(saying(frame(6, 1, 0, bytes(8)) * 2_000)), Trouble.UNREADABLE),
    "floods with settings": (staying(saying(frame(4, 0, 0, bytes([0, 4, 0, 0, 9, 9])) * 2_000)), Trouble.UNREADABLE),
    "floods with empty settings": (staying(saying(frame(4, 0, 0) * 2_000)), Trouble.UNREADABLE),
    "floods with window updates": (staying(saying(frame(8, 0, 0, b"\0\0\0\1") * 2_000)), Trouble.UNREADABLE),
    "floods with priorities": (staying(saying(frame(2, 0, OURS, b"\0\0\0\0\1") * 2_000)), Trouble.UNREADABLE),
    "floods with unknown frames": (staying(saying(frame(0xBA, 0, 0, b"what") * 2_000)), Trouble.UNREADABLE),
    "floods with resets of nothing": (staying(saying(frame(3, 0, 0x7FFF_FFF1, bytes(4)) * 2_000)), Trouble.UNREADABLE),
    "floods with farewells": (staying(saying(goaway(2**31 - 1) * 2_000)), Trouble.UNREADABLE),
    "pushes": (
        staying(saying(frame(5, END_HEADERS, OURS, (2).to_bytes(4) + block((":method", "GET"), (":path", "/"))))),
        Trouble.UNREADABLE,
    ),
    "answers what nobody asked": (staying(saying(frame(1, END_HEADERS, 77, block((":status", "200"))))), Trouble.UNREADABLE),
    "answers on a stream of its own": (staying(saying(frame(1, END_HEADERS, 2, block((":status", "200"))))), Trouble.UNREADABLE),
    "sends too large a frame": (staying(saying(frame(0, 0, OURS, bytes(16_385)))), Trouble.UNREADABLE),
    "announces a frame of 16 MB": (staying(saying(b"\xff\xff\xff\0\0" + OURS.to_bytes(4) + bytes(100))), Trouble.UNREADABLE),
    "overflows a window": (staying(saying(frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2)), Trouble.UNREADABLE),
    "talks HTTP/1.1": (staying(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")), Trouble.UNREADABLE),
    "sends a setting that can't be": (staying(saying(frame(4, 0, 0, b"\0\2\0\0\0\7"))), Trouble.UNREADABLE),
    "sends settings that are cut": (staying(saying(frame(4, 0, 0, b"\0\2\0"))), Trouble.UNREADABLE),
    "says farewell in three bytes": (staying(saying(frame(7, 0, 0, b"bye"))), Trouble.UNREADABLE),
    "sends trailers that do not end": (staying(saying(head(), head(("x", "y")))), Trouble.UNREADABLE),
}  # fmt: skip
