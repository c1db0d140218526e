"""Processes on one virtual loop: each can be frozen at any of its callbacks, thawed, or killed without another word."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from campana.testing.clock import VirtualClock
from campana.testing.loop import VirtualLoop

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Process:
    """Whatever runs in its context belongs to it: tasks, timers and callbacks."""

    def __init__(self, loop: ProcessLoop, name: str, clock: VirtualClock) -> None:
        self.name = name
        self.clock = clock
        self.is_frozen = False
        self.died = loop.create_future()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """Those that are not done, in the order in which they were made: a set would have none."""
        self._loop = loop
        self._kept: list[tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]] = []
        self._context = contextvars.copy_context()
        self._context.run(PROCESS.set, self)

    @property
    def is_dead(self) -> bool:
        return self.died.done()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(work, context=self._context.copy())

    def enter(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Every callback of the process comes through here."""
        if self.is_frozen:
            self._kept.append((callback, args, contextvars.copy_context()))
        else:
            callback(*args)

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        """What would have happened meanwhile happens now, in its order."""
        self.is_frozen = False
        kept, self._kept = self._kept, []
        for callback, args, context in kept:
            self._loop.call_soon(callback, *args, context=context)

    async def die(self) -> None:
        """Called from inside, this never returns: from now on the process reaches nothing outside itself."""
        self.kill()
        await self.reach()

    def kill(self) -> None:
        if not self.is_dead:
            self.died.set_result(None)

    async def reach(self) -> None:
        """Return where the process lives; a dead one waits here until it is buried."""
        if self.is_dead:
            await self._loop.create_future()

    async def bury(self) -> None:
        """Called from outside after its death: no task of it is left."""
        self.thaw()
        while self.tasks:
            for task in list(self.tasks):
                task.cancel()
            await asyncio.wait(list(self.tasks))


class ProcessLoop(VirtualLoop):
    """A virtual loop that knows which process each callback and task belongs to."""

    def call_soon(  # type: ignore[override]  # typeshed's variadic generics say the same
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(process.enter, callback, args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, process.enter, callback, args, context=context)

    def create_task(self, coro: Any, *, name: object = None, context: contextvars.Context | None = None) -> asyncio.Task[Any]:
        context = contextvars.copy_context() if context is None else context
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        process = context.get(PROCESS)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda done: process.tasks.pop(done, None), context=contextvars.Context())
        return task
