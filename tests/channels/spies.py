"""A spy on every way that a program connects, and resolvers that lie."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock


@dataclass
class Spy:
    """Every address that a socket of this process was to connect or send to, as it was given."""

    reached: list[str] = field(default_factory=list)
    is_answering: bool = True
    """Whether connections are let through; otherwise each is refused before it leaves the process."""

    def saw(self, address: Any) -> None:
        place = address[0] if isinstance(address, tuple) else address
        self.reached.append(place.decode() if isinstance(place, bytes) else str(place))
        if not self.is_answering:
            raise ConnectionRefusedError(111, "Connection refused")


@contextlib.contextmanager
def spying(*, is_answering: bool = True) -> Iterator[Spy]:
    """Watch asyncio's own doors and those of the sockets below them."""
    spy = Spy(is_answering=is_answering)
    doors: list[tuple[type, str]] = [
        (socket.socket, "connect"), (socket.socket, "connect_ex"), (socket.socket, "sendto"),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for kind, name in doors:
            original = getattr(kind, name)

            def watched(self: Any, *given: Any, _original: Any = original) -> Any:
                if self.family in (socket.AF_INET, socket.AF_INET6):
                    spy.saw(given[-1])
                return _original(self, *given)

            stack.enter_context(mock.patch.object(kind, name, watched))
        original_connect = asyncio.BaseEventLoop.create_connection

        async def create_connection(self: Any, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
            spy.saw((host, port))
            return await original_connect(self, factory, host, port, **options)

        stack.enter_context(mock.patch.object(asyncio.BaseEventLoop, "create_connection", create_connection))
        yield spy


class Names:
    """A resolver that answers what the test says, one answer after the other, the last one for ever."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer
