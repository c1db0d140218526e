"""Waiting for a delivery's end: woken at once by what ends in this process, and within a second by what ends elsewhere."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from campana import store
from campana.domain.deliveries import FINAL
from campana.errors import UnavailableError
from campana.operations import deliveries
from campana.operations.office import Actor, Office
from campana.operations.waiters import Waiter
from campana.store.deliveries import Record

UNLESS_SAID = timedelta(seconds=30)
LONGEST = timedelta(seconds=60)
LOOK = 0.4
"""Seconds between two looks for what other processes have ended: one question for all who wait."""


async def wait(
    office: Office, actor: Actor, delivery_id: UUID, *, longest: timedelta, gone: Callable[[], Coroutine[Any, Any, None]]
) -> tuple[Record, Sequence[Any]]:
    """Return a delivery and its attempts once it has ended, the time is over, or nobody listens any more."""
    await deliveries.get(office, actor, delivery_id)
    with _place(office, actor, delivery_id) as waiter:
        listener = asyncio.ensure_future(gone())
        try:
            await _until_final(office, actor, waiter, listener, longest.total_seconds())
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
    return await deliveries.story(office, actor, delivery_id)


async def until_final(office: Office, actor: Actor, delivery_id: UUID, *, seconds: float = math.inf) -> Record:
    """Return a delivery once it has ended, or as it stands after so many seconds, however many they are."""
    clock = office.world.clock
    until = clock.steady() + seconds
    while True:
        longest = timedelta(seconds=max(0.0, min(until - clock.steady(), LONGEST.total_seconds())))
        record, _ = await wait(office, actor, delivery_id, longest=longest, gone=_never)
        if has_ended(record) or clock.steady() >= until:
            return record


async def _never() -> None:
    await asyncio.Event().wait()


def has_ended(record: Record) -> bool:
    """Say whether nothing more will happen to it by itself."""
    return store.deliveries.state(record) in FINAL


@contextlib.contextmanager
def _place(office: Office, actor: Actor, delivery_id: UUID) -> Iterator[Waiter]:
    waiters = office.waiters
    waiter = waiters.come(actor.tenant_id, delivery_id)
    if waiters.watcher is None:
        office.telemetry.listen(waiters.heard)
        waiters.watcher = asyncio.create_task(_watch(office))
    try:
        yield waiter
    finally:
        waiters.go(waiter)
        if not len(waiters) and waiters.watcher is not None:
            office.telemetry.unlisten(waiters.heard)
            waiters.watcher.cancel()
            waiters.watcher = None


async def _until_final(office: Office, actor: Actor, waiter: Waiter, gone: "asyncio.Future[None]", seconds: float) -> None:
    clock = office.world.clock
    until = clock.steady() + seconds
    while True:
        # Before the look: what ends during it rings again.
        waiter.rung.clear()
        if has_ended(await deliveries.get(office, actor, waiter.delivery_id)):
            return
        left = until - clock.steady()
        if left <= 0 or office.waiters.is_over or gone.done():
            return
        rung = asyncio.ensure_future(waiter.rung.wait())
        either: list[asyncio.Future[Any]] = [rung, gone]
        try:
            # The wait alone has an end: a question to the database is not torn off for it.
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            rung.cancel()


async def _watch(office: Office) -> None:
    """Look for all who wait, until cancelled."""
    while True:
        await office.world.clock.sleep(LOOK)
        with contextlib.suppress(UnavailableError):
            for delivery_id in await office.database.read(store.deliveries.ended, office.waiters.awaited):
                office.waiters.wake(delivery_id)
