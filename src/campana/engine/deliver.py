"""Deliver: one ticket through the guards and a channel to an outcome, and the judge's word on it.

It writes nothing but an intent: where a send can't be repeated, its attempt is durable before the first byte leaves. For all
else the claim is the intent, since bytes, keys and number follow from durable values.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

from campana import store
from campana.channels.base import Channel, Parcel
from campana.domain import breakers, guards, outcomes, policies, switches
from campana.domain import deliveries as model
from campana.domain.tickets import Attempt, Settlement, Ticket, Withheld
from campana.engine import parcels
from campana.engine.destinations import Destinations, Gate
from campana.engine.options import Options
from campana.engine.tick import Tick
from campana.errors import UnavailableError
from campana.store.attempts import Intent
from campana.store.database import Database, Urgency
from campana.store.engines import Board
from campana.telemetry import Telemetry
from campana.world import World

POSTPONED = timedelta(seconds=30)
"""How long a delivery waits whose channel can't send now."""


class Deliverer:
    """Makes one attempt at a ticket, or says why none was made."""

    def __init__(
        self,
        *,
        me: UUID,
        world: World,
        tick: Tick,
        database: Database,
        channels: Mapping[str, Channel],
        destinations: Destinations,
        secret: bytes,
        telemetry: Telemetry,
        options: Options,
    ) -> None:
        """Keep what every attempt needs."""
        self._me = me
        self._world = world
        self._tick = tick
        self._database = database
        self._channels = channels
        self._destinations = destinations
        self._secret = secret
        self._telemetry = telemetry
        self._options = options
        self.is_stopping = False

    async def deliver(self, ticket: Ticket, send_until: float) -> Settlement:
        """Return what shall become of the ticket; after `send_until` (steady seconds) nothing leaves any more."""
        gate = self._destinations.find(ticket)
        ruling = self._rule(ticket, guards.PIPELINE, gate)
        if gate is None:
            allowed = isinstance(ruling.verdict, guards.Allow)
            return await self._attempt(ticket, ruling, send_until) if allowed else self._withhold(ticket, ruling)
        if not isinstance(ruling.verdict, guards.Allow):
            return self._withhold(ticket, self._in_turn(gate, ruling))
        berth = await self._destinations.enter(gate, retry=ticket.attempt_count > 0)
        if berth is None:
            busy = guards.Defer(until=self._world.clock.now(), reason=guards.BUSY)
            return self._withhold(ticket, self._in_turn(gate, guards.Ruling(verdict=busy, asked=(*ruling.asked, "destination"))))
        outcome = None
        try:
            settlement = await self._attempt(ticket, ruling, send_until)
            outcome = settlement.attempt.outcome if settlement.attempt is not None else None
        finally:
            self._destinations.leave(berth, outcome)
        return settlement

    def _in_turn(self, gate: Gate, ruling: guards.Ruling) -> guards.Ruling:
        """Return the ruling with an instant of its own, where others are put off for the same reason."""
        match ruling.verdict:
            case guards.Defer(until=until, reason=(guards.BREAKER_OPEN | guards.RETRY_AFTER | guards.BUSY) as reason):
                verdict = guards.Defer(until=self._destinations.turn(gate, until), reason=reason)
                return guards.Ruling(verdict=verdict, asked=ruling.asked)
            case _:
                return ruling

    async def _attempt(self, ticket: Ticket, ruling: guards.Ruling, send_until: float) -> Settlement:
        channel, board, started_at = self._channels[ticket.channel], self._tick.board, self._world.clock.now()
        parcel = self._parcel(ticket, channel)
        refused: guards.Ruling | None = None
        intended = False

        async def permit() -> bool:
            nonlocal refused, intended
            refused = self._refusal(ticket, send_until, board)
            if refused is None and not channel.contract.repeatable:
                intended = True
                has_intent = await self._intend(ticket, parcel, started_at, _names(ruling))
                # Nothing waits after the last look; what was written is taken back where it now says no.
                refused = self._refusal(ticket, send_until, board) if has_intent else self._release("intent")
            return refused is None

        try:
            outcome = await channel.send(parcel, permit)
        except Exception as error:  # noqa: BLE001 - a bug of a channel is no reason to lose what it was given
            self._telemetry.emit(
                logging.ERROR, "channel.raised", channel=ticket.channel, delivery_id=str(ticket.id), error=repr(error)
            )
            outcome = outcomes.Ambiguous(error=f"the channel raised {type(error).__name__}: {error}")
        if isinstance(outcome, outcomes.Withheld):
            return self._withhold(ticket, refused or self._postponed(outcome), intended=intended)
        finished_at = self._world.clock.now()
        attempt = Attempt(
            outcome=outcome,
            number=ticket.number,
            key_number=ticket.key_number,
            started_at=started_at,
            finished_at=finished_at,
            worker=self._me,
            guards=_names(ruling),
        )
        return self._judge(ticket, attempt, seconds=parcel.timeout, intended=intended)

    def _refusal(self, ticket: Ticket, send_until: float, board: Board) -> guards.Ruling | None:
        """Return what stands against a write now: authority, then whatever may have changed since the guards were asked."""
        if self.is_stopping or not self._tick.is_fresh() or self._world.clock.steady() >= send_until:
            return self._release("authority")
        if self._tick.board is board and ticket.expires_at is None and ticket.key_at is None:
            return None
        again = self.rule(ticket, guards.EDGE)
        return None if isinstance(again.verdict, guards.Allow) else again

    async def _intend(self, ticket: Ticket, parcel: Parcel, started_at: datetime, asked: str) -> bool:
        intent = Intent(
            delivery_id=ticket.id,
            tenant_id=ticket.tenant_id,
            fence=ticket.fence,
            generation=ticket.generation,
            number=ticket.number,
            key_number=ticket.key_number,
            worker=self._me,
            guards=asked,
            started_at=started_at,
            until=self._world.clock.now() + timedelta(seconds=parcel.timeout),
            scopes=_scopes(ticket),
        )
        try:
            return await self._database.urgently(Urgency.CLAIM, store.attempts.intend, intent)
        except UnavailableError:
            return False

    def _judge(self, ticket: Ticket, attempt: Attempt, *, seconds: float, intended: bool) -> Settlement:
        outcome = attempt.outcome
        key_since = ticket.key_at or (attempt.started_at if outcomes.was_sent(outcome) else None)
        facts = model.Facts(
            attempt_count=ticket.attempt_count,
            policies=policies.load(ticket.policies),
            contract=self._channels[ticket.channel].contract,
            key_since=key_since,
            request_until=attempt.started_at + timedelta(seconds=seconds),
        )
        key_number = model.next_key_number(facts, ticket.key_number, outcome, unknown=ticket.ambiguous_attempts)
        chance = 0.0 if isinstance(outcome, outcomes.Delivered) else self._world.chance.fraction()
        return Settlement(
            delivery_id=ticket.id,
            tenant_id=ticket.tenant_id,
            fence=ticket.fence,
            generation=ticket.generation,
            transition=model.judge(facts, outcome, now=attempt.finished_at, chance=chance),
            attempt=attempt,
            max_attempts=facts.policies.retry.max_attempts,
            key_number=key_number,
            key_at=key_since if facts.contract.key_lifetime and key_number == ticket.key_number else None,
            ambiguous_attempts=ticket.ambiguous_attempts + outcomes.is_ambiguous(outcome),
            intended=intended,
        )

    def rule(self, ticket: Ticket, pipeline: Sequence[guards.Guard] = guards.PIPELINE) -> guards.Ruling:
        """Return what the guards say of a ticket now."""
        return self._rule(ticket, pipeline, self._destinations.find(ticket))

    def _rule(self, ticket: Ticket, pipeline: Sequence[guards.Guard], gate: Gate | None) -> guards.Ruling:
        board = self._tick.board
        facts = guards.Facts(
            now=self._world.clock.now(),
            tenant_id=ticket.tenant_id,
            project_id=ticket.project_id,
            channel=ticket.channel,
            expires_at=ticket.expires_at,
            switched_off=board.off,
            suspended=board.suspended,
            schedule_id=ticket.schedule_id,
            slot_at=ticket.slot_at,
            key_until=self._key_until(ticket),
            breaker=breakers.CLOSED if gate is None else gate.breaker,
        )
        return guards.rule(pipeline, facts)

    def _key_until(self, ticket: Ticket) -> datetime | None:
        channel = self._channels[ticket.channel]
        if ticket.key_at is None or channel.contract.key_lifetime is None:
            return None
        return ticket.key_at + channel.contract.key_lifetime - timedelta(seconds=self._parcel(ticket, channel).timeout)

    def _withhold(self, ticket: Ticket, ruling: guards.Ruling, *, intended: bool = False) -> Settlement:
        now = self._world.clock.now()
        transition: model.Transition
        match ruling.verdict:
            case guards.Skip(reason=reason):
                transition = model.Skipped(reason=reason)
            case guards.Hold(scope=scope, reason=reason):
                transition = model.Returned(at=now + model.PARKED, reason=reason, held_by=scope)
            case guards.Defer(until=until, reason=reason, slot_at=slot_at):
                transition = model.Returned(at=until, reason=reason, slot_at=slot_at)
            case guards.Doubt():
                facts = model.Facts(
                    attempt_count=ticket.attempt_count,
                    policies=policies.load(ticket.policies),
                    contract=self._channels[ticket.channel].contract,
                )
                transition = model.hold(facts, now=now)
            case guards.Allow():
                transition = model.Returned(at=now, reason="released")
            case other:
                assert_never(other)
        return Settlement(
            delivery_id=ticket.id,
            tenant_id=ticket.tenant_id,
            fence=ticket.fence,
            generation=ticket.generation,
            transition=transition,
            withheld=Withheld(at=now, guards=_names(ruling), verdict=type(ruling.verdict).__name__.lower()),
            key_number=ticket.key_number,
            key_at=ticket.key_at,
            ambiguous_attempts=ticket.ambiguous_attempts,
            intended=intended,
        )

    def _release(self, asked: str) -> guards.Ruling:
        return guards.Ruling(verdict=guards.Defer(until=self._world.clock.now(), reason="released"), asked=(asked,))

    def _postponed(self, withheld: outcomes.Withheld) -> guards.Ruling:
        """Return what follows where it was the channel that could not send: it will not be able to at once either."""
        if withheld.reason is None:
            return self._release("channel")
        until = self._world.clock.now() + POSTPONED
        return guards.Ruling(verdict=guards.Defer(until=until, reason=withheld.reason), asked=("channel",))

    def _parcel(self, ticket: Ticket, channel: Channel) -> Parcel:
        return parcels.make(
            ticket,
            channel.contract,
            number=ticket.number,
            key_number=ticket.key_number,
            secret=self._secret,
            options=self._options,
        )


def _scopes(ticket: Ticket) -> tuple[str, ...]:
    return switches.above(
        tenant_id=ticket.tenant_id, project_id=ticket.project_id, channel=ticket.channel, schedule_id=ticket.schedule_id
    )


def _names(ruling: guards.Ruling) -> str:
    return ",".join(ruling.asked)
