"""The engine's loop: timers first, then sends, as many as there is room for; between them, exact sleep.

Every step can be cranked by hand: `tick_once`, `pump_once`, `settle_once`, `renew_once`, `release_once`, `bulk.step`.
`run` is the few loops around them. Nothing here decides anything about a delivery: the guards, the channel and the judge do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from campana import store
from campana.channels.base import Channel
from campana.domain import instants, switches
from campana.domain.instants import LAST
from campana.domain.tickets import Settlement, Ticket
from campana.engine.bulk import Bulk
from campana.engine.claim import Claimer
from campana.engine.crowds import disperse
from campana.engine.deliver import Deliverer
from campana.engine.destinations import Destinations
from campana.engine.limits import reserve
from campana.engine.lookups import Lookups
from campana.engine.options import Options
from campana.engine.quarantine import Quarantine
from campana.engine.relay import Relay
from campana.engine.release import release
from campana.engine.secrets import Keyring
from campana.engine.settle import Settler
from campana.engine.sweeps import Sweeper
from campana.engine.tick import Tick
from campana.engine.timers import Timers
from campana.engine.wakeup import Wakeup
from campana.errors import UnavailableError
from campana.store.database import Database
from campana.telemetry import Telemetry
from campana.version import VERSION
from campana.world import World

LONGEST_SLEEP = 1.0
PATIENCE = 0.005
"""How long a claim waits for more free slots, so that it is worth its round trip."""
MOST_UNSETTLED = 2_000
STUBBORN = 2.0
"""Seconds for cancelled work to come to its end."""
HELD_UP = 1.0
UNSERVED_AFTER = timedelta(seconds=30)


class Engine:
    """One process's share of the work. It is known by a random id per start, never by host or process."""

    _is_away = False

    def __init__(
        self,
        *,
        world: World,
        database: Database,
        pulse: Database,
        channels: Mapping[str, Channel],
        queues: Mapping[str, int],
        secret: bytes,
        telemetry: Telemetry,
        options: Options,
        wakeup: Wakeup | None = None,
        keyring: Keyring | None = None,
        owns_file: bool = False,
    ) -> None:
        """Serve these queues, each with so many slots; `pulse` has connections for the heartbeat and the leases alone."""
        self.id: UUID = world.new_id()
        self._world = world
        self._database = database
        self._pulse = pulse
        self._queues = dict(queues)
        self._options = options
        self._telemetry = telemetry
        self._owns_file = owns_file
        self.wakeup = wakeup or Wakeup(world.clock)
        self.tick = Tick(
            me=self.id, world=world, database=pulse, telemetry=telemetry, wakeup=self.wakeup, options=options, keyring=keyring,
        )  # fmt: skip
        self.settler = Settler(world=world, database=database, telemetry=telemetry, wakeup=self.wakeup, options=options)
        self.timers = Timers(
            me=self.id, world=world, database=database, settler=self.settler, channels=channels, telemetry=telemetry,
            options=options,
        )  # fmt: skip
        self.lookups = Lookups(
            world=world,
            database=database,
            settler=self.settler,
            channels=channels,
            secret=secret,
            telemetry=telemetry,
            options=options,
        )
        self.relay = Relay(me=self.id, world=world, database=database, telemetry=telemetry)
        self.sweeper = Sweeper(me=self.id, world=world, database=database, telemetry=telemetry, keep=options.retention)
        self.claimer = Claimer(me=self.id, world=world, options=options, window=database.dialect.fair_window)
        self.destinations = Destinations(me=self.id, world=world, channels=channels, telemetry=telemetry, options=options)
        self.deliverer = Deliverer(
            me=self.id, world=world, tick=self.tick, database=database, channels=channels, destinations=self.destinations,
            secret=secret, telemetry=telemetry, options=options,
        )  # fmt: skip
        self.bulk = Bulk(world=world, database=database, telemetry=telemetry, wakeup=self.wakeup)
        self.quarantine = Quarantine()
        self._busy: dict[tuple[UUID, int], asyncio.Task[None]] = {}
        self._busy_by_queue: dict[str, int] = dict.fromkeys(queues, 0)

    # --- steps

    async def tick_once(self) -> None:
        """Beat, and learn what the world is like."""
        await self.tick.step(tuple(self._queues), self.free, VERSION)

    async def pump_once(self) -> bool:
        """Run the timers that are due, then claim and start what there is room for; True if there may be more at once."""
        more = False
        now = self._world.clock.now()
        if self.wakeup.next_timer <= now and self.tick.is_resting():
            self.wakeup.next_timer = LAST  # the next tick tells it again
        elif self.wakeup.next_timer <= now:
            self.wakeup.next_timer = LAST
            # Known outcomes that wait to be written go first, else their leases would be ended over them; the tick rings again.
            more = not self._is_away and await self._run_timers(now)
        if self.wakeup.next_send <= now and self.can_claim:
            more = await disperse(self._world, self._database, self.destinations, self.claimer, self._queues) > 0 or more
            more = await self._claim() or more
        return more

    async def settle_once(self) -> bool:
        """Write one group of outcomes; False while the database is away."""
        durable = await self.settler.step()
        self._is_away = not durable
        return durable

    async def renew_once(self) -> None:
        """Prolong the leases of what is still under way, or came to an end that is not written yet; of nothing else."""
        held = {delivery for delivery, _ in self._busy.keys() | self.settler.held}
        if held:
            words: dict[str, Any] = {
                "me": self.id,
                "held": sorted(held),
                "now": self._world.clock.now(),
                "lease": self._options.lease,
            }
            await self._pulse.write(store.claims.renew, **words)

    async def release_once(self) -> int:
        """Bring forward what was parked by a scope that is open again."""
        return await release(self._world, self._database, self.tick, self.wakeup)

    async def tell_once(self) -> None:
        """Write to the outbox which receivers began to fail, and which came back."""
        told = self.destinations.told
        batch = [told.popleft() for _ in range(len(told))]
        if batch:
            try:
                await self._database.write(store.events.write, batch)
            except UnavailableError:
                told.extendleft(reversed(batch))
                raise

    async def look_for_unserved_once(self) -> None:
        """Tell of queues in which work is due that nobody serves; of several engines one does."""
        now = self._world.clock.now()
        found = await self._database.read(store.engines.unserved, self.id, now=now, since=now - UNSERVED_AFTER)
        for queue, first in found.items():
            self._telemetry.emit(logging.WARNING, "queue.unserved", queue=queue, due_since=instants.show(first))

    async def _run_timers(self, now: datetime) -> bool:
        may_end_others = self._owns_file or self.tick.has_watched_a_lease()
        more = await self.timers.step(may_end_others=may_end_others, busy=self._busy.keys())
        more = (not self.deliverer.is_stopping and await self.lookups.step()) or more
        if more:
            self.wakeup.ring_timer(now)
        return more

    # --- what may be claimed

    @property
    def free(self) -> int:
        """How many deliveries could be started now."""
        return self._options.in_flight - len(self._busy)

    @property
    def can_claim(self) -> bool:
        """Say whether claiming makes sense: there is room, the world is known, and outcomes find their way out."""
        return (
            self.free > 0
            and not self.deliverer.is_stopping
            and not self._is_away
            and self.tick.is_fresh()
            and self.settler.unsettled < MOST_UNSETTLED
            and switches.ALL not in self.tick.board.off
        )

    async def _claim(self) -> bool:
        clock, options = self._world.clock, self._options
        asked = clock.steady()
        slots = {queue: room - self._busy_by_queue[queue] for queue, room in self._queues_in_turn()}
        wish = self.claimer.wish(slots, free=min(self.free, options.batch), suspects=self.quarantine.room, board=self.tick.board)
        self.wakeup.next_send = LAST
        try:
            claimed = await self._database.claim(wish)
        except BaseException:
            self.wakeup.ring(wish.now)
            raise
        self.claimer.learn(claimed)
        if claimed.following is not None:
            self.wakeup.ring(claimed.following)
        took = clock.steady() - asked
        if took > options.lease.total_seconds() / 3:
            self._telemetry.emit(logging.WARNING, "claim.void", seconds=round(took, 3), count=len(claimed.tickets))
            asked = -options.lease.total_seconds()  # nothing of it may be sent: each is given back
        tickets = await reserve(self._world, self._database, self.deliverer, self.tick.board, claimed.tickets)
        for ticket in sorted(tickets, key=lambda one: one.goes_alone):
            self._start(ticket, asked + options.lease.total_seconds())
        return bool(claimed.tickets)

    def _queues_in_turn(self) -> list[tuple[str, int]]:
        # Another queue comes first with each claim, so that none starves the others of the engine's slots.
        first = next(iter(self._queues))
        self._queues[first] = self._queues.pop(first)
        return list(self._queues.items())

    # --- deliveries under way

    def _start(self, ticket: Ticket, send_until: float) -> None:
        if ticket.is_suspect:
            self.quarantine.enter(ticket)
        self._busy_by_queue[ticket.queue] += 1
        # A row can come back to this engine while an older claim of it still hangs: the fence tells them apart.
        self._busy[ticket.id, ticket.fence] = asyncio.create_task(self._carry(ticket, send_until))

    async def _carry(self, ticket: Ticket, send_until: float) -> None:
        try:
            if self._telemetry.is_on(logging.INFO):
                self._telemetry.emit(logging.INFO, "delivery.processing", delivery_id=str(ticket.id), attempt=ticket.number)
            if ticket.goes_alone:
                await self.quarantine.until_alone(ticket)
                if not await self._database.write(store.claims.start_suspect, ticket.id, ticket.fence):
                    return
            settlement: Settlement = await self.deliverer.deliver(ticket, send_until)
            self.settler.add(settlement)
        except UnavailableError:
            # A suspect whose start can't be written is not sent; its lease ends it, and it counts as nobody's death.
            self._telemetry.emit(logging.WARNING, "delivery.given_up", delivery_id=str(ticket.id))
        except Exception as error:  # noqa: BLE001 - a bug over one delivery is told, and its lease ends it like a lost worker's
            self._telemetry.emit(logging.ERROR, "delivery.bug", delivery_id=str(ticket.id), error=repr(error))
        finally:
            self._finish(ticket)

    def _finish(self, ticket: Ticket) -> None:
        was_full = self._busy_by_queue[ticket.queue] >= self._queues[ticket.queue]
        self._busy_by_queue[ticket.queue] -= 1
        del self._busy[ticket.id, ticket.fence]
        if ticket.is_suspect:
            self.quarantine.leave(ticket)
            was_full = True
        if was_full:
            # What waits for just this room is not in `next_send`.
            self.wakeup.ring(self._world.clock.now())
        if self.free == 1 or self.free >= self._options.batch // 2:
            self.wakeup.nudge()

    # --- running

    async def start(self) -> None:
        """Take up work: the first tick, and on a file of one's own the end of whatever a dead owner still holds."""
        if self._owns_file:
            await self._database.write(store.claims.expire_others, me=self.id, now=self._world.clock.now())
        await self.tick_once()
        self.wakeup.ring(self._world.clock.now())
        self.wakeup.ring_timer(self._world.clock.now())

    async def run(self) -> None:
        """Work until `stop`; then let what is under way end within the grace period, settle it, and leave."""
        await self._until_it_works("engine.start", self.start)
        loops = [
            asyncio.create_task(loop)
            for loop in (
                self._every(self._options.tick, "engine.tick", self.tick_once),
                self._every(self._options.renewal, "engine.renew", self.renew_once),
                self._every(timedelta(seconds=2), "engine.release", self._release_what_is_parked),
                self.relay.run(lambda: self.tick.chores.events),
                self.sweeper.run(),
                self._every(timedelta(seconds=2), "engine.bulk", self._do_what_was_asked_for_many),
                self._every(timedelta(seconds=1), "engine.tell", self.tell_once),
                self._every(UNSERVED_AFTER, "engine.look_for_unserved", self.look_for_unserved_once),
            )
        ]
        pump, settle = asyncio.create_task(self._pump()), asyncio.create_task(self._settle())
        self._telemetry.emit(logging.INFO, "engine.started", engine=str(self.id), queues=sorted(self._queues))
        try:
            # The pump alone ends by itself; what any of them raises is a bug, and ends the engine loudly.
            await asyncio.wait({pump, settle, *loops}, return_when=asyncio.FIRST_COMPLETED)
            for task in (settle, *loops, pump):
                if task.done():
                    task.result()
            await self._drain()
        finally:
            rest = {pump, settle, *loops, *self._busy.values(), *self.lookups.under_way}
            for task in rest:
                task.cancel()
            # What does not heed its cancellation is not waited for: its lease ends it, and whoever stops us must come to an end.
            done, left = await asyncio.wait(rest, timeout=STUBBORN)
            await asyncio.gather(*done, return_exceptions=True)
            if left:
                self._telemetry.emit(logging.ERROR, "engine.left_behind", tasks=len(left))
        await self._leave()

    async def _release_what_is_parked(self) -> None:
        if self.tick.chores.parked:
            await self.release_once()

    async def _do_what_was_asked_for_many(self) -> None:
        if self.tick.chores.operations:
            await self.bulk.run()

    def stop(self) -> None:
        """Claim nothing more and let `run` come to its end; what was claimed and not yet sent goes back."""
        self.deliverer.is_stopping = True
        self.wakeup.nudge()

    async def _pump(self) -> None:
        while not self.deliverer.is_stopping:
            try:
                if await self.pump_once() and self.free >= self._options.batch // 2:
                    continue
            except UnavailableError as error:
                self._telemetry.emit(logging.ERROR, "engine.database_away", error=str(error)[:300])
                await self._world.clock.sleep(LONGEST_SLEEP)
            scarce = 0 < self.free < self._options.batch // 2 and bool(self._busy)
            starved = scarce and self.wakeup.next_send <= self._world.clock.now()
            if starved:
                await self.wakeup.wait_patiently(PATIENCE)
            else:
                await self.wakeup.wait(LONGEST_SLEEP, sends=self.can_claim)

    async def _settle(self) -> None:
        while True:
            await self.settler.filled()
            # What ends within a few milliseconds shares one transaction.
            await self._world.clock.sleep(self._options.group_wait.total_seconds())
            if not await self.settle_once():
                await self._world.clock.sleep(LONGEST_SLEEP)
            if self._is_away is False:
                self.wakeup.nudge()

    async def _every(self, period: timedelta, name: str, step: Callable[[], Awaitable[object]]) -> None:
        clock = self._world.clock
        following = clock.steady()
        while True:
            following = max(following + period.total_seconds(), clock.steady())
            await clock.sleep(following - clock.steady())
            if (late := clock.steady() - following) > HELD_UP:
                # A handler that blocks the loop, a machine that swaps or was frozen: leases and stops suffer from it.
                self._telemetry.emit(logging.WARNING, "engine.held_up", loop=name, seconds=round(late, 3))
            try:
                await step()
            except UnavailableError as error:
                self._telemetry.emit(logging.ERROR, name + "_failed", error=str(error)[:300])

    async def _until_it_works(self, name: str, step: Callable[[], Awaitable[object]]) -> None:
        while not self.deliverer.is_stopping:
            try:
                await step()
            except UnavailableError as error:
                self._telemetry.emit(logging.ERROR, name + "_failed", error=str(error)[:300])
                await self._world.clock.sleep(LONGEST_SLEEP)
            else:
                return

    async def _drain(self) -> None:
        until = self._world.clock.steady() + self._options.grace.total_seconds()
        while self._busy and self._world.clock.steady() < until:
            left = until - self._world.clock.steady()
            await asyncio.wait(list(islice(self._busy.values(), 1_000)), timeout=left, return_when="FIRST_COMPLETED")
        for task in self._busy.values():
            task.cancel()
        # The loop that settles is still there and does it; a second one beside it would find nothing, again and again.
        while self.settler.unsettled and self._world.clock.steady() < until + 1:
            await self._world.clock.sleep(0.01)

    async def _leave(self) -> None:
        try:
            if self.destinations.told:
                await self.tell_once()
                await self.relay.step()
            await self._database.write(store.engines.leave, self.id, now=self._world.clock.now())
        except UnavailableError as error:
            self._telemetry.emit(logging.WARNING, "engine.leave_failed", error=str(error)[:300])
        self._telemetry.emit(logging.INFO, "engine.stopped", engine=str(self.id), unsettled=self.settler.unsettled)
