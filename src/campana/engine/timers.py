"""Timers: what ends by itself. A lost lease and a callback that never came are judged here; nothing is sent."""

import logging
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from campana import store
from campana.channels.base import Channel
from campana.domain import ambiguity, outcomes, policies
from campana.domain import deliveries as model
from campana.domain.ambiguity import Trouble
from campana.domain.deliveries import LOOKUP, State
from campana.domain.tickets import Attempt, Settlement, Withheld
from campana.engine.options import Options
from campana.engine.settle import Settler
from campana.store.database import Database, Urgency
from campana.store.settlements import Locked
from campana.telemetry import Telemetry
from campana.world import World

BATCH = 200
Claim = tuple[UUID, int]
"""A delivery, and the fence under which it is held."""


class Timers:
    """The reader of timers: it runs while sends are stopped, and before them."""

    def __init__(
        self,
        *,
        me: UUID,
        world: World,
        database: Database,
        settler: Settler,
        channels: Mapping[str, Channel],
        telemetry: Telemetry,
        options: Options,
    ) -> None:
        """Keep what judging needs."""
        self._me = me
        self._world = world
        self._database = database
        self._settler = settler
        self._contracts = {**ambiguity.CONTRACTS, **{name: channel.contract for name, channel in channels.items()}}
        self._telemetry = telemetry
        self._options = options

    async def step(self, *, may_end_others: bool, busy: Iterable[Claim] = ()) -> bool:
        """End one batch of what is over; True if there may be more.

        A claim of this engine whose lease ran out while the process stood still is not lost as long as nobody else ended it:
        what is known of it is about to be written, and what is still under way may come to its end within its run limit.
        """
        now, known = self._world.clock.now(), self._settler.held
        settled = await self._database.urgently(
            Urgency.SETTLE,
            store.settlements.reclaim,
            partial(self._judge, known, frozenset(busy)),
            list(self._contracts),
            now=now,
            limit=BATCH,
            sparing=None if may_end_others else self._me,
        )
        self._settler.report(settled)
        return len(settled) >= BATCH

    def _judge(self, known: AbstractSet[Claim], busy: AbstractSet[Claim], row: Locked, last: Locked | None) -> Settlement | None:
        now, claim = self._world.clock.now(), (row.id, row.fence)
        if claim in known or (claim in busy and row.run_until is not None and now < row.run_until):
            return None
        try:
            return self._judge_readable(row, last, now)
        except Exception as error:  # noqa: BLE001 - one row that can't be judged must not keep every other from its end
            self._telemetry.emit(logging.ERROR, "delivery.unreadable", delivery_id=str(row.id), error=repr(error))
            return _end(
                row,
                model.Buried(reason="unreadable"),
                ambiguous_attempts=row.ambiguous_attempts + (row.state == State.PROCESSING),
            )

    def _judge_readable(self, row: Locked, last: Locked | None, now: datetime) -> Settlement:
        if row.awaiting == LOOKUP:
            # Nobody was there who could ask, for longer than anybody asks.
            return _end(row, model.Buried(reason=model.HOLD_REASON), ambiguous_attempts=row.ambiguous_attempts)
        if row.state == State.IN_PROGRESS:
            return self._judge_silence(row, last, now)
        begun = last if last is not None and last.fence == row.fence else None
        is_sent = self._contracts[row.channel].repeatable or begun is not None
        return self._judge_lost(row, begun, now) if is_sent else self._judge_unsent(row, now)

    def _judge_lost(self, row: Locked, begun: Locked | None, now: datetime) -> Settlement:
        # Without a row of its own the attempt began with the claim at the earliest.
        claimed_at = row.run_until - self._options.run_limit if row.run_until else now
        key_since = row.key_at or (begun.started_at if begun else claimed_at)
        facts, deaths = self._facts(row, row.attempt_count, key_since=key_since), _deaths(row)
        attempt = Attempt(
            outcome=ambiguity.outcome_of(Trouble.WORKER_LOST, ""),
            number=row.attempt_count + 1,
            key_number=row.key_number,
            started_at=begun.started_at if begun else now,
            finished_at=now,
            worker=row.lease_owner,
            guards=(begun.guards or "") if begun else "",
        )
        return _end(
            row,
            model.judge_lost(facts, deaths, now=now),
            attempt=attempt,
            ambiguous_attempts=row.ambiguous_attempts + 1,
            deaths=deaths,
            intended=begun is not None,
            key_at=key_since if facts.contract.key_lifetime else None,
        )

    def _judge_unsent(self, row: Locked, now: datetime) -> Settlement:
        """Nothing can have left, since that needs an attempt's row first."""
        deaths = _deaths(row)
        return _end(
            row,
            model.judge_lost(self._facts(row, row.attempt_count), deaths, now=now, sent=False),
            withheld=Withheld(at=now, guards="", verdict="lost"),
            ambiguous_attempts=row.ambiguous_attempts,
            deaths=deaths,
            key_at=row.key_at,
        )

    def _judge_silence(self, row: Locked, last: Locked | None, now: datetime) -> Settlement:
        # The attempt was counted when the provider accepted it: the judge is told of it as if it came to an end now.
        facts = self._facts(row, row.attempt_count - 1, key_since=row.key_at)
        outcome = outcomes.Ambiguous(error="no callback in time")
        return _end(
            row,
            model.judge(facts, outcome, now=now, chance=self._world.chance.fraction()),
            ambiguous_attempts=row.ambiguous_attempts + (last is None or not last.ambiguous),
            silent_fence=None if last is None else last.fence,
            key_at=row.key_at,
        )

    def _facts(self, row: Locked, attempt_count: int, *, key_since: datetime | None = None) -> model.Facts:
        contract = self._contracts[row.channel]
        said = policies.load(row.policies)
        return model.Facts(attempt_count=attempt_count, policies=said, contract=contract, key_since=key_since)


def _deaths(row: Locked) -> model.Deaths:
    return model.Deaths(all=row.crash_count + 1, proven=row.proven_crashes + (row.suspect_fence == row.fence))


def _end(row: Locked, transition: model.Transition, **said: Any) -> Settlement:
    return Settlement(
        delivery_id=row.id,
        tenant_id=row.tenant_id,
        fence=row.fence,
        generation=row.generation,
        transition=transition,
        max_attempts=row.max_attempts,
        key_number=row.key_number,
        begins=State(row.state),
        **said,
    )
