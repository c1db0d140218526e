"""An HTTP/1.1 client for strangers' servers: fast, bounded, and certain about what it has sent.

It exists because the outcome of an attempt rests on one question, whether bytes had left when it failed, and because
its address must be one that was checked. So it never follows, never retries, never decompresses, knows no proxies, and
asks its `permit` when the connection stands and nothing is written yet.
"""

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass

from campana.channels import http_dialer, netguard
from campana.channels.base import Permit
from campana.channels.http_connection import Connection
from campana.channels.http_message import Failure, Request, Response, UnsendableError, encode
from campana.domain.ambiguity import Trouble
from campana.domain.outcomes import Withheld

__all__ = ["Client", "Failure", "Request", "Response", "UnsendableError"]

Origin = tuple[str, str, int]

_WITHHELD = Withheld()
_OLDEST = 600.0
"""Seconds after which a connection is not used again, so that a receiver that moves is followed."""


class _Host:
    """One origin: who may use it at once, who waits (first come, first served), and the connections that are idle."""

    __slots__ = ("free", "idle", "limit", "waiters")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free = limit
        self.idle: list[Connection] = []
        self.waiters: deque[asyncio.Future[None]] = deque()

    def leave(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                self.waiters.remove(waiter)
                waiter.set_result(None)
                return
        self.free += 1

    @property
    def unused(self) -> bool:
        return self.free == self.limit and not self.idle and not self.waiters


@dataclass(slots=True)
class _Attempt:
    """What is known about a send, for the case that its deadline interrupts it."""

    stood: Response | Failure | None = None
    connecting: bool = False


class Client:
    """Sends requests, at most `per_host` at a time to each origin. Close it when nothing is under way."""

    def __init__(
        self,
        rules: netguard.Rules,
        *,
        per_host: int = 20,
        max_idle: int = 1_000,
        keepalive: float = 30.0,
        dns_ttl: float = 10.0,
        resolver: http_dialer.Resolver = http_dialer.resolve,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Keep the bounds; nothing is opened yet."""
        self._rules = rules
        self._dialer = http_dialer.Dialer(
            rules, resolver=resolver, context=context or http_dialer.tls(), keepalive=keepalive, dns_ttl=dns_ttl
        )
        self._per_host = per_host
        self._max_idle = max_idle
        self._sweep_every = keepalive / 4
        self._hosts: dict[Origin, _Host] = {}
        self._idle = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(
        self,
        request: Request,
        permit: Permit,
        *,
        connect_timeout: float = 5.0,
        timeout: float = 30.0,  # noqa: ASYNC109 - one deadline for everything is the promise
    ) -> Response | Failure | Withheld:
        """Send the request once, if the permit allows it, and return within `timeout` seconds with what came of it."""
        wire = encode(request)
        if self._closed:
            raise RuntimeError("the client is closed")
        attempt, limit = _Attempt(), asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._send(request.url, wire, permit, connect_timeout, attempt)
        except TimeoutError:
            if not limit.expired():
                raise
        return _late(attempt, request.url, timeout)

    async def refusal(self, url: netguard.Url) -> str | None:
        """Resolve the URL's host and return a sentence if it is refused; a name that doesn't resolve is taken."""
        sentence = netguard.url_refusal(url, self._rules)
        if sentence:
            return sentence
        found = await self._dialer.checked(url)
        refused = isinstance(found, Failure) and found.trouble is Trouble.REFUSED_ADDRESS
        return netguard.REFUSED if refused else None

    async def close(self) -> None:
        """Close the idle connections and stop what runs by itself."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for host in self._hosts.values():
            for connection in host.idle:
                connection.close()
            host.idle.clear()
        self._idle = 0
        await self._dialer.close()

    async def _send(
        self, url: netguard.Url, wire: bytes, permit: Permit, connect_timeout: float, attempt: _Attempt
    ) -> Response | Failure | Withheld:
        loop = asyncio.get_running_loop()
        origin = (url.scheme, url.host, url.port)
        host = self._hosts.get(origin)
        if host is None:
            host = self._hosts[origin] = _Host(self._per_host)
        if host.free:
            host.free -= 1
        else:
            await self._wait(host, origin, loop)
        connection = None
        try:
            connection = self._take_idle(host, loop.time())
            if connection is None:
                attempt.connecting = True
                opened = await self._dialer.open(url, connect_timeout)
                attempt.connecting = False
                if isinstance(opened, Failure):
                    return opened
                connection = opened
            return await _exchange(connection, wire, permit, loop, attempt)
        finally:
            self._give_back(host, origin, connection, loop)

    async def _wait(self, host: _Host, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        waiter = loop.create_future()
        host.waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                host.waiters.remove(waiter)
            else:
                # The slot came in the same moment: the next one has it.
                self._give_back(host, origin, None, loop)
            raise

    def _take_idle(self, host: _Host, now: float) -> Connection | None:
        while host.idle:
            connection = host.idle.pop()
            self._idle -= 1
            if _is_fresh(connection, now):
                return connection
            connection.close()
        return None

    def _give_back(self, host: _Host, origin: Origin, connection: Connection | None, loop: asyncio.AbstractEventLoop) -> None:
        if connection is not None:
            if connection.reusable and self._idle < self._max_idle and not self._closed:
                connection.idle_since = loop.time()
                host.idle.append(connection)
                self._idle += 1
                if self._sweeper is None:
                    self._sweeper = loop.call_later(self._sweep_every, self._sweep, loop)
            else:
                connection.close()
        host.leave()
        if host.unused:
            self._hosts.pop(origin, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for origin, host in list(self._hosts.items()):
            kept = [connection for connection in host.idle if _is_fresh(connection, now)]
            for connection in host.idle:
                if connection not in kept:
                    connection.close()
            self._idle -= len(host.idle) - len(kept)
            host.idle = kept
            if host.unused:
                del self._hosts[origin]
        self._sweeper = loop.call_later(self._sweep_every, self._sweep, loop) if self._idle else None


def _is_fresh(connection: Connection, now: float) -> bool:
    return connection.reusable and now - connection.idle_since < connection.keepalive and now - connection.opened_at < _OLDEST


async def _exchange(
    connection: Connection, wire: bytes, permit: Permit, loop: asyncio.AbstractEventLoop, attempt: _Attempt
) -> Response | Failure | Withheld:
    if not await permit():
        return _WITHHELD
    # No await between this look and the write: a connection that died in the meantime has seen nothing of the request.
    if not connection.ready:
        return Failure(trouble=Trouble.NO_CONNECTION, detail="closed before the request")
    answer = connection.ask(wire, loop)
    try:
        result = await answer
    except asyncio.CancelledError:
        attempt.stood = connection.interrupted()
        raise
    connection.taken()
    return result


def _late(attempt: _Attempt, url: netguard.Url, timeout: float) -> Response | Failure:
    match attempt.stood:
        case Response() as response:
            return response
        case Failure(trouble=trouble, detail=detail, response=part):
            return Failure(trouble=trouble, detail=detail or f"{url.host}, {timeout:g} s in all", response=part)
        case None:
            what = "connecting" if attempt.connecting else "waiting for a connection"
            return Failure(trouble=Trouble.CONNECT_TIMEOUT, detail=f"{url.host}: {timeout:g} s passed {what}")
