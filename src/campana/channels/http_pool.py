"""The connections to one origin: who may use it at once, who waits, what is idle, and what is shared."""

import asyncio
from collections import deque

from campana.channels.http2_connection import Http2Connection
from campana.channels.http2_stream import Stream
from campana.channels.http_connection import Connection
from campana.channels.http_message import Failure, Request

OLDEST = 600.0
"""Seconds after which a connection is not used again, so that a receiver that moves is followed."""


class Host:
    """One origin: who may use it at once, who waits (first come, first served), and its connections."""

    __slots__ = ("dial", "free", "idle", "limit", "shared", "shares", "waiters")

    def __init__(self, limit: int) -> None:
        """Begin with every slot free and no connection."""
        self.limit = limit
        self.free = limit
        self.idle: list[Connection] = []
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.shared: list[Http2Connection] = []
        self.shares: bool | None = None
        """Whether the origin speaks HTTP/2; None until it has been asked."""
        self.dial: asyncio.Task[Failure | None] | None = None
        """The one connection that is being made for all who could share it."""

    def leave(self) -> None:
        """Hand a slot on, or have it free."""
        for waiter in self.waiters:
            if not waiter.done():
                self.waiters.remove(waiter)
                waiter.set_result(None)
                return
        self.free += 1

    @property
    def unused(self) -> bool:
        """Say whether nothing would be lost by forgetting this origin."""
        return self.free == self.limit and not (self.idle or self.waiters or self.shared or self.dial)


class Pool:
    """All origins' connections, and how many of them are idle. It opens nothing itself."""

    def __init__(self, *, max_idle: int, keepalive: float) -> None:
        """Keep the bounds."""
        self.hosts: dict[tuple[str, str, int], Host] = {}
        self.idle = 0
        self._max_idle = max_idle
        self._sweep_every = keepalive / 4
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, host: Host, request: Request, now: float) -> Connection | Stream | None:
        """Return an idle connection, or a place on a shared one; None where one has to be made."""
        while host.idle:
            connection = host.idle.pop()
            self.idle -= 1
            if _is_fresh(connection, now):
                return connection
            connection.close()
        for shared in host.shared:
            if shared.has_room and _is_fresh(shared, now):
                if not shared.places:
                    self.idle -= 1
                return shared.place(request)
        return None

    def add(
        self,
        host: Host,
        connection: Connection | Http2Connection,
        loop: asyncio.AbstractEventLoop,
        *,
        awaited: bool = False,
    ) -> None:
        """Keep a connection that nobody uses at this moment, if there is room for it (or somebody waits) and it stands."""
        stands = connection.reusable if isinstance(connection, Connection) else connection.open
        if not stands or self._closed or (self.idle >= self._max_idle and not awaited):
            connection.close()
            return
        connection.idle_since = loop.time()
        if isinstance(connection, Connection):
            host.idle.append(connection)
        else:
            host.shared.append(connection)
        self.idle += 1
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._sweep_every, self._sweep, loop)

    def give_back(self, host: Host, used: Connection | Stream, loop: asyncio.AbstractEventLoop) -> None:
        """Take a connection, or a place on one, out of use."""
        if isinstance(used, Connection):
            self.add(host, used, loop)
            return
        used.close()
        emptied = [shared for shared in host.shared if used.carrier == shared and not shared.places]
        for shared in emptied:
            host.shared.remove(shared)
            self.add(host, shared, loop)

    def close(self) -> None:
        """Close what is idle and stop what runs by itself."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for host in self.hosts.values():
            idle: list[Connection | Http2Connection] = [*host.idle, *host.shared]
            for connection in idle:
                connection.close()
            host.idle.clear()
            host.shared.clear()
        self.idle = 0

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for origin, host in list(self.hosts.items()):
            host.idle = [connection for connection in host.idle if self._keeps(connection, now)]
            host.shared = [shared for shared in host.shared if shared.places or self._keeps(shared, now)]
            if host.unused:
                del self.hosts[origin]
        self._sweeper = loop.call_later(self._sweep_every, self._sweep, loop) if self.idle else None

    def _keeps(self, connection: Connection | Http2Connection, now: float) -> bool:
        if _is_fresh(connection, now):
            return True
        connection.close()
        self.idle -= 1
        return False


def _is_fresh(connection: Connection | Http2Connection, now: float) -> bool:
    if not connection.reusable or now - connection.opened_at >= OLDEST:
        return False
    is_used = isinstance(connection, Http2Connection) and connection.places
    return bool(is_used) or now - connection.idle_since < connection.keepalive
