"""The engine in a world that a seed makes up: several processes on one file, and everything that can happen to them.

`python -m tests.engine.simulation --seeds 20000 --from 0` for a long run; `--seeds 1 --from N` plays seed N again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import functools
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from campana import store
from campana.channels.base import Parcel
from campana.domain import acts, breakers, lookups, outcomes, retries, switches
from campana.domain.ambiguity import Contract, OnAmbiguous
from campana.engine.engine import Engine
from campana.engine.options import Options
from campana.errors import UnavailableError
from campana.store.database import Database
from campana.telemetry import Telemetry
from campana.testing.chance import SeededChance
from campana.testing.channel import (
    REPEATABLE,
    Act,
    Receiver,
    ScriptedChannel,
    apply_then_drop,
    deliver,
    drop_before_apply,
    refuse,
)
from campana.testing.clock import VirtualClock
from campana.testing.runner import InlineRunner
from campana.world import World
from tests.engine import builders
from tests.engine.builders import SECOND, TENANT, Silence
from tests.engine.faults import Fates, FaultyChannel, FaultyRunner, NamedDatabase, SeededFates
from tests.engine.invariants import Watcher
from tests.engine.processes import PROCESS, Process, ProcessLoop

OTHER = UUID(int=3)
LIFETIME, VISIBLE = 15 * SECOND, 2 * SECOND
KINDS: dict[str, OnAmbiguous] = {
    "stable": OnAmbiguous.RETRY,
    "keyed": OnAmbiguous.RETRY,
    "plain": OnAmbiguous.RETRY,
    "plain hold": OnAmbiguous.HOLD,
    "held": OnAmbiguous.HOLD,
    "asked": OnAmbiguous.RECONCILE,
    "honoured": OnAmbiguous.RETRY,
}
"""Receivers that know a delivery by its key, by its attempt's key, not at all (also under `hold`); and providers that can't
be repeated: one that promises nothing, one that can be asked, one that honours an attempt's key for a while."""
CONTRACTS = {
    "held": Contract(repeatable=False, on_ambiguous=OnAmbiguous.HOLD),
    "asked": Contract(repeatable=False, on_ambiguous=OnAmbiguous.RECONCILE, lookup_after=VISIBLE),
    "honoured": Contract(repeatable=False, on_ambiguous=OnAmbiguous.RETRY, key_lifetime=LIFETIME),
}
OPTIONS = Options(
    lease=6 * SECOND,
    renewal=2 * SECOND,
    run_limit=30 * SECOND,
    send_timeout=4 * SECOND,
    grace=5 * SECOND,
    per_host=3,
    crowd=1,
    breaker=breakers.Policy(trip_after=2, first=1 * SECOND, longest=6 * SECOND),
)
LONGEST = 600.0
"""Virtual seconds after which a delivery that has not ended never will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run came to, if it came to its end."""

    trace: str
    seconds: float
    commits: int
    sends: int


