"""One connection fed by hand: the answer does not depend on how the wire cut it, and no bytes break it."""

import asyncio
import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from campana.channels.http_connection import Connection
from campana.channels.http_message import KEPT, Failure, Response
from tests.channels.hostile import OK

PLAIN = {
    "a length": OK,
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n",
    "no length": b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nhello",
    "an interim answer": b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n" + OK,
    "no body": b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n",
    "an early end": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc",
    "garbage": b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
}


class Wire(asyncio.Transport):
    """A transport that only remembers what was done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True


def answer(pieces: list[bytes], *, clean: bool = True) -> tuple[Response | Failure, bool]:
    """Return what these pieces and then the end of the connection come to, and if it was usable before that end."""
    loop = asyncio.new_event_loop()
    try:
        connection, wire = Connection(keepalive=30.0), Wire()
        connection.connection_made(wire)
        future = connection.ask(b"request", loop)
        for piece in pieces:
            if not wire.aborted:
                connection.data_received(piece)
        if future.done():
            connection.taken()
        usable = connection.reusable
        connection.connection_lost(None if clean else ConnectionResetError())
        return future.result(), usable
    finally:
        loop.close()


@given(st.sampled_from(sorted(PLAIN)), st.lists(st.integers(1, 80), max_size=12))
def test_an_answer_is_the_same_however_it_arrives(kind: str, cuts: list[int]) -> None:
    wire = PLAIN[kind]
    places = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    pieces = [wire[start:end] for start, end in itertools.pairwise(places)]
    assert answer(pieces)[0] == answer([wire])[0] == answer([bytes([byte]) for byte in wire])[0]


HTTP = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.0 500 X\r\n", b"HTTP/1.1 101 S\r\n", b"\r\n"),
        *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"abc", b"3\r\n"),
        *(b"0\r\n\r\n", b"X: " + b"y" * 40_000, b"z" * 70_000, b"\0", b"Upgrade: x\r\nConnection: upgrade\r\n"),
    ]
)


@given(st.lists(HTTP | st.binary(max_size=20), max_size=12), st.booleans())
def test_no_bytes_break_a_connection_or_leave_it_without_an_answer(pieces: list[bytes], clean: bool) -> None:
    got, _ = answer(pieces, clean=clean)
    assert isinstance(got, Response | Failure)
    found = got if isinstance(got, Response) else got.response
    if found is not None:
        assert 200 <= found.status < 600
        assert len(found.body) <= KEPT


def test_only_a_connection_in_step_is_usable_again() -> None:
    usable = {kind: answer([wire])[1] for kind, wire in PLAIN.items()}
    assert [kind for kind, again in usable.items() if again] == ["a length", "chunks", "an interim answer", "no body"]
    assert not answer([OK + b"x"])[1]
    assert not answer([OK, b"x"])[1]
