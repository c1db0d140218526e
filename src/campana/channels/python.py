"""Channel `python`: a function of the program that embeds the engine. Sync ones run in threads."""

import asyncio
import contextlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from campana.channels.base import Parcel, Permit
from campana.domain.ambiguity import CONTRACTS
from campana.domain.outcomes import Ambiguous, Delivered, Failed, Outcome, TimedOut, Withheld

THREADS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a handler is given. `key` is the same in every attempt, so that the handler can deduplicate."""

    id: UUID
    key: str
    idempotency_key: str
    attempt: int
    due_at: datetime
    payload: Any


Handler = Callable[[Delivery], Awaitable[Any] | Any]


class Python:
    """Calls the handler that the target names."""

    name = "python"
    contract = CONTRACTS["python"]

    def __init__(self, handlers: Mapping[str, Handler], *, threads: int = THREADS) -> None:
        """Serve these handlers; more may be added to the mapping before the engine starts."""
        self._handlers = handlers
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="campana-handler")
        self._free = asyncio.Semaphore(threads)

    async def send(self, parcel: Parcel, permit: Permit) -> Outcome | Withheld:
        """Run the handler to its end or its deadline; what it raises is a failure of the delivery."""
        handler = self._handlers.get(parcel.target["handler"])
        if handler is None:
            return Failed(error=f"no handler named {parcel.target['handler']!r} in this process", permanent=True)
        delivery = Delivery(
            id=parcel.delivery_id,
            key=parcel.delivery_key,
            idempotency_key=parcel.idempotency_key,
            attempt=parcel.number,
            due_at=parcel.due_at,
            payload=None if parcel.payload is None else json.loads(parcel.payload),
        )
        until = asyncio.get_running_loop().time() + parcel.timeout
        if inspect.iscoroutinefunction(handler):
            if not await permit():
                return Withheld()
            return await _outcome(handler(delivery), until, parcel.timeout)
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            return TimedOut(error=f"no thread was free within {parcel.timeout:g} s")
        # Asked after the wait for a thread: what was stopped meanwhile must not begin.
        may = False
        try:
            may = await permit()
        finally:
            if not may:
                self._free.release()
        return await _outcome(self._in_thread(handler, delivery), until, parcel.timeout) if may else Withheld()

    async def close(self) -> None:
        """Let the threads end; one that hangs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, handler: Handler, delivery: Delivery) -> None:
        loop = asyncio.get_running_loop()
        work = self._threads.submit(handler, delivery)

        def give_back(_: object) -> None:
            # When the thread is free, which may be long after the deadline; or after the loop.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._free.release)

        work.add_done_callback(give_back)
        result = await asyncio.wrap_future(work)
        if inspect.isawaitable(result):
            await result


async def _outcome(work: Awaitable[Any], until: float, seconds: float) -> Outcome:
    deadline = asyncio.timeout_at(until)
    try:
        async with deadline:
            await work
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # A handler may raise a TimeoutError of its own: only our deadline leaves open what it has done.
        if deadline.expired():
            return Ambiguous(error=f"the handler did not end within {seconds:g} s")
        return Failed(error=_words(error))
    return Delivered()


def _words(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an exception that can't even be shown is still only the user's
        said = "(it can't be shown)"
    # What no database keeps would lose the whole record.
    return f"{type(error).__name__}: {said}".replace("\0", "").encode(errors="replace").decode()
