"""A channel that follows a script, and a receiver that remembers everything that ever reached it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from campana.channels.base import Parcel, Permit
from campana.domain import ambiguity, lookups, outcomes
from campana.domain.ambiguity import Contract, OnAmbiguous, Trouble
from campana.domain.outcomes import Outcome, Withheld
from campana.world import Clock

REPEATABLE = Contract(repeatable=True, on_ambiguous=OnAmbiguous.RETRY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """How one request goes: seconds until the connection is there, if the receiver acts, seconds until it answers, and how."""

    outcome: Outcome
    applies: bool
    connecting: float = 0.0
    answering: float = 0.0


def deliver(*, connecting: float = 0.0, answering: float = 0.0) -> Act:
    """Act on it and say so."""
    return Act(outcome=outcomes.Delivered(), applies=True, connecting=connecting, answering=answering)


def refuse(outcome: Outcome | None = None, *, connecting: float = 0.0, answering: float = 0.0) -> Act:
    """Do nothing, and answer with this (a plain failure, unless given)."""
    said = outcome or outcomes.Failed(error="refused by the script")
    return Act(outcome=said, applies=False, connecting=connecting, answering=answering)


def apply_then_drop(*, connecting: float = 0.0, answering: float = 0.0) -> Act:
    """Act on it; the answer is lost."""
    lost = ambiguity.outcome_of(Trouble.RESET, "apply, then drop")
    return Act(outcome=lost, applies=True, connecting=connecting, answering=answering)


def drop_before_apply(*, answering: float = 0.0) -> Act:
    """Lose the request after it was written, before anything came of it."""
    return Act(outcome=ambiguity.outcome_of(Trouble.RESET, "drop before apply"), applies=False, answering=answering)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request as it reached the receiver, and whether it had an effect there."""

    parcel: Parcel
    at: datetime
    had_effect: bool


class Receiver:
    """The other side: an append-only ledger. One that deduplicates acts once per value of `identity`."""

    def __init__(self, identity: Callable[[Parcel], str] | None = None) -> None:
        """Act on every request, or once per `identity` (`lambda parcel: parcel.delivery_key`)."""
        self._identity = identity
        self._known: set[str] = set()
        self.arrivals: list[Arrival] = []
        self.effects: Counter[str] = Counter()
        """How often it acted, by delivery key."""

    def knows(self, parcel: Parcel) -> bool:
        """Say whether it has acted on this already, and would not again."""
        return self._identity is not None and self._identity(parcel) in self._known

    def find(self, parcel: Parcel, *, at: datetime, visible_after: timedelta = timedelta(0)) -> lookups.Answer:
        """Say what a provider that can be asked by our keys knows at this instant of an attempt."""
        for one in self.arrivals:
            if one.had_effect and one.parcel.idempotency_key == parcel.idempotency_key and one.at + visible_after <= at:
                return lookups.Found(outcome=outcomes.Delivered())
        return lookups.Absent()

    def take(self, parcel: Parcel, *, at: datetime, applies: bool) -> None:
        """Write the request down; act on it if the script says so and it was not acted on before."""
        acts = applies and not self.knows(parcel)
        if acts:
            self.effects[parcel.delivery_key] += 1
            if self._identity is not None:
                self._known.add(self._identity(parcel))
        self.arrivals.append(Arrival(parcel=parcel, at=at, had_effect=acts))


Script = Iterable[Act] | Callable[[Parcel], Act]


class ScriptedChannel:
    """Does what the script says: a list of acts, after which everything is delivered, or a function from parcel to act."""

    def __init__(
        self,
        clock: Clock,
        script: Script = (),
        *,
        name: str = "webhook",
        contract: Contract = REPEATABLE,
        receiver: Receiver | None = None,
        answer: Callable[[Parcel], lookups.Answer] | None = None,
        destination: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        """Go out under this name, with this contract, to this receiver; look-ups get this answer, else what it remembers.

        Its receivers are told apart by `destination`, or not at all.
        """
        self.name = name
        self.contract = contract
        self.receiver = receiver or Receiver()
        self._clock = clock
        self._answer = answer
        self._destination = destination
        self._acts = iter(()) if callable(script) else iter(script)
        self._choose = script if callable(script) else lambda _: next(self._acts, deliver())

    async def send(self, parcel: Parcel, permit: Permit) -> Outcome | Withheld:
        """Connect, ask the permit, hand over in the same breath, and wait for the answer no longer than the parcel allows."""
        act = self._choose(parcel)
        if act.connecting > 0:
            await self._clock.sleep(min(act.connecting, parcel.timeout))
        if act.connecting > parcel.timeout:
            return ambiguity.outcome_of(Trouble.CONNECT_TIMEOUT, "")
        if not await permit():
            return Withheld()
        self.receiver.take(parcel, at=self._clock.now(), applies=act.applies)
        patience = parcel.timeout - act.connecting
        if act.answering > 0:
            await self._clock.sleep(min(act.answering, patience))
        return act.outcome if act.answering <= patience else ambiguity.outcome_of(Trouble.READ_TIMEOUT, "")

    def destination(self, target: Mapping[str, Any]) -> str | None:
        """Return who receives this, where the script tells receivers apart."""
        return None if self._destination is None else self._destination(target)

    async def lookup(self, parcel: Parcel) -> lookups.Answer:
        """Answer as the script says, or look among what ever reached the receiver."""
        return self._answer(parcel) if self._answer else self.receiver.find(parcel, at=self._clock.now())

    async def close(self) -> None:
        """Nothing to give back."""
