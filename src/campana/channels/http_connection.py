"""One connection: it writes a request, reads one bounded answer, and always knows if it can be used again.

Every end is told apart by what had happened by then, because that is what an attempt's outcome rests on: nothing came
(reset), a part came (truncated), something came that is no HTTP (unreadable), or the deadline did.
"""

import asyncio
import re
from typing import cast

import httptools

from campana.channels.http_message import KEPT, Failure, Response
from campana.domain.ambiguity import Trouble

HEAD = 65_536
HEADERS = 200
INTERIM = 16
"""1xx answers that are put up with before the real one."""
DISCARDED = 1_048_576
"""Bytes that are read past what is kept, so that the connection of a long-winded receiver can be used again."""

_PATIENCE = re.compile(r"\btimeout=([0-9]{1,6})")


class Connection(asyncio.Protocol):
    """A connection to a checked address. Used by one exchange at a time."""

    def __init__(self, *, keepalive: float) -> None:
        """Wait for the transport."""
        self.idle_since = 0.0
        self.opened_at = 0.0
        self.keepalive = keepalive
        self.dead = False
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Response | Failure] | None = None
        self._parser: httptools.HttpResponseParser
        self._forget()

    def _forget(self) -> None:
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._head_size = 0
        self._fed = 0
        self._interim = 0
        self._kept: list[bytes] = []
        self._room = KEPT
        self._truncated = False
        self._complete = False
        self._reading_body = False
        self._trouble = ""

    # -- the client's side

    @property
    def ready(self) -> bool:
        """Say whether a request may be written: the connection stands and no exchange is under way."""
        transport = self._transport
        return not self.dead and self._answer is None and transport is not None and not transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Say whether another exchange may follow: the last one is over on both sides and nothing is unsent."""
        return self.ready and self._transport is not None and self._transport.get_write_buffer_size() == 0

    def ask(self, wire: bytes, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Response | Failure]:
        """Write the request; the future always gets a value. Only for a connection that is not dead."""
        if self._transport is None or self._answer is not None:
            raise RuntimeError("the connection is not ready for a request")
        self._forget()
        self._parser = httptools.HttpResponseParser(self)
        self._answer = loop.create_future()
        self._transport.write(wire)
        return self._answer

    def interrupted(self) -> Response | Failure | None:
        """Say how the exchange stands at this moment; None where nothing was asked or the answer was already taken."""
        answer = self._answer
        if answer is None or self._transport is None:
            return None
        if answer.done() and not answer.cancelled():
            return answer.result()
        if self._transport.get_write_buffer_size():
            return Failure(trouble=Trouble.WRITE_TIMEOUT, detail="", response=self._part())
        return Failure(trouble=Trouble.READ_TIMEOUT, detail="", response=self._part())

    def taken(self) -> None:
        """Note that the answer is read: the connection is idle again."""
        self._answer = None

    def close(self) -> None:
        """Close at once: what was to be sent or read is either done or given up."""
        self.dead = True
        if self._transport is not None:
            self._transport.abort()

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are no subclasses of asyncio's, so there is nothing to check.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, within bounds."""
        if self._answer is None or self._answer.done():
            # Nobody asked: a farewell such as 408, or the start of a smuggled answer to the next request.
            self.close()
            return
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._trouble = "the receiver switched protocols"
        except httptools.HttpParserError as error:
            # After the end of the answer it is none of its business; before, there is no answer.
            self.dead = True
            if not self._complete:
                self._trouble = self._trouble or str(error) or "no HTTP"
        if self._trouble:
            self._fail(Trouble.UNREADABLE, self._trouble)
        elif self._complete:
            self._succeed()
        elif not self._reading_body:
            if self._fed > HEAD:
                self._fail(Trouble.UNREADABLE, f"more than {HEAD} bytes of headers")
        elif self._fed > HEAD + KEPT + DISCARDED:
            self._truncated = True
            self.close()
            self._succeed()

    def eof_received(self) -> None:
        """Take the other side's end as the end: half-open connections have no use here."""
        self._ended(clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the loss as the end, unless the end came before."""
        self._ended(clean=exc is None)

    def _ended(self, *, clean: bool) -> None:
        self.dead = True
        if self._answer is None or self._answer.done():
            return
        if not self._fed:
            self._fail(Trouble.RESET, "closed before an answer" if clean else "reset before an answer")
        elif clean and self._reading_body and self._ends_with_the_connection():
            self._succeed()
        else:
            self._fail(Trouble.TRUNCATED, "closed in its middle" if clean else "reset in its middle")

    def _ends_with_the_connection(self) -> bool:
        for name, value in self._headers:
            if name == "content-length" or (name == "transfer-encoding" and "chunked" in value.lower()):
                return False
        return True

    # -- the parser's side

    def on_message_begin(self) -> None:
        """Start anew after a 1xx answer; after the real one nothing more may come."""
        if self._complete:
            self.dead = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes after the body (a trailer) is only weighed."""
        self._head_size += len(name) + len(value) + 4
        if self._complete or self._reading_body:
            return
        if self._head_size > HEAD or len(self._headers) >= HEADERS:
            self._trouble = f"more than {HEADERS} headers or {HEAD} bytes of them"
            return
        header = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers.append(header)
        if header[0] == "keep-alive" and (told := _PATIENCE.search(header[1])):
            # A second before it: whoever closes first decides if the next request is certain.
            self.keepalive = min(self.keepalive, int(told[1]) - 1.0)

    def on_headers_complete(self) -> None:
        """Take the status, if it is one."""
        if self._complete:
            return
        status = self._parser.get_status_code()
        if not 100 <= status <= 599 or self._parser.get_http_version() not in ("1.0", "1.1"):  # noqa: PLR2004 - the statuses that there are
            # Nothing of it is kept as evidence: a status that is none would be believed further on.
            self._trouble = self._trouble or "no HTTP/1.1 answer"
            return
        self._status = status
        self._reading_body = status >= 200  # noqa: PLR2004 - an interim answer has no body

    def on_body(self, body: bytes) -> None:
        """Keep the body up to the cap."""
        if self._room <= 0:
            self._truncated = True
            return
        if len(body) > self._room:
            self._truncated = True
            body = body[: self._room]
        self._room -= len(body)
        self._kept.append(body)

    def on_message_complete(self) -> None:
        """End the exchange, or go on after an interim answer."""
        if self._complete:
            return
        if self._status < 200:  # noqa: PLR2004 - an interim answer
            self._interim += 1
            if self._interim > INTERIM:
                self._trouble = f"more than {INTERIM} interim answers"
            self._headers = []
            return
        self._complete = True
        if not self._parser.should_keep_alive():
            self.dead = True

    # -- ends

    def _part(self) -> Response | None:
        if not self._reading_body:
            return None
        return Response(
            status=self._status,
            headers=tuple(self._headers),
            body=b"".join(self._kept),
            truncated=self._truncated or not self._complete,
        )

    def _succeed(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(
                Response(
                    status=self._status,
                    headers=tuple(self._headers),
                    body=b"".join(self._kept),
                    truncated=self._truncated,
                )
            )

    def _fail(self, trouble: Trouble, detail: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Failure(trouble=trouble, detail=detail, response=self._part()))
        self.close()
