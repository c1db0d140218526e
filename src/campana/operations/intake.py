"""Intake: what is asked for at the same moment is made durable by one transaction, and each asker has an answer of their own.

A lone request is written at once. While writes are under way, those that come meanwhile gather, and go together next: under load
a request costs a share of a transaction. What the database refuses is written one by one, so that a bad one harms no neighbour.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from campana import store
from campana.domain.tickets import NewDelivery
from campana.errors import CampanaError
from campana.store.database import Database
from campana.store.deliveries import Entered
from campana.world import Clock

WRITERS = 2
"""Transactions at once: while one waits for the disk another one is made."""
TOGETHER = 500
"""Deliveries in one transaction; one request with more goes whole."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """What one request wants made."""

    new: Sequence[NewDelivery]
    answer: asyncio.Future[Sequence[Entered]]


class Intake:
    """Gathers what is to be made while the writers are busy."""

    def __init__(self, database: Database, clock: Clock, *, together: int = TOGETHER) -> None:
        """Wait for requests."""
        self._together = together
        self._database = database
        self._clock = clock
        self._asked: deque[_Asked] = deque()
        self._writers: set[asyncio.Task[None]] = set()

    async def put(self, new: Sequence[NewDelivery]) -> Sequence[Entered]:
        """Make deliveries of one tenant durable; return where each ended up."""
        asked = _Asked(new=new, answer=asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if len(self._writers) < WRITERS:
            self._writers.add(asyncio.create_task(self._write()))
        # Whoever asked may go away: what was taken in is made all the same.
        return await asyncio.shield(asked.answer)

    async def _write(self) -> None:
        try:
            while self._asked:
                await self._take_in(self._next())
        finally:
            # In the moment in which it looks for the last time: who comes after that finds that a writer is needed.
            self._writers.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _take_in(self, group: Sequence[_Asked]) -> None:
        try:
            await self._write_all(group)
        except CampanaError as error:
            _refuse(group, error)
        except Exception as error:  # noqa: BLE001 - one that the database refuses must not be its neighbours' ruin
            await self._one_by_one(group, error)

    def _next(self) -> list[_Asked]:
        group, size = [self._asked.popleft()], 0
        while self._asked and (size := size + len(group[-1].new)) + len(self._asked[0].new) <= self._together:
            group.append(self._asked.popleft())
        return group

    async def _one_by_one(self, group: Sequence[_Asked], error: Exception) -> None:
        if len(group) == 1:
            _refuse(group, error)
            return
        for asked in group:
            try:
                await self._write_all([asked])
            except Exception as its_own:  # noqa: BLE001 - whose it is hears of it
                _refuse([asked], its_own)

    async def _write_all(self, group: Sequence[_Asked]) -> None:
        new = [one for asked in group for one in asked.new]
        entered = await self._database.write(store.deliveries.enter, new, now=self._clock.now())
        start = 0
        for asked in group:
            if not asked.answer.done():
                asked.answer.set_result(entered[start : start + len(asked.new)])
            start += len(asked.new)


def _refuse(group: Sequence[_Asked], error: Exception) -> None:
    for asked in group:
        if not asked.answer.done():
            asked.answer.set_exception(error)
            asked.answer.exception()  # whoever went away does not leave an error that nobody took
