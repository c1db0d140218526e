"""What goes wrong, and when: a seed or a plan says, for each call of the store and each send of each process."""

from __future__ import annotations

import contextvars
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from campana.channels.base import Asked, Parcel, Permit
from campana.domain.ambiguity import Contract
from campana.domain.lookups import Answer
from campana.domain.outcomes import Outcome, Withheld
from campana.store.database import CommitLostError, Database, Unit, Urgency
from campana.store.engines import Pulse
from campana.testing.clock import VirtualClock
from campana.testing.runner import InlineRunner
from tests.engine.builders import away
from tests.engine.processes import Process

CALL: contextvars.ContextVar[str] = contextvars.ContextVar("call", default="?")


class Kind(StrEnum):
    """How one call goes wrong."""

    FINE = "fine"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    TRANSIENT = "transient error"
    LOST = "answer of the COMMIT lost"
    GONE = "COMMIT lost and with it the transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one call or send, and the seconds before and after it."""

    kind: Kind = Kind.FINE
    before: float = 0.0
    after: float = 0.0


class Fates(Protocol):
    """Says what becomes of the next call or send of a process."""

    def call(self, process: Process, name: str, *, writes: bool) -> Fate: ...

    def send(self, process: Process, parcel: Parcel) -> Fate: ...


@dataclass(slots=True)
class SingleFault:
    """Everything is well, but for one call or one send, by its number."""

    kind: Kind = Kind.FINE
    at_call: int = -1
    at_send: int = -1
    calls: list[str] = field(default_factory=list)
    sends: int = 0

    def call(self, process: Process, name: str, *, writes: bool) -> Fate:
        if process.name.startswith("operator"):
            return Fate()
        self.calls.append(name if writes else f"{name} (reads)")
        return Fate(kind=self.kind if len(self.calls) - 1 == self.at_call else Kind.FINE, before=0.001, after=0.001)

    def send(self, process: Process, parcel: Parcel) -> Fate:
        self.sends += 1
        return Fate(kind=self.kind if self.sends - 1 == self.at_send else Kind.FINE)


class SeededFates:
    """Dice decide, each seed with other habits; from `calm_from` on everything is well."""

    def __init__(self, dice: random.Random, clock: VirtualClock, *, calm_from: float) -> None:
        self._dice = dice
        self._clock = clock
        self.calm_from = calm_from
        self.poison: str | None = None
        """The delivery key that kills every process that sends it."""
        self.outages: list[tuple[float, float, str]] = []
        """From when to when the database is away, for which call (none: for all); the tick has a connection of its own."""
        for name in ("", "tick"):
            if dice.random() < 0.3:
                began = dice.uniform(2, calm_from)
                self.outages.append((began, min(began + dice.uniform(0.5, 15), calm_from), name))
        # Each seed has some of the faults, so that each fault also meets a world that is otherwise well.
        self._rates: dict[Kind, float] = {kind: dice.choice((0, 0, 0.002, 0.01, 0.03)) for kind in Kind if kind is not Kind.FINE}
        self._send_rates: dict[Kind, float] = {
            kind: dice.choice((0, 0.02, 0.1)) for kind in (Kind.CRASH_BEFORE, Kind.CRASH_AFTER)
        }
        self._slowness = dice.choice((0.0, 0.1, 1.0))

    @property
    def is_calm(self) -> bool:
        return self._clock.steady() >= self.calm_from

    def call(self, process: Process, name: str, *, writes: bool) -> Fate:
        if self.is_calm:
            return Fate(before=0.001, after=0.001)
        if any(began <= self._clock.steady() < ended and only in {"", name} for began, ended, only in self.outages):
            return Fate(kind=Kind.TRANSIENT, before=self._latency())
        kind = self._throw(self._rates)
        if (kind in {Kind.LOST, Kind.GONE} and not writes) or (process.name == "operator" and "crash" in kind):
            kind = Kind.TRANSIENT
        return Fate(kind=kind, before=self._latency(), after=self._latency())

    def send(self, process: Process, parcel: Parcel) -> Fate:
        if parcel.delivery_key == self.poison:
            return Fate(kind=Kind.CRASH_AFTER)
        return Fate() if self.is_calm else Fate(kind=self._throw(self._send_rates))

    def _throw(self, rates: dict[Kind, float]) -> Kind:
        number = self._dice.random()
        for kind, rate in rates.items():
            if number < rate:
                return kind
            number -= rate
        return Kind.FINE

    def _latency(self) -> float:
        number = self._dice.random()
        longest = 0.003 if number < 0.85 else 0.05 if number < 0.97 else 0.5 if number < 0.995 else 4.0
        return self._dice.uniform(0, longest * (1 if longest < 0.01 else self._slowness))


