"""From a URL to a connection: resolve once, refuse if any address is refused, connect to one that was checked."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv6Address, ip_address

from campana.channels import netguard
from campana.channels.http2_connection import Http2Connection
from campana.channels.http_connection import Connection
from campana.channels.http_message import Failure
from campana.domain.ambiguity import Trouble

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host name and a port to its addresses; raises OSError where there are none."""

_REMEMBERED = 4_096


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the system's addresses for this name, in its order of preference, each once."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def sparing(together: int, most: int) -> Resolver:
    """Return the system's resolver for what can do without: so many names at once, and no more waiting than `most`.

    The threads behind it are few, and whoever has to send is served by the same ones.
    """
    free, waiting = asyncio.Semaphore(together), [0]

    async def resolver(host: str, port: int) -> Sequence[str]:
        if waiting[0] >= most:
            raise OSError("too many names are being looked up")
        waiting[0] += 1
        try:
            async with free:
                return await resolve(host, port)
        finally:
            waiting[0] -= 1

    return resolver


def tls() -> ssl.SSLContext:
    """Return a context that checks names and chains and speaks TLS 1.2 or later."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


class _Chooser(asyncio.Protocol):
    """Becomes what the handshake agreed on, before a byte of it is read."""

    def __init__(self, keepalive: float) -> None:
        self._keepalive = keepalive
        self.chosen: Connection | Http2Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        self.chosen = (Http2Connection if agreed == "h2" else Connection)(keepalive=self._keepalive)
        transport.set_protocol(self.chosen)
        self.chosen.connection_made(transport)


class Names:
    """Finds out where names lead. Remembers it for a few seconds, and asks once for all who wait for it."""

    def __init__(self, rules: netguard.Rules, *, resolver: Resolver = resolve, ttl: float = 10.0) -> None:
        """Keep the rules and the door to the world."""
        self._rules = rules
        self._resolver = resolver
        self._ttl = ttl
        self._known: dict[tuple[str, int], tuple[float, Sequence[str]]] = {}
        self._asking: dict[tuple[str, int], asyncio.Task[Sequence[str]]] = {}

    async def leads_inside(self, url: netguard.Url) -> bool:
        """Say whether the URL is refused, or its name leads to a refused address; one that doesn't resolve leads nowhere."""
        found = await self.checked(url)
        return isinstance(found, Failure) and found.trouble is Trouble.REFUSED_ADDRESS

    async def checked(self, url: netguard.Url) -> Sequence[str] | Failure:
        """Return the addresses of a URL's host if every one of them is allowed."""
        # The answer that is checked here is the one that is connected to: asking twice is how rebinding gets in.
        if netguard.url_refusal(url, self._rules):
            return Failure(trouble=Trouble.REFUSED_ADDRESS, detail=url.host)
        try:
            addresses = await self._addresses(url.host, url.port)
        except (OSError, UnicodeError):
            return Failure(trouble=Trouble.UNRESOLVED, detail=url.host)
        if not addresses:
            return Failure(trouble=Trouble.UNRESOLVED, detail=url.host)
        if any(netguard.refusal(address, url.port, self._rules) for address in addresses):
            return Failure(trouble=Trouble.REFUSED_ADDRESS, detail=url.host)
        return addresses

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        if netguard.literal(host) is not None:
            return (host,)
        key, now = (host, port), asyncio.get_running_loop().time()
        until, addresses = self._known.get(key, (0.0, ()))
        if now < until:
            return addresses
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key))
            # Whoever asked may have left by the time that it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _ask(self, key: tuple[str, int]) -> Sequence[str]:
        try:
            addresses = await self._resolver(*key)
        finally:
            del self._asking[key]
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = (asyncio.get_running_loop().time() + self._ttl, addresses)
        return addresses

    async def close(self) -> None:
        """Stop asking for names."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Dialer:
    """Opens connections, each to an address that was checked."""

    def __init__(self, names: Names, *, context: ssl.SSLContext, keepalive: float) -> None:
        """Keep the doors to the world."""
        self._names = names
        self._context = context
        self._keepalive = keepalive

    async def open(self, url: netguard.Url, within: float) -> Connection | Http2Connection | Failure:
        """Return a connection to an address that was checked, or why there is none; either way nothing was sent."""
        limit = asyncio.timeout(within)
        try:
            async with limit:
                addresses = await self._names.checked(url)
                if isinstance(addresses, Failure):
                    return addresses
                return await self._first(url, addresses, within)
        except TimeoutError:
            if not limit.expired():
                raise
            return Failure(trouble=Trouble.CONNECT_TIMEOUT, detail=f"{url.host} did not connect within {within:g} s")

    async def _first(self, url: netguard.Url, addresses: Sequence[str], within: float) -> Connection | Http2Connection | Failure:
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        failure = Failure(trouble=Trouble.NO_CONNECTION, detail=url.host)
        for place, address in enumerate(addresses):
            # A silent address must leave time for the ones after it.
            share = (end - loop.time()) / (len(addresses) - place)
            try:
                async with asyncio.timeout(share):
                    connection = await self._connect(url, address, loop)
            except ssl.SSLError as error:
                return Failure(trouble=Trouble.TLS, detail=f"{url.host}: {_reason(error)}")
            except TimeoutError:
                failure = Failure(trouble=Trouble.CONNECT_TIMEOUT, detail=f"{url.host} did not answer in time")
            except OSError as error:
                why = error.strerror if error.errno else None
                failure = Failure(trouble=Trouble.NO_CONNECTION, detail=f"{url.host}: {why or 'the connection failed'}")
            else:
                connection.opened_at = loop.time()
                return connection
        return failure

    async def _connect(self, url: netguard.Url, address: str, loop: asyncio.AbstractEventLoop) -> Connection | Http2Connection:
        secure = url.scheme == "https"
        _, made = await loop.create_connection(
            lambda: _Chooser(self._keepalive) if secure else Connection(keepalive=self._keepalive),
            address,
            url.port,
            family=socket.AF_INET6 if isinstance(ip_address(address), IPv6Address) else socket.AF_INET,
            flags=socket.AI_NUMERICHOST,  # whatever happens, no second resolution
            ssl=self._context if secure else None,
            server_hostname=url.host if secure else None,
        )
        if not isinstance(made, _Chooser):
            return made
        if isinstance(made.chosen, Http2Connection):
            await _settled(made.chosen)
        return made.chosen


async def _settled(connection: Http2Connection) -> None:
    """Wait for the peer's first words: only then it is known how much it takes at once, and that it takes anything."""
    try:
        well = await asyncio.shield(connection.settled)
    except asyncio.CancelledError:
        connection.close()
        raise
    if not well:
        raise ConnectionError


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or "the handshake failed").replace("_", " ").lower()
