"""Quarantine: deliveries that workers died with, and the few of them that may be under way at once.

Most are innocent: their worker was killed, or died of a neighbour. So they go a few together, beside all others. One whose
company died too goes alone, after whoever is in there has come out: then a death is its own.
"""

import asyncio
from uuid import UUID

from campana.domain.tickets import Ticket

COMPANY = 8
"""How many may be under way together."""


class Quarantine:
    """Who is in there, in the order in which they came."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._inside: dict[tuple[UUID, int], bool] = {}
        self._left = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more may come: none while one is alone, or waits to be."""
        return 0 if any(self._inside.values()) else COMPANY - len(self._inside)

    def enter(self, ticket: Ticket) -> None:
        """Let it in; those that go alone come after those that don't."""
        self._inside[ticket.id, ticket.fence] = ticket.goes_alone

    def leave(self, ticket: Ticket) -> None:
        """Let it out."""
        del self._inside[ticket.id, ticket.fence]
        self._left.set()

    async def until_alone(self, ticket: Ticket) -> None:
        """Return when everybody who came before has left, and nobody else comes until it has left too."""
        while next(iter(self._inside)) != (ticket.id, ticket.fence):
            self._left.clear()
            await self._left.wait()
