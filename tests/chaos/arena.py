"""One run on one kind of database: everything is started, spoilt, left to settle, and judged."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests import programs, servers
from tests.chaos import ledger, rows
from tests.chaos.client import Client
from tests.chaos.judge import Evidence, judge
from tests.chaos.plan import Plan
from tests.chaos.processes import Program, pause
from tests.chaos.proxy import Proxy

KEY = "cmp_" + "chaos" * 8
SECRET = "one secret for all processes of a run"
SETTLE_SECONDS = 120.0
START_SECONDS = 30.0
BUGS = ("api.bug", "channel.raised", "delivery.bug", "settle.refused", "exception was never retrieved")
"""What no log may say, whatever happens outside."""
_STARTED = re.compile(r'"engine": "([0-9a-f-]+)", .*"engine.started"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a run."""

    kind: str
    breaches: Sequence[str]
    figures: Mapping[str, float]
    notes: Sequence[str]
    folder: Path


@dataclass(slots=True)
class Arena:
    """What runs, and what was done to it."""

    kind: str
    plan: Plan
    folder: Path
    url: str = ""
    """The database itself, for migrating and judging."""
    system: list[Program] = field(default_factory=list)
    receiver: Program | None = None
    server: servers.Server | None = None
    proxy: Proxy | None = None
    done: list[tuple[float, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    async def build(self, stack: AsyncExitStack) -> Client:
        """Everything runs; the client is ready to be."""
        seen = self.url
        if self.kind == "sqlite":
            self.url = seen = f"sqlite:///{self.folder / 'campana.db'}"
        else:
            self.server = servers.SERVERS[self.kind](durable=True)
            stack.callback(self.server.dispose)
            await asyncio.to_thread(self.server.start)
            self.proxy = Proxy(self.server.port)
            await self.proxy.start()
            stack.push_async_callback(self.proxy.close)
            self.url = self.server.url
            seen = self.url.replace(f":{self.server.port}/", f":{self.proxy.port}/")
        api, receiver = servers._free_port(), servers._free_port()
        self.receiver = Program(
            "receiver",
            [sys.executable, "-m", "tests.chaos.receiver", str(receiver), str(self.ledger), str(self.plan.seed)],
            {"PYTHONPATH": str(programs.ROOT)},
            self.folder,
        )
        await self._start(stack, self.receiver)
        await self._campana(seen, api, stack)
        return Client(
            api=f"http://127.0.0.1:{api}",
            key=KEY,
            receiver=f"http://127.0.0.1:{receiver}/",
            rate=self.plan.rate,
            seed=self.plan.seed,
            path=self.folder / "acknowledged",
        )

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    async def _campana(self, seen: str, port: int, stack: AsyncExitStack) -> None:
        campana = str(Path(sys.executable).parent / "campana")
        env = _environment(seen, self.folder, self.plan)
        serve = ["--port", str(port)]
        if self.kind == "sqlite":
            self.system = [Program("up", [campana, "up", *serve], env, self.folder, ready="engine.started")]
        else:
            migrate = await asyncio.create_subprocess_exec(
                campana, "migrate", "--database", self.url, env={**env}, cwd=self.folder, stdout=asyncio.subprocess.DEVNULL
            )
            assert await migrate.wait() == 0, "campana migrate failed"
            self.system = [
                Program(f"engine-{number}", [campana, "engine"], env, self.folder, ready="engine.started")
                for number in range(1, self.plan.engines + 1)
            ]
            self.system.append(Program("api", [campana, "api", *serve], env, self.folder, ready="Campana is ready"))
        for program in self.system:
            await self._start(stack, program)
        async with asyncio.timeout(START_SECONDS):
            while not all(program.is_up for program in self.system):
                await pause(0.1)

    async def _start(self, stack: AsyncExitStack, program: Program) -> None:
        stack.push_async_callback(program.stop)
        await program.start()

    # --- faults

    async def spoil(self) -> None:
        """Everything that was planned has gone wrong, each at a random moment."""
        dice = random.Random(f"{self.plan.seed}|{self.kind}|moments")
        for fault in self.plan.order(self.kind):
            await pause(dice.uniform(0.3, 2.5))
            await self._spoil(fault, dice)

    async def _spoil(self, fault: str, dice: random.Random) -> None:
        victim = dice.choice(self.system)
        at = time.time()
        match fault:
            case "kill":
                # Only one that had got somewhere: a kill while it still imports proves nothing.
                await self._until_up(victim)
                at = time.time()
                victim.kill()
            case "freeze":
                await self._until_up(victim)
                victim.freeze()
                await pause(self.plan.lease * dice.uniform(1.2, 2.5))
                victim.thaw()
            case "receiver" if self.receiver is not None:
                self.receiver.kill()
            case "restart" if self.server is not None:
                await asyncio.to_thread(self.server.kill if dice.random() < 0.7 else self.server.stop)
                await pause(dice.uniform(0, 2))
                await asyncio.to_thread(self.server.start)
            case "commit" if self.proxy is not None:
                self.proxy.swallow(lands=dice.random() < 0.7)
            case "cut" if self.proxy is not None:
                self.proxy.cut()
        self.done.append((at, f"{fault} {victim.name}" if fault in {"kill", "freeze"} else fault))

    async def _until_up(self, program: Program) -> None:
        for _ in range(int(START_SECONDS * 10)):
            if program.is_up:
                return
            await pause(0.1)
        self.faults.append(f"{program.log.name} did not start within {START_SECONDS:g} s")

    # --- the end

    async def settle(self) -> float:
        """Nothing is live any more, or the time is up; how long it took."""
        began, left = time.monotonic(), -1
        while time.monotonic() - began < SETTLE_SECONDS:
            left = await asyncio.to_thread(rows.unfinished, self.url)
            if left == 0:
                break
            await pause(0.3)
        return time.monotonic() - began

    async def leave(self) -> None:
        """All processes of the system have ended in good order."""
        codes = await asyncio.gather(*(program.stop() for program in self.system))
        for program, code in zip(self.system, codes, strict=True):
            if code != 0:
                self.faults.append(f"{program.log.name}: told to stop, it ended with {code}")
            for death in program.deaths:
                said = f"{death.name} ended by itself with {death.code}: {death.said[-600:]}"
                if death.had_started:
                    self.faults.append(said)
                else:
                    # Its database was away when it started: a supervisor's business.
                    self.done.append((death.at, said))
            for log in sorted(self.folder.glob(f"{program.name}.*.log")):
                text = log.read_text(errors="replace")
                self.faults += [f"{log.name} says {word}" for word in BUGS if word in text]


def _environment(url: str, folder: Path, plan: Plan) -> dict[str, str]:
    said = {
        "DATABASE_URL": url,
        "DATA": str(folder),
        "BOOTSTRAP_KEY": KEY,
        "SECRET_KEY": SECRET,
        "WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
        "LEASE_SECONDS": str(plan.lease),
        "RETRY_BASE_DELAY_SECONDS": "0.2",
        "RETRY_CAP_SECONDS": "2",
        "RETRY_MAX_ATTEMPTS": "20",
        "SHUTDOWN_GRACE_SECONDS": "8",
        "MAX_IN_FLIGHT_PER_HOST": "60",
        "LOG_FORMAT": "json",
    }
    return {f"CAMPANA_{name}": value for name, value in said.items()}


async def run(kind: str, plan: Plan, folder: Path) -> Report:
    """The whole run; its evidence is in the folder."""
    arena = Arena(kind, plan, folder)
    async with AsyncExitStack() as stack:
        client = await arena.build(stack)
        posting = asyncio.create_task(client.run())
        await arena.spoil()
        await pause(1)
        client.stop()
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await posting
        except TimeoutError:
            arena.faults.append(f"the client was not answered for {SETTLE_SECONDS:g} s after the last fault")
        settled = await arena.settle()
        evidence = await asyncio.to_thread(_gather, arena, client)
        await arena.leave()
    verdict = judge(evidence)
    figures = dict(verdict.figures) | _times(arena, evidence) | {"settled": settled, "unanswered": client.said.unanswered}
    for name in ("kill", "freeze", "restart", "receiver", "cut"):
        figures[name] = sum(what.split()[0] == name for _, what in arena.done)
    figures["commit"] = arena.proxy.swallowed if arena.proxy is not None else 0
    breaches = [*arena.faults, *client.said.faults, *verdict.breaches]
    notes = [f"{at:.3f} {what}" for at, what in sorted(arena.done)]
    (folder / "report").write_text("\n".join([*notes, "", *breaches, "", repr(figures)]) + "\n")
    return Report(kind=kind, breaches=breaches, figures=figures, notes=notes, folder=folder)


def _gather(arena: Arena, client: Client) -> Evidence:
    return Evidence(
        acknowledged=client.said.acknowledged,
        bodies=client.said.bodies,
        deliveries=rows.deliveries(arena.url),
        attempts=rows.attempts(arena.url),
        ledger=ledger.read(arena.ledger),
    )


def _times(arena: Arena, evidence: Evidence) -> dict[str, float]:
    """From an engine's kill to the next request at the receiver, and to the end of each lease that it held."""
    killed = {worker: at for program in arena.system for worker, at in _workers(program).items()}
    moments = sorted(entry.at for entry in evidence.ledger)
    resumed = [min((moment for moment in moments if moment > at), default=at) - at for at in killed.values()]
    losses = [attempt for attempt in evidence.attempts if attempt.is_loss and attempt.worker in killed]
    # A worker may have lost leases before it was killed, when it was frozen or its database away.
    noticed = [loss.started_at - killed[loss.worker] for loss in losses if loss.started_at > killed[loss.worker]]
    return {
        "resumed": median(resumed) if resumed else 0.0,
        "resumed_max": max(resumed, default=0.0),
        "noticed": median(noticed) if noticed else 0.0,
        "noticed_max": max(noticed, default=0.0),
    }


def _workers(program: Program) -> dict[str, float]:
    """The engines that were killed in this program, by their ids in the logs."""
    found = {}
    for log, at in program.killed.items():
        if started := _STARTED.search(log.read_text(errors="replace")):
            found[started[1]] = at
    return found
