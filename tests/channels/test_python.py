"""The channel `python`: what a user's function does is its outcome, and none that was stopped begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from campana.channels.base import Parcel
from campana.channels.python import Delivery, Handler, Python
from campana.domain.outcomes import Ambiguous, Delivered, Failed, TimedOut, Withheld

Channels = Callable[..., Python]


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    """Make channels; they are closed in the end."""
    made: list[Python] = []

    def make(handler: Handler, *, threads: int = 4) -> Python:
        made.append(Python({"f": handler}, threads=threads))
        return made[-1]

    yield make
    for channel in made:
        await channel.close()


def parcel(*, handler: str = "f", payload: bytes | None = b'{"a": 1}', timeout: float = 30) -> Parcel:
    return Parcel(
        delivery_id=UUID(int=1),
        tenant_id=UUID(int=2),
        project_id=UUID(int=3),
        delivery_key="dlv_1",
        idempotency_key="1-1-x",
        number=2,
        target={"handler": handler},
        payload=payload,
        due_at=datetime(2026, 3, 1, tzinfo=UTC),
        timeout=timeout,
    )


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_is_given_the_delivery_and_its_return_is_success(channels: Channels, is_async: bool) -> None:
    given: list[Delivery] = []

    async def slowly(delivery: Delivery) -> None:
        given.append(delivery)

    def quickly(delivery: Delivery) -> None:
        given.append(delivery)

    came = await channels(slowly if is_async else quickly).send(parcel(), yes)

    assert came == Delivered()
    [delivery] = given
    assert (delivery.key, delivery.idempotency_key, delivery.attempt, delivery.payload) == ("dlv_1", "1-1-x", 2, {"a": 1})


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(channels: Channels) -> None:
    done = asyncio.Event()

    async def inner() -> None:
        done.set()

    assert await channels(lambda _: inner()).send(parcel(payload=None), yes) == Delivered()
    assert done.is_set()


class UnshowableError(Exception):
    def __str__(self) -> str:
        message = "no"
        raise RuntimeError(message)


RAISED: list[tuple[BaseException, str]] = [
    (ValueError("no such invoice"), "ValueError: no such invoice"),
    (TimeoutError("their own"), "TimeoutError: their own"),
    (asyncio.CancelledError(), "CancelledError: "),
    (SystemExit(3), "SystemExit: 3"),
    (UnshowableError(), "UnshowableError: (it can't be shown)"),
    (ValueError("a\0b\ud800c"), "ValueError: ab?c"),
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("error", "said"), RAISED)
async def test_whatever_a_handler_raises_is_a_failure_and_ends_nothing_else(
    channels: Channels, is_async: bool, error: BaseException, said: str
) -> None:
    async def slowly(_: Delivery) -> None:
        raise error

    def quickly(_: Delivery) -> None:
        raise error

    assert await channels(slowly if is_async else quickly).send(parcel(), yes) == Failed(error=said)


async def test_a_handler_that_is_not_here_fails_for_good(channels: Channels) -> None:
    came = await channels(print).send(parcel(handler="g"), yes)

    assert isinstance(came, Failed)
    assert came.permanent


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_may_not_be_sent_does_not_begin(channels: Channels, is_async: bool) -> None:
    began: list[Any] = []

    async def slowly(delivery: Delivery) -> None:
        began.append(delivery)

    channel = channels(slowly if is_async else began.append, threads=1)
    assert await channel.send(parcel(), no) == Withheld()
    assert not began
    assert await channel.send(parcel(), yes) == Delivered()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_that_does_not_end_in_time_may_have_done_anything(channels: Channels, is_async: bool) -> None:
    free = threading.Event()

    async def slowly(_: Delivery) -> None:
        await asyncio.Event().wait()

    def blocking(_: Delivery) -> None:
        free.wait(30)

    try:
        came = await channels(slowly if is_async else blocking).send(parcel(timeout=0.05), yes)
    finally:
        free.set()
    assert came == Ambiguous(error="the handler did not end within 0.05 s")


async def test_a_handler_that_found_no_thread_in_time_did_nothing(channels: Channels) -> None:
    free, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def blocking(_: Delivery) -> None:
        loop.call_soon_threadsafe(began.set)
        free.wait(30)

    channel = channels(blocking, threads=1)
    first = asyncio.create_task(channel.send(parcel(), yes))
    await began.wait()
    try:
        assert await channel.send(parcel(timeout=0.05), yes) == TimedOut(error="no thread was free within 0.05 s")
    finally:
        free.set()
    assert await first == Delivered()
    assert await channel.send(parcel(), yes) == Delivered()


async def test_the_last_look_comes_after_the_wait_for_a_thread(channels: Channels) -> None:
    free, began = threading.Event(), asyncio.Event()
    loop, asked = asyncio.get_running_loop(), []

    def blocking(_: Delivery) -> None:
        loop.call_soon_threadsafe(began.set)
        free.wait(30)

    async def permit() -> bool:
        asked.append(free.is_set())
        return False

    channel = channels(blocking, threads=1)
    first = asyncio.create_task(channel.send(parcel(), yes))
    await began.wait()
    second = asyncio.create_task(channel.send(parcel(), permit))
    free.set()

    assert (await first, await second) == (Delivered(), Withheld())
    assert asked == [True]


async def test_an_engine_that_gives_up_is_not_told_of_a_failure(channels: Channels) -> None:
    began = asyncio.Event()

    async def slowly(_: Delivery) -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(channels(slowly).send(parcel(), yes))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
