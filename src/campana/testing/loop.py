"""An event loop in which waiting takes no time: when nothing can run, the clock moves on to the next timer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
TURNS = 200_000
"""After so many turns without any time passing, something runs in a circle."""


class StuckError(Exception):
    """Nothing can ever happen again, or the same instant never ends."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs tasks in virtual time. There are no threads, no sockets and no signals in it."""

    def __init__(self) -> None:
        """Begin at second zero."""
        super().__init__()
        self._seconds = 0.0
        self._turns = 0
        # The base class asks its selector to wait; this one is its own.
        self._selector = self

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._seconds

    def select(self, timeout: float | None) -> list[Any]:
        """Pass the time that a real loop would have waited."""
        if timeout is None:
            message = "every task waits for something that nothing will ever bring about"
            raise StuckError(message)
        self._turns = self._turns + 1 if timeout == 0 else 0
        if self._turns > TURNS:
            self._turns = 0
            message = f"{TURNS} turns of the loop at second {self._seconds} and no time has passed"
            raise StuckError(message)
        self._seconds += timeout
        return []

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        """Refuse: a thread would take real time."""
        del executor, args
        message = f"no threads in virtual time: {func!r}"
        raise StuckError(message)

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody outside waits to be woken."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