class Honouring(Receiver):
    """Acts once per key, and forgets a key after its lifetime."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(lambda parcel: parcel.idempotency_key)
        self._clock = clock
        self._since: dict[str, datetime] = {}

    def knows(self, parcel: Parcel) -> bool:
        since = self._since.get(parcel.idempotency_key)
        return since is not None and self._clock.true() < since + LIFETIME

    def take(self, parcel: Parcel, *, at: datetime, applies: bool) -> None:
        if applies and not self.knows(parcel):
            self._since[parcel.idempotency_key] = self._clock.true()
            self.effects[parcel.delivery_key] += 1


class Stage:
    """One file, its receivers, its watcher; and nodes, each of which runs one engine after another."""

    def __init__(self, loop: ProcessLoop, path: Path, *, seed: int | str, has_server: bool) -> None:
        self.loop = loop
        self.seed = seed
        self.has_server = has_server
        self.dice = random.Random(f"stage {seed}")
        self.clock = VirtualClock(loop)
        self.inner = InlineRunner(f"sqlite:///{path}")
        self.watcher = Watcher(self.inner, self.clock)
        self.receivers = {
            "stable": Receiver(lambda parcel: parcel.delivery_key),
            "keyed": Receiver(lambda parcel: parcel.idempotency_key),
            "plain": Receiver(),
            "held": Receiver(),
            "asked": Receiver(),
            "honoured": Honouring(self.clock),
        }
        self.transits: dict[str, float] = {}
        """Seconds that a request is on its way after the write, by attempt's key, where it is slow."""
        self.on_their_way: set[str] = set()
        """The keys of requests that were slow: no other answer is given under them than theirs."""
        self.answer: Callable[[Parcel], lookups.Answer] = self.look
        self.kinds: dict[UUID, str] = {}
        self.alive: dict[int, tuple[Process, Engine]] = {}
        self.is_over = False
        self.restarts: Callable[[], float] = lambda: 1.0
        self.choose: Callable[[Parcel, str], Act] = lambda _parcel, _kind: deliver()
        self.quiet = Telemetry(Silence())
        self.fates: Fates

    def database(self, process: Process, name: str, telemetry: Telemetry) -> Database:
        runner = FaultyRunner(self.inner, process, self.fates, self.watcher.committed, has_clock=self.has_server)
        return NamedDatabase(runner, World(process.clock, SeededChance(f"{self.seed} {name}")), telemetry)

    def look(self, parcel: Parcel) -> lookups.Answer:
        """What the provider that can be asked knows."""
        return self.receivers["asked"].find(parcel, at=self.clock.true(), visible_after=VISIBLE / 2)

    def process(self, name: str, *, wrong: timedelta = timedelta(0)) -> Process:
        return Process(self.loop, name, VirtualClock(self.loop, wrong=wrong))

    def engine(self, process: Process) -> Engine:
        telemetry = Telemetry(Silence())
        watcher, stage = self.watcher, self

        class Watched(Receiver):
            """Says that something leaves just before it arrives."""

            def __init__(self, behind: Receiver) -> None:
                self.behind = behind

            def take(self, parcel: Parcel, *, at: datetime, applies: bool) -> None:
                watcher.sent(process, parcel)
                for host in engine.destinations._hosts.values():
                    watcher.expect(host.busy <= OPTIONS.per_host, "no receiver has more than its share", process.name, host.name)
                    for gate in host.gates.values():
                        watcher.expect(
                            gate.busy >= 0 and gate.waiting >= 0, "a berth is given back once", process.name, host.name
                        )
                transit = stage.transits.pop(parcel.idempotency_key, 0.0)
                arrive = functools.partial(self.behind.take, parcel, at=stage.clock.true(), applies=applies)
                if not transit:
                    arrive()
                    return
                # What is on its way arrives whatever becomes of who sent it.
                stage.on_their_way.add(parcel.idempotency_key)
                stage.loop.call_later(transit, arrive, context=contextvars.Context())

        channels = {}
        for kind, receiver in self.receivers.items():

            def script(parcel: Parcel, kind: str = kind) -> Act:
                return self.choose(parcel, kind)

            inner = ScriptedChannel(
                process.clock,
                script,
                name=kind,
                receiver=Watched(receiver),
                contract=CONTRACTS.get(kind, REPEATABLE),
                answer=self.answer,
            )
            channels[kind] = FaultyChannel(inner, process, self.fates)
        engine = Engine(
            world=World(process.clock, SeededChance(f"{self.seed} {process.name}")),
            database=self.database(process, process.name, telemetry),
            pulse=self.database(process, f"{process.name} pulse", telemetry),
            channels=channels,
            queues=dict.fromkeys(channels, 4),
            secret=b"secret",
            telemetry=telemetry,
            options=OPTIONS,
            owns_file=not self.has_server,
        )
        return engine

    async def node(self, number: int) -> None:
        """Run an engine; when it dies or ends, another one in its place."""
        life = 0
        while not self.is_over:
            wrong = timedelta(seconds=self.dice.uniform(-600, 600)) if self.has_server else timedelta(0)
            process = self.process(f"node {number}.{life}", wrong=wrong)
            engine = self.engine(process)
            self.watcher.engines[process.name] = engine.id
            self.alive[number] = process, engine
            work = process.start(engine.run())
            await asyncio.wait({work, process.died}, return_when=asyncio.FIRST_COMPLETED)
            self.watcher.note(process.name, "is dead" if process.is_dead else "has ended")
            del self.alive[number]
            if process.is_dead:
                await process.bury()
            else:
                work.result()
                # Whoever made the databases closes them: what is under way there comes to its end first.
                await asyncio.wait_for(asyncio.gather(engine._database.close(), engine.tick._database.close()), 60)
                self._check_base(process, engine)
            life += 1
            if not self.is_over:
                await self.clock.sleep(self.restarts())

    def _check_base(self, process: Process, engine: Engine) -> None:
        said = self.watcher.expect
        said(not process.tasks, "no task is left", process.name, list(process.tasks))
        said(not engine.lookups.under_way, "no look-up is under way", process.name)
        said(not engine._busy and engine.quarantine.room > 0, "nothing is under way", process.name, engine._busy)
        hosts = engine.destinations._hosts.values()
        said(not any(host.busy or host.waiters for host in hosts), "every berth is free", process.name)
        said(not any(engine._busy_by_queue.values()), "every slot is free", process.name, engine._busy_by_queue)

    async def add(self, database: Database, number: int, kind: str, *, after: float, **said: object) -> None:
        """Make a delivery of this kind, however long the database takes to have it."""
        one = builders.new(
            number,
            due_at=self.clock.true() + timedelta(seconds=after),
            created_at=self.clock.true(),
            queue=kind.partition(" ")[0],
            channel=kind.partition(" ")[0],
            on_ambiguous=KINDS[kind],
            **said,  # type: ignore[arg-type]  # as `builders.new` has it
        )
        self.watcher.deliveries[one.id] = one
        self.kinds[one.id] = kind
        await insistently(lambda: database.write(store.deliveries.create, [one], now=self.clock.true()))

    async def play(self, nodes: int, acts: list[Callable[[], object]], *, calm_from: float) -> Result:
        """Run the nodes and the actors; when the actors are done, wait until everything has ended, and look at it all."""
        assert PROCESS.get() is None
        work = [asyncio.create_task(self.node(number)) for number in range(nodes)]
        actors = [asyncio.create_task(act()) for act in acts]  # type: ignore[arg-type,var-annotated]  # coroutine functions
        try:
            await self._until(lambda: all(actor.done() for actor in actors), work)
            for actor in actors:
                actor.result()
            until = max(calm_from, self.clock.steady())
            await self._until(lambda: self.clock.steady() >= until and not self.watcher.left(), work)
            self.is_over = True
            for _, engine in self.alive.values():
                engine.stop()
            began = self.clock.steady()
            await asyncio.gather(*work)
            grace = OPTIONS.grace.total_seconds() + 2
            self.watcher.expect(self.clock.steady() - began <= grace, "engines stop in time")
            await self.clock.sleep(OPTIONS.send_timeout / SECOND)  # the last request has arrived
            self.watcher.finish(self.receivers, self.kinds)
        finally:
            for task in (*work, *actors):
                task.cancel()
            await asyncio.gather(*work, *actors, return_exceptions=True)
            for process, _ in self.alive.values():
                process.kill()
                await process.bury()
            await self.inner.close()
        watcher = self.watcher
        return Result(trace=watcher.trace, seconds=self.clock.steady(), commits=watcher.commits, sends=watcher.sends)

    async def _until(self, holds: Callable[[], bool], work: list[asyncio.Task[None]]) -> None:
        until = self.clock.steady() + LONGEST
        while not holds():
            self.watcher.check()
            for task in work:
                if task.done():
                    task.result()
            left = self.watcher.left()
            self.watcher.expect(self.clock.steady() < until, "everything ends once faults stop", left)
            await self.clock.sleep(0.25)


