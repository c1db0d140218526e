"""The tick: each second the heartbeat, the time, what is closed, what signs, when to wake. Without a fresh one nothing leaves."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from campana import store
from campana.engine.options import FRESH, Options
from campana.engine.secrets import Keyring
from campana.engine.wakeup import Wakeup
from campana.store.database import Database, Urgency
from campana.store.engines import Board, Chores
from campana.telemetry import Telemetry
from campana.world import JUMP, World

LONGEST_GAP = timedelta(seconds=5)
LARGE_JUMP = 30.0
"""Seconds; a clock that has jumped by more is believed only once it has gone steadily for a while."""
CONFIRMED_AFTER = 5.0


class Tick:
    """What the engine knows of the world, and how old that knowledge is."""

    def __init__(
        self,
        *,
        me: UUID,
        world: World,
        database: Database,
        telemetry: Telemetry,
        wakeup: Wakeup,
        options: Options,
        keyring: Keyring | None = None,
    ) -> None:
        """Know nothing: until the first step, nothing may be sent."""
        self._keyring = keyring
        self._me = me
        self._world = world
        self._database = database
        self._telemetry = telemetry
        self._wakeup = wakeup
        self._options = options
        self._version: int | None = None
        self._began = -FRESH.total_seconds()
        self._answered: float | None = None
        self._parted = world.clock.parted()
        self._rests_until = 0.0
        self._has_jumped = False
        self._watching_since = 0.0
        self.started_at: datetime = world.clock.now()
        self.board = Board(off=frozenset(), suspended=frozenset())
        self.chores = Chores()

    def is_fresh(self) -> bool:
        """Say whether what is known is young enough to send on. Where the wall clock has jumped since, nobody knows its age."""
        clock = self._world.clock
        return clock.steady() - self._began < FRESH.total_seconds() and abs(clock.parted() - self._parted) <= JUMP

    def is_resting(self) -> bool:
        """Say whether the time has just jumped so far that nothing may be ended on the strength of it."""
        return self._world.clock.steady() < self._rests_until

    def has_watched_a_lease(self) -> bool:
        """Say whether the database was seen without a gap for one whole lease, so that others' silence means something."""
        now = self._world.clock.steady()
        is_watching = self._answered is not None and now - self._answered <= LONGEST_GAP.total_seconds()
        return is_watching and now - self._watching_since >= self._options.lease.total_seconds()

    async def step(self, queues: Sequence[str], free: int, version: str) -> None:
        """Beat once; on success everything known is as young as the moment before the question."""
        clock = self._world.clock
        await self._survey()
        asked = clock.steady()
        pulse = await self._database.urgently(
            Urgency.SETTLE,
            store.engines.tick,
            self._me,
            queues,
            now=clock.now(),
            started_at=self.started_at,
            free=free,
            version=version,
        )
        answered = clock.steady()
        if pulse.database_now is not None:
            jump = clock.heed(pulse.database_now, asked, answered)
        else:
            # A file has no clock but this machine's, which is read now, before steady time: so it is not ahead.
            jump = clock.heed(clock.wall(), clock.steady(), clock.steady())
        if pulse.switches_version != self._version:
            board = await self._database.read(store.engines.board)
            self.board = replace(board, off=board.off | self._options.closed)
            self._version = pulse.switches_version
            self._telemetry.emit(logging.INFO, "switches.seen", off=sorted(self.board.off))
        if self._keyring is not None and pulse.secrets_version != self._keyring.version:
            self._keyring.take(await self._database.read(store.secrets.in_force, now=clock.now()), pulse.secrets_version)
        if self._answered is None or answered - self._answered > LONGEST_GAP.total_seconds():
            # From the answer on: a question that hung for a whole lease has watched nothing.
            self._watching_since = answered
        self._answered, self._parted = answered, clock.parted()
        self.chores = pulse.chores
        if jump:
            await self._rest(jump)
        elif not self.is_resting():
            self._began = asked
        if pulse.next_send is not None:
            self._wakeup.ring(pulse.next_send)
        if pulse.next_timer is not None:
            self._wakeup.ring_timer(pulse.next_timer)

    async def _survey(self) -> None:
        """Before the heartbeat that hides it: see whether the world was restored, or stood still."""
        clock = self._world.clock
        silence = None if self._answered is None else clock.steady() - self._answered
        if silence is not None and silence < store.safety.LONG.total_seconds() and not self._has_jumped:
            return
        asked = self._options.hold and silence is None
        why = await self._database.write(store.safety.survey, self._me, now=clock.wall(), asked=asked)
        self._has_jumped = False
        if why is not None:
            self._telemetry.emit(logging.ERROR, "engine.held", reason=why, advice="reconcile, then `campana release`")

    async def _rest(self, jump: float) -> None:
        """After a jump of the time nothing leaves until the next tick, after a large one not before it is confirmed."""
        now, is_large = self._world.clock.steady(), abs(jump) > LARGE_JUMP
        self._telemetry.emit(logging.ERROR if is_large else logging.WARNING, "clock.jumped", seconds=round(jump, 3))
        self._began = -FRESH.total_seconds()
        self._watching_since, self._has_jumped = now, True
        if is_large:
            self._rests_until = now + CONFIRMED_AFTER
            # What is under way here is alive, whatever its lease says of the new time.
            until = self._world.clock.now() + self._options.lease
            await self._database.urgently(Urgency.SETTLE, store.claims.regain, me=self._me, until=until)
