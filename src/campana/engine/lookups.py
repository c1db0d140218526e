"""Look-ups: providers are asked what came of attempts that nobody else can tell about; they read, and go on while sends rest."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from campana import store
from campana.channels.base import Asked, Channel
from campana.domain import deliveries as model
from campana.domain import lookups, outcomes, policies
from campana.domain.deliveries import State
from campana.domain.tickets import Settlement, Withheld
from campana.engine import parcels
from campana.engine.options import Options
from campana.engine.settle import Settler
from campana.store.database import Database, Urgency
from campana.store.lookups import Taken
from campana.telemetry import Telemetry
from campana.world import World

AT_ONCE = 20
PATIENCE = timedelta(seconds=30)
"""How long a provider may think before the look-up has failed."""


class Lookups:
    """The look-ups that this engine has under way."""

    def __init__(
        self,
        *,
        world: World,
        database: Database,
        settler: Settler,
        channels: Mapping[str, Channel],
        secret: bytes,
        telemetry: Telemetry,
        options: Options,
    ) -> None:
        """Ask through those channels whose provider can be asked."""
        self._world = world
        self._database = database
        self._settler = settler
        self._channels = {
            name: channel
            for name, channel in channels.items()
            if isinstance(channel, Asked) and channel.contract.lookup_after is not None
        }
        self._secret = secret
        self._telemetry = telemetry
        self._options = options
        self.under_way: set[asyncio.Task[None]] = set()

    async def step(self) -> bool:
        """Begin what is due and has room; True if there may be more."""
        room = AT_ONCE - len(self.under_way)
        if not self._channels or room <= 0:
            return False
        now = self._world.clock.now()
        until = now + max(self._options.lease, 2 * PATIENCE)
        taken = await self._database.urgently(
            Urgency.SETTLE, store.lookups.take, list(self._channels), now=now, until=until, limit=room
        )
        for one in taken:
            task = asyncio.create_task(self._look_up(one))
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)
        return len(taken) >= room

    async def _look_up(self, one: Taken) -> None:
        try:
            self._settler.add(self._judge(one, await self._ask(one)))
        except Exception as error:  # noqa: BLE001 - a bug over one look-up is told; the row comes back at its instant
            self._telemetry.emit(logging.ERROR, "lookup.bug", delivery_id=str(one[0].id), error=repr(error))

    async def _ask(self, one: Taken) -> lookups.Answer:
        row, last = one
        channel = self._channels[row.channel]
        parcel = parcels.make(
            row,
            channel.contract,
            number=last.number if last else max(row.attempt_count, 1),
            key_number=last.key_number if last else row.key_number,
            secret=self._secret,
            options=self._options,
            call_id=row.provider_call_id,
        )
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                return await channel.lookup(parcel)
        except TimeoutError:
            return lookups.Unsure(error=f"no answer within {PATIENCE.total_seconds():g} s")
        except Exception as error:  # noqa: BLE001 - a failed look-up is no absence, whatever made it fail
            self._telemetry.emit(logging.ERROR, "channel.raised", channel=row.channel, delivery_id=str(row.id), error=repr(error))
            return lookups.Unsure(error=f"the channel raised {type(error).__name__}")

    def _judge(self, one: Taken, answer: lookups.Answer) -> Settlement:
        row, _ = one
        now = self._world.clock.now()
        facts = model.Facts(
            # Told as if the attempt came to its end now. A lost worker's was not counted, and costs nothing here either.
            attempt_count=row.attempt_count - 1,
            policies=policies.load(row.policies),
            contract=self._channels[row.channel].contract,
            key_since=row.key_at,
        )
        found = answer.outcome if isinstance(answer, lookups.Found) and not outcomes.is_ambiguous(answer.outcome) else None
        key_number = row.key_number
        if found is not None and model.next_key_number(facts, key_number, found) != key_number:
            # A known failure: under the old key the provider would only say it again.
            key_number = max(key_number, row.attempt_count) + 1
        chance = self._world.chance.fraction()
        return Settlement(
            delivery_id=row.id,
            tenant_id=row.tenant_id,
            fence=row.fence,
            generation=row.generation,
            transition=lookups.judge(facts, answer, since=row.awaiting_since or now, now=now, chance=chance),
            withheld=Withheld(at=now, guards="", verdict="lookup", reason=lookups.words(answer)),
            max_attempts=row.max_attempts,
            key_number=key_number,
            key_at=row.key_at if key_number == row.key_number else None,
            ambiguous_attempts=row.ambiguous_attempts,
            begins=State.IN_PROGRESS,
            found=found,
        )
