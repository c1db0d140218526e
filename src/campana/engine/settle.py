"""Settle: outcomes are written in groups, and kept in memory for as long as the database is away."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from campana import store
from campana.domain import deliveries as model
from campana.domain import outcomes
from campana.domain.deliveries import State
from campana.domain.tickets import Settlement
from campana.engine.options import Options
from campana.engine.wakeup import Wakeup
from campana.errors import UnavailableError
from campana.store.database import Database, Urgency
from campana.store.settlements import Applied, Settled
from campana.telemetry import Telemetry
from campana.world import World

LEVELS = {
    State.COMPLETED: (logging.INFO, "delivery.completed"),
    State.IN_PROGRESS: (logging.INFO, "delivery.accepted"),
    State.PENDING_RETRY: (logging.WARNING, "delivery.retry"),
    State.DEAD_LETTER: (logging.ERROR, "delivery.dead_letter"),
    State.DECLINED: (logging.INFO, "delivery.declined"),
    State.SKIPPED: (logging.INFO, "delivery.skipped"),
    State.CANCELLED: (logging.INFO, "delivery.cancelled"),
    State.SCHEDULED: (logging.DEBUG, "delivery.deferred"),
    # Settled by a transaction whose answer was lost, and claimed again before it was read back.
    State.PROCESSING: (logging.DEBUG, "delivery.moved_on"),
}


class Settler:
    """Collects what became of deliveries and writes it, oldest first."""

    def __init__(self, *, world: World, database: Database, telemetry: Telemetry, wakeup: Wakeup, options: Options) -> None:
        """Hold nothing yet."""
        self._world = world
        self._database = database
        self._telemetry = telemetry
        self._wakeup = wakeup
        self._options = options
        self._waiting: deque[Settlement] = deque()
        self._filled = asyncio.Event()
        self._writing: Sequence[Settlement] = ()

    @property
    def unsettled(self) -> int:
        """How many outcomes are not durable yet."""
        return len(self._waiting) + len(self._writing)

    @property
    def held(self) -> set[tuple[UUID, int]]:
        """Under which claims, by delivery and fence, an end is known here and not durable yet."""
        return {(one.delivery_id, one.fence) for group in (self._writing, self._waiting) for one in group}

    def add(self, settlement: Settlement) -> None:
        """Take an outcome; it is written with the next group."""
        self._waiting.append(settlement)
        self._filled.set()

    async def filled(self) -> None:
        """Return when there is something to write."""
        if not self._waiting:
            self._filled.clear()
            await self._filled.wait()

    async def step(self) -> bool:
        """Write one group; False if the database is away, in which case everything is kept."""
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._options.group))]
        self._writing = group
        try:
            await self._write(group)
        except UnavailableError:
            self._waiting.extendleft(reversed(group))
            return False
        finally:
            self._writing = ()
        return True

    async def _write(self, group: Sequence[Settlement]) -> None:
        if not group:
            return
        try:
            applied = await self._apply(group)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - one outcome that the database refuses must not hold up its neighbours
            await self._narrow(group, error)
            return
        self.report(applied.settled)
        for late in applied.late:
            self._telemetry.emit(logging.DEBUG, "claim.lost", delivery_id=str(late.delivery_id), fence=late.fence)

    async def _narrow(self, group: Sequence[Settlement], error: Exception) -> None:
        if len(group) > 1:
            middle = len(group) // 2
            await self._write(group[:middle])
            await self._write(group[middle:])
            return
        self._telemetry.emit(logging.ERROR, "settle.refused", delivery_id=str(group[0].delivery_id), error=str(error)[:500])
        bare = _bare(group[0])
        if bare == group[0]:
            # Already bare: nothing of ours can be at fault. The lease ends it, as if the worker had died here.
            return
        await self._write([bare])

    async def _apply(self, group: Sequence[Settlement]) -> Applied:
        return await self._database.urgently(Urgency.SETTLE, store.settlements.apply, group, now=self._world.clock.now())

    def report(self, settled: Iterable[Settled]) -> None:
        """Tell of what is durable now, and wake up for what waits again."""
        for one in settled:
            wake = model.wake_at(one.transition)
            if wake is not None and one.state is not State.IN_PROGRESS:
                self._wakeup.ring(wake)
            elif wake is not None:
                self._wakeup.ring_timer(wake)
            level, name = LEVELS[one.state]
            if one.settlement.begins is State.IN_PROGRESS and one.state is State.IN_PROGRESS:
                level, name = logging.DEBUG, "delivery.looked_up"
            elif one.settlement.attempt is None and one.settlement.found is None and one.state is State.PENDING_RETRY:
                level, name = LEVELS[State.SCHEDULED]
            if self._telemetry.is_on(level):
                self._telemetry.emit(level, name, **_fields(one))
            else:
                self._telemetry.counts[name] += 1


def _fields(one: Settled) -> dict[str, object]:
    attempt = one.settlement.attempt
    fields: dict[str, object] = {"delivery_id": str(one.settlement.delivery_id)}
    if attempt is not None:
        fields |= {
            "attempt": attempt.number,
            "max_attempts": one.settlement.max_attempts,
            "outcome": outcomes.name(attempt.outcome),
        }
        if (error := outcomes.error(attempt.outcome)) is not None:
            fields["error"] = error[:500]
    reason = getattr(one.transition, "reason", None)
    if reason is not None:
        fields["reason"] = reason
    return fields


def _bare(settlement: Settlement) -> Settlement:
    attempt = settlement.attempt
    if attempt is None:
        return settlement
    answer = outcomes.Answer(code=attempt.outcome.answer.code)
    bare: outcomes.Outcome = replace(attempt.outcome, answer=answer)
    if not isinstance(bare, outcomes.Delivered | outcomes.Accepted):
        bare = replace(bare, error="details refused by the database")
    return replace(settlement, attempt=replace(attempt, outcome=bare))
