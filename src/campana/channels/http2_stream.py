"""One exchange over a shared HTTP/2 connection: to the client it is what a connection of HTTP/1.1 is."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from hpack import HeaderTuple, NeverIndexedHeaderTuple

from campana.channels.http_connection import DISCARDED, HEADERS, INTERIM
from campana.channels.http_message import KEPT, Failure, Request, Response
from campana.domain.ambiguity import Trouble

PIECES = 2_048
"""DATA frames that an answer may come in; one cut smaller costs more time than it is worth."""

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_STATUS = re.compile(rb"[1-5][0-9]{2}")
_LENGTH = re.compile(rb"[0-9]{1,18}")
# These belong to HTTP/1.1's connections; whoever sends them speaks it underneath, and its framing with it.
_OTHERS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_BODILESS = frozenset({204, 304})
_REFUSED = 0x7
"""The error code by which a receiver says that it has not acted on a request."""


class Carrier(Protocol):
    """What a stream asks of its connection."""

    @property
    def open(self) -> bool:
        """Say whether a request may be written."""

    @property
    def unsent(self) -> bool:
        """Say whether something that was written has not left yet."""

    def begin(self, stream: "Stream") -> None:
        """Write the stream's request; where nothing of it was written the stream has failed."""

    def leave(self, stream: "Stream") -> None:
        """Give the stream's place back; what is under way on it is reset."""

    def done(self, stream: "Stream") -> None:
        """Note that the stream has its end."""