async def insistently(work: Callable[[], object]) -> None:
    """Do it again until the database answers."""
    while True:
        try:
            await work()  # type: ignore[misc]  # a coroutine function
        except UnavailableError:
            continue
        return


class Simulation:
    """One seed's world: which nodes, which deliveries, which faults, and people who interfere."""

    def __init__(self, loop: ProcessLoop, path: Path, seed: int) -> None:
        dice = random.Random(f"simulation {seed}")
        has_server = dice.random() < 0.8
        self.dice = dice
        self.nodes = dice.choice((1, 2, 2, 3, 4)) if has_server else 1
        self.stage = Stage(loop, path, seed=seed, has_server=has_server)
        self.calm_from = 25.0
        self.fates = SeededFates(random.Random(f"fates {seed}"), self.stage.clock, calm_from=self.calm_from)
        self.stage.fates = self.fates
        self.stage.restarts = lambda: 1.0 if self.fates.is_calm else dice.choice((0.0, 0.5, 5.0))
        self.stage.choose = self.choose
        self.stage.answer = self.answer
        self.closing: set[str] = set()

    async def run(self) -> Result:
        operator = self.stage.process("operator")
        database = self.stage.database(operator, "operator", self.stage.quiet)

        async def inside() -> None:
            await operator.start(self.operate(database))

        return await self.stage.play(self.nodes, [inside, self.interfere], calm_from=self.calm_from)

    def choose(self, parcel: Parcel, kind: str) -> Act:
        """How the receiver takes this one."""
        dice = self.dice
        slow = dice.choice((0.0, 0.0, 0.0, 0.02, 0.3, 1.5, 3.0, 6.0))
        connecting = dice.choice((0.0, 0.0, 0.01, 0.5, 1.8, 3.0, 3.9))
        number = dice.random()
        self.stage.transits.pop(parcel.idempotency_key, None)  # of one that never left
        is_known = self.stage.receivers[kind].knows(parcel) or parcel.idempotency_key in self.stage.on_their_way
        if kind in {"keyed", "honoured"} and is_known:
            # It keeps its answer under the attempt's key, and gives the same again.
            return deliver(connecting=connecting, answering=slow)
        if kind in CONTRACTS:
            longest = parcel.timeout - connecting
            slow = min(slow, longest)
            if dice.random() < 0.15:
                # Lost on its way back, or on its way there and late.
                self.stage.transits[parcel.idempotency_key] = max(dice.choice((0.0, 0.5, longest)), 0.0)
                return apply_then_drop(connecting=connecting, answering=slow)
            if dice.random() < 0.15:
                until = self.stage.clock.true() + timedelta(seconds=dice.uniform(0.1, 6))
                return Act(outcome=outcomes.Accepted(until=until), applies=dice.random() < 0.7, connecting=connecting)
        if number < 0.5:
            return deliver(connecting=connecting, answering=slow)
        if number < 0.6:
            return apply_then_drop(answering=slow)
        if number < 0.7:
            return drop_before_apply(answering=slow)
        if number < 0.72:
            return refuse(outcomes.Failed(error="gone", permanent=True))
        if number < 0.82 and kind not in {"keyed", "honoured"}:
            # It acted and says that it failed; a receiver that keeps answers under the attempt's key would not.
            return Act(
                outcome=outcomes.Failed(error="500", ambiguous=True), applies=kind not in {"plain", *CONTRACTS}, answering=slow
            )
        return refuse(connecting=connecting, answering=slow)

    def answer(self, parcel: Parcel) -> lookups.Answer:
        """How the provider answers a look-up: it may be away, or still at it."""
        number = 1.0 if self.fates.is_calm else self.dice.random()
        if number < 0.15:
            return lookups.Unsure(error="503")
        if number < 0.3:
            return lookups.Going(until=self.stage.clock.true() + timedelta(seconds=self.dice.uniform(-1, 5)))
        if number < 0.35:
            raise ZeroDivisionError
        return self.stage.look(parcel)

    async def operate(self, database: Database) -> None:
        """Make deliveries, cancel some, throw switches, suspend a tenant; at the end everything is open."""
        dice, stage = self.dice, self.stage
        stage.watcher.places["slots:few"] = dice.randint(1, 3)
        await insistently(lambda: database.write(store.lanes.provide, "slots:few", stage.watcher.places["slots:few"]))
        if dice.random() < 0.3:
            rate = {"interval": dice.uniform(0.1, 0.6) * SECOND, "burst": dice.randint(1, 3)}
            await insistently(lambda: database.write(store.limits.put, switches.everywhere("plain"), **rate))  # type: ignore[arg-type]  # by name
        for number in range(dice.randint(6, 20)):
            retry = retries.Policy(
                max_attempts=dice.randint(1, 4), base=timedelta(seconds=dice.uniform(0.1, 2)), cap=4 * SECOND, jitter=0.3
            )
            after = dice.choice((0.0, dice.uniform(0, 12)))
            expires_at = stage.clock.true() + timedelta(seconds=after + dice.uniform(0.3, 8)) if dice.random() < 0.25 else None
            tenant_id = dice.choice((TENANT, TENANT, OTHER))
            kind = dice.choice(tuple(KINDS))
            bound = {
                "lane_key": dice.choice(("lane:one", "lane:other")) if dice.random() < 0.25 else None,
                "resource": "slots:few" if dice.random() < 0.25 else None,
            }
            await stage.add(database, number, kind, after=after, retry=retry, expires_at=expires_at, tenant_id=tenant_id, **bound)
            if dice.random() < 0.02:
                self.fates.poison = f"dlv_{UUID(int=1_000 + number).hex}"
            await stage.clock.sleep(dice.choice((0.0, 0.1, 1.0)))
        while not self.fates.is_calm:
            await stage.clock.sleep(dice.uniform(0.1, 2.5))
            await dice.choice((self.cancel, self.throw, self.suspend, self.read_letters))(database)
        for scope in sorted(self.closing):
            await self.set_scope(database, scope, off=False)

    async def cancel(self, database: Database) -> None:
        one = self.dice.choice(list(self.stage.watcher.deliveries.values()))
        await insistently(lambda: database.write(store.deliveries.cancel, one.tenant_id, one.id, now=self.stage.clock.true()))

    async def read_letters(self, database: Database) -> None:
        """Redrive some dead letters, discard others."""
        for it in self.stage.watcher.letters():
            one, act = self.stage.watcher.deliveries[it], self.dice.choice((acts.Act.REDRIVE, acts.Act.REDRIVE, acts.Act.DISCARD))
            deed, now = acts.Deed(act=act, actor="operator"), self.stage.clock.true()
            await insistently(functools.partial(database.write, store.acts.perform, one.tenant_id, [it], deed, now=now))

    async def throw(self, database: Database) -> None:
        tenant_id = self.dice.choice((TENANT, OTHER))
        channel = switches.within(tenant_id, "channel", self.dice.choice(("plain", "stable")))
        scope = self.dice.choice((switches.ALL, switches.everywhere("keyed"), switches.tenant(tenant_id), channel))
        await self.set_scope(database, scope, off=scope not in self.closing)

    async def suspend(self, database: Database) -> None:
        scope = f"suspended:{self.dice.choice((TENANT, OTHER))}"
        await self.set_scope(database, scope, off=scope not in self.closing)

    async def set_scope(self, database: Database, scope: str, *, off: bool) -> None:
        """Close or open a scope; it counts as closed from the moment that this is durable and answered."""
        now, closed = self.stage.clock.true(), self.stage.watcher.closed
        if not off:
            closed.pop(scope, None)
        if scope.startswith("suspended:"):
            tenant_id = UUID(scope.partition(":")[2])
            await insistently(lambda: database.write(builders.suspend, tenant_id, now=now, suspended=off))
        else:
            said = {"off": off, "reason": "", "actor": "operator", "now": now}
            await insistently(lambda: database.write(store.switches.throw, scope, **said))  # type: ignore[arg-type]  # by name
        if off:
            closed[scope] = self.stage.clock.steady()
            self.closing.add(scope)
        else:
            self.closing.discard(scope)

    async def interfere(self) -> None:
        """Freeze, thaw, kill, stop and restart nodes, and step their clocks."""
        dice, stage = self.dice, self.stage
        habits = [habit for habit in ("freeze", "kill", "stop", "step") if dice.random() < 0.5]
        while not self.fates.is_calm:
            await stage.clock.sleep(dice.uniform(0.2, 3))
            if not habits or not stage.alive or self.fates.is_calm:
                continue
            process, engine = stage.alive[dice.choice(sorted(stage.alive))]
            habit = dice.choice(habits)
            stage.watcher.note(habit, process.name)
            if habit == "freeze":
                process.freeze()
                await stage.clock.sleep(dice.choice((0.3, 1.5, 2.5, 7.0, 9.0, 12.0)))
                process.thaw()
            elif habit == "kill":
                process.kill()
            elif habit == "stop":
                process.start(_stop(engine))
            else:
                process.clock.step(timedelta(seconds=dice.choice((-300, -2, 2, 300)) if stage.has_server else 0))


async def _stop(engine: Engine) -> None:
    engine.stop()


def play(seed: int, empty: Path, folder: Path) -> Result:
    """Run one seed on a copy of the empty file."""
    path = Path(shutil.copy(empty, folder / f"{seed}.db"))
    try:
        with asyncio.Runner(loop_factory=ProcessLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, ProcessLoop)
            return runner.run(Simulation(loop, path, seed).run())
    finally:
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)


def main() -> int:
    """Run many seeds; print each that breaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    said = parser.parse_args()
    broken: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        empty = builders.migrated(Path(folder) / "empty.db")
        for seed in range(said.first, said.first + said.seeds):
            try:
                result = play(seed, empty, Path(folder))
            except Exception as error:  # noqa: BLE001 - whatever it is, the seed is named and the next one runs
                broken.append(seed)
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)  # noqa: T201 - a program's output
            else:
                if said.seeds <= 10:
                    print(f"seed {seed}: {result}")  # noqa: T201 - as above
    print(f"{said.seeds} seeds, {len(broken)} broken: {broken}")  # noqa: T201 - as above
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