class NamedDatabase(Database):
    """A database whose runner can know which store function it runs."""

    async def _again(self, name: str, once: Callable[[], Awaitable[Any]]) -> Any:
        CALL.set(name)
        return await super()._again(name, once)


class FaultyRunner:
    """One process's way to the file, with everything that can go wrong on it; it tells a server's time if `has_clock`."""

    dialect = InlineRunner.dialect

    def __init__(
        self,
        inner: InlineRunner,
        process: Process,
        fates: Fates,
        committed: Callable[[Process, str], None],
        *,
        has_clock: bool,
    ) -> None:
        self._inner = inner
        self._process = process
        self._fates = fates
        self._committed = committed
        self._has_clock = has_clock

    async def write(self, unit: Unit, urgency: Urgency) -> Any:
        return await self._run(lambda: self._inner.write(unit, urgency), writes=True)

    async def read(self, unit: Unit) -> Any:
        return await self._run(lambda: self._inner.read(unit), writes=False)

    async def close(self) -> None:
        """The file is not ours to close."""

    async def _run(self, work: Callable[[], Awaitable[Any]], *, writes: bool) -> Any:
        process, name = self._process, CALL.get()
        await process.reach()
        fate = self._fates.call(process, name, writes=writes)
        await self._wait(fate.before)
        if fate.kind is Kind.CRASH_BEFORE:
            await process.die()
        if fate.kind is Kind.TRANSIENT:
            raise away()
        if fate.kind is Kind.GONE:
            raise CommitLostError
        result = await work()
        self._committed(process, name)
        if isinstance(result, Pulse) and self._has_clock:
            result = replace(result, database_now=process.clock.true())
        if fate.kind is Kind.CRASH_AFTER:
            await process.die()
        await self._wait(fate.after)
        if fate.kind is Kind.LOST:
            raise CommitLostError
        return result

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await self._process.clock.sleep(seconds)
        await self._process.reach()


class FaultyChannel:
    """One process's way to the receivers: it can die before it sends and after it was answered."""

    def __init__(self, inner: Asked, process: Process, fates: Fates) -> None:
        self.name: str = inner.name
        self.contract: Contract = inner.contract
        self._inner = inner
        self._process = process
        self._fates = fates

    async def send(self, parcel: Parcel, permit: Permit) -> Outcome | Withheld:
        await self._process.reach()
        fate = self._fates.send(self._process, parcel)
        if fate.kind is Kind.CRASH_BEFORE:
            await self._process.die()
        outcome = await self._inner.send(parcel, permit)
        if fate.kind is Kind.CRASH_AFTER:
            await self._process.die()
        await self._process.reach()
        return outcome

    def destination(self, target: Mapping[str, Any]) -> str:
        """All of a kind go to one receiver, which fails often enough to be left alone now and then."""
        del target
        return self.name

    async def lookup(self, parcel: Parcel) -> Answer:
        await self._process.reach()
        answer = await self._inner.lookup(parcel)
        await self._process.reach()
        return answer

    async def close(self) -> None:
        """Nothing to give back."""
