"""An HTTP client for strangers' servers: fast, bounded, and certain about what it has sent.

It exists because the outcome of an attempt rests on one question, whether bytes had left when it failed, and because
its address must be one that was checked. So it never follows, never retries, never decompresses, knows no proxies, and
asks its `permit` when the connection stands and nothing is written yet. Over TLS it speaks HTTP/2 where the receiver does.
"""

import asyncio
import ssl
from dataclasses import dataclass

from campana.channels import http_dialer, netguard
from campana.channels.base import Permit
from campana.channels.http2_connection import Http2Connection
from campana.channels.http2_stream import Stream
from campana.channels.http_connection import Connection
from campana.channels.http_message import Failure, Request, Response, UnsendableError, encode
from campana.channels.http_pool import Host, Pool
from campana.domain.ambiguity import Trouble
from campana.domain.outcomes import Withheld

__all__ = ["Client", "Failure", "Request", "Response", "UnsendableError"]

Origin = tuple[str, str, int]

_WITHHELD = Withheld()
_NO_PLACE = Failure(trouble=Trouble.NO_CONNECTION, detail="the receiver takes no requests now")


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
        self._names = http_dialer.Names(rules, resolver=resolver, ttl=dns_ttl)
        self._dialer = http_dialer.Dialer(self._names, context=context or http_dialer.tls(), keepalive=keepalive)
        self._per_host = per_host
        self._pool = Pool(max_idle=max_idle, keepalive=keepalive)
        self._hosts = self._pool.hosts
        self._dials: set[asyncio.Task[Failure | None]] = set()
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
                return await self._send(request, wire, permit, connect_timeout, attempt)
        except TimeoutError:
            if not limit.expired():
                raise
        return _late(attempt, request.url, timeout)

    async def close(self) -> None:
        """Close the idle connections and stop what runs by itself."""
        self._closed = True
        for task in self._dials:
            task.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        self._pool.close()
        await self._names.close()

    async def _send(
        self, request: Request, wire: bytes, permit: Permit, connect_timeout: float, attempt: _Attempt
    ) -> Response | Failure | Withheld:
        loop = asyncio.get_running_loop()
        url = request.url
        origin = (url.scheme, url.host, url.port)
        host = self._hosts.get(origin)
        if host is None:
            host = self._hosts[origin] = Host(self._per_host)
        if host.free:
            host.free -= 1
        else:
            await self._wait(host, origin, loop)
        used = None
        try:
            used = self._pool.take(host, request, loop.time())
            if used is None:
                attempt.connecting = True
                opened = await self._open(host, origin, request, connect_timeout)
                attempt.connecting = False
                if isinstance(opened, Failure):
                    return opened
                used = opened
            return await _exchange(used, wire, permit, loop, attempt)
        finally:
            self._give_back(host, origin, used, loop)

    async def _open(self, host: Host, origin: Origin, request: Request, connect_timeout: float) -> Connection | Stream | Failure:
        loop = asyncio.get_running_loop()
        while request.url.scheme == "https" and host.shares is not False:
            # One handshake for all who may share what comes of it; the first one finds out if they may.
            if host.dial is None:
                host.dial = loop.create_task(self._dial(host, origin, request.url, connect_timeout))
                self._dials.add(host.dial)
                host.dial.add_done_callback(self._dials.discard)
            failure = await asyncio.shield(host.dial)
            if failure is not None:
                return failure
            taken = self._pool.take(host, request, loop.time())
            if taken is not None:
                return taken
        opened = await self._dialer.open(request.url, connect_timeout)
        if isinstance(opened, Http2Connection):
            # It spoke HTTP/1.1 a moment ago.
            host.shares = True
            self._pool.add(host, opened, loop, awaited=True)
            return self._pool.take(host, request, loop.time()) or _NO_PLACE
        return opened

    async def _dial(self, host: Host, origin: Origin, url: netguard.Url, connect_timeout: float) -> Failure | None:
        """Make a connection and put it where all who wait for it can take it."""
        try:
            opened = await self._dialer.open(url, connect_timeout)
            if isinstance(opened, Failure):
                return opened
            host.shares = isinstance(opened, Http2Connection)
            if isinstance(opened, Http2Connection) and not opened.has_room:
                opened.close()
                return _NO_PLACE
            self._pool.add(host, opened, asyncio.get_running_loop(), awaited=True)
            return None
        finally:
            host.dial = None
            if host.unused:
                self._hosts.pop(origin, None)

    async def _wait(self, host: Host, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
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

    def _give_back(self, host: Host, origin: Origin, used: Connection | Stream | None, loop: asyncio.AbstractEventLoop) -> None:
        if used is not None:
            self._pool.give_back(host, used, loop)
        host.leave()
        if host.unused:
            self._hosts.pop(origin, None)


async def _exchange(
    connection: Connection | Stream, wire: bytes, permit: Permit, loop: asyncio.AbstractEventLoop, attempt: _Attempt
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