class Stream:
    """A place on a connection, and the one exchange that is made there."""

    __slots__ = (
        "_answer", "_body", "_complete", "_declared", "_headers", "_interim", "_part_came", "_pieces",
        "_room", "_size", "_status", "asked_at", "carrier", "number", "pending", "request",
    )  # fmt: skip

    def __init__(self, carrier: Carrier, request: Request) -> None:
        """Hold a place for this request; nothing is written yet."""
        self.carrier = carrier
        self.request = request
        self.number = 0
        self.pending = memoryview(request.body or b"")
        self.asked_at = 0.0
        self._answer: asyncio.Future[Response | Failure] | None = None
        self._status = 0
        self._headers: tuple[tuple[str, str], ...] = ()
        self._declared: int | None = None
        self._interim = self._pieces = self._size = 0
        self._body: list[bytes] = []
        self._room = KEPT
        self._part_came = self._complete = False

    # -- the client's side

    @property
    def ready(self) -> bool:
        """Say whether the request may be written."""
        return self._answer is None and self.carrier.open

    def ask(self, _wire: bytes, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Response | Failure]:
        """Write the request; the future always gets a value. The wire form of HTTP/1.1 is none of ours."""
        if self._answer is not None:
            raise RuntimeError("the stream has had its request")
        self._answer = loop.create_future()
        self.asked_at = loop.time()
        self.carrier.begin(self)
        return self._answer

    def interrupted(self) -> Response | Failure | None:
        """Say how the exchange stands at this moment; None where nothing was asked."""
        answer = self._answer
        if answer is None:
            return None
        if answer.done() and not answer.cancelled():
            return answer.result()
        stuck = bool(self.pending) or self.carrier.unsent
        return Failure(trouble=Trouble.WRITE_TIMEOUT if stuck else Trouble.READ_TIMEOUT, detail="", response=self._part())

    def taken(self) -> None:
        """Note that the answer is read: nothing is left to say of it."""

    def close(self) -> None:
        """Give the place back, whatever became of the exchange."""
        self.carrier.leave(self)

    # -- the connection's side

    def head(self, headers: Iterable[HeaderTuple | tuple[bytes, bytes]], lengths: Sequence[bytes], count: int) -> None:
        """Take status and headers, if that is what they are."""
        self._part_came = True
        found = [(bytes(name), bytes(value)) for name, value in headers]
        status, rest = found[:1], found[1:]
        if not status or status[0][0] != b":status" or not _STATUS.fullmatch(status[0][1]):
            self.fail(Trouble.UNREADABLE, "no HTTP/2 answer")
        elif count > HEADERS:
            self.fail(Trouble.UNREADABLE, f"more than {HEADERS} headers")
        elif any(not _NAME.fullmatch(name) or _CONTROL.search(value) or name in _OTHERS for name, value in rest):
            self.fail(Trouble.UNREADABLE, "a header that no HTTP/2 answer has")
        elif len(set(lengths)) > 1 or not all(_LENGTH.fullmatch(length) for length in lengths):
            self.fail(Trouble.UNREADABLE, "lengths that can't be read")
        else:
            rest += [(b"content-length", length) for length in lengths]
            self._status = int(status[0][1])
            self._headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in rest)
            self._declared = int(lengths[0]) if lengths and self._status not in _BODILESS else None

    def interim(self, headers: Iterable[HeaderTuple | tuple[bytes, bytes]]) -> None:
        """Put up with an interim answer, for a while."""
        self._part_came = True
        self._interim += 1
        status = next((bytes(value) for name, value in headers if name == b":status"), b"")
        if not _STATUS.fullmatch(status) or status == b"101":
            self.fail(Trouble.UNREADABLE, "no HTTP/2 answer")
        elif self._interim > INTERIM:
            self.fail(Trouble.UNREADABLE, f"more than {INTERIM} interim answers")

    def data(self, data: bytes) -> None:
        """Keep the body up to the cap, and end the exchange where it goes on far beyond."""
        if not self._status:
            self.fail(Trouble.UNREADABLE, "a body without an answer")
            return
        self._size += len(data)
        self._pieces += 1
        if self._room > 0 and data and self._status not in _BODILESS:
            self._body.append(data[: self._room])
            self._room -= len(data)
        if self._size > KEPT + DISCARDED or self._pieces > PIECES:
            self._finish(self._response(truncated=True))

    def end(self) -> None:
        """End the exchange as it was announced, or as something else."""
        if not self._status:
            self.fail(Trouble.UNREADABLE, "an end without an answer")
        elif self._declared is not None and self._size < self._declared:
            self.fail(Trouble.TRUNCATED, f"ended after {self._size} of {self._declared} bytes")
        elif self._declared is not None and self._size > self._declared:
            self.fail(Trouble.UNREADABLE, f"{self._size} bytes where {self._declared} were declared")
        else:
            self._complete = True
            self._finish(self._response(truncated=self._size > KEPT))

    def reset(self, code: int) -> None:
        """Take the receiver's reset as the end: only a refusal, before anything came, says that it has not acted."""
        if self._part_came:
            self.fail(Trouble.TRUNCATED, f"reset in its middle (code {code})")
        elif code == _REFUSED:
            self.fail(Trouble.NOT_TAKEN, "the stream was refused")
        else:
            self.fail(Trouble.RESET, f"reset before an answer (code {code})")

    def not_taken(self) -> None:
        """Take it that the receiver goes and has not looked at this request."""
        if self._part_came:
            self.fail(Trouble.TRUNCATED, "given up in its middle")
        else:
            self.fail(Trouble.NOT_TAKEN, "the receiver closes the connection and did not look at the request")

    def lost(self, *, clean: bool) -> None:
        """Take the connection's end as the end."""
        if self._part_came:
            self.fail(Trouble.TRUNCATED, "closed in its middle" if clean else "reset in its middle")
        else:
            self.fail(Trouble.RESET, "closed before an answer" if clean else "reset before an answer")

    def fail(self, trouble: Trouble, detail: str) -> None:
        """End the exchange without a whole answer."""
        self._finish(Failure(trouble=trouble, detail=detail, response=self._part()))

    def _finish(self, result: Response | Failure) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(result)
        self.carrier.done(self)

    def _part(self) -> Response | None:
        return self._response(truncated=not self._complete) if self._status else None

    def _response(self, *, truncated: bool) -> Response:
        return Response(status=self._status, headers=self._headers, body=b"".join(self._body), truncated=truncated)


def fields(request: Request) -> list[HeaderTuple]:
    """Return the request's headers as HTTP/2 has them. What differs between requests stays out of the shared table."""
    url, body = request.url, request.body
    found: list[HeaderTuple] = [
        NeverIndexedHeaderTuple(b":method", request.method.encode("ascii")),
        HeaderTuple(b":scheme", url.scheme.encode("ascii")),
        HeaderTuple(b":authority", url.authority.encode("ascii")),
        NeverIndexedHeaderTuple(b":path", url.target.encode("ascii")),
        HeaderTuple(b"accept-encoding", b"identity"),
    ]
    for name, value in request.headers:
        # Blanks around a value mean nothing in HTTP/1.1 and are forbidden here.
        found.append(NeverIndexedHeaderTuple(name.lower().encode("ascii"), value.strip(" \t").encode("latin-1")))
    if body is not None:
        found.append(NeverIndexedHeaderTuple(b"content-length", str(len(body)).encode("ascii")))
    return found
