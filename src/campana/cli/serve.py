"""`campana up`, `campana engine`, `campana api`: processes that run until they are told to stop."""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import click
import uvicorn

from campana import wiring
from campana.cli import database, options
from campana.errors import SettingsError
from campana.operations import keys
from campana.operations.keys import Bootstrap
from campana.settings import Settings
from campana.web import app as web


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers of its own: one place in this process hears signals."""

    def __init__(self, config: uvicorn.Config, ends: Callable[[], None]) -> None:
        super().__init__(config)
        self._ends = ends

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First those who wait for something are answered, else they would be waited for.
        self._ends()
        await super().shutdown(sockets)


def _run(main: Any) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def _collect_less_often() -> None:
    """What is there by now stays: it is not looked through again, and of what comes hardly anything is in a circle."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


GOODBYE = 5.0
"""Seconds after the grace period in which what is known is written down; who hangs longer, hangs."""


class _Stop:
    """Stop at the first signal, whatever is being done; leave at once at the second, or when it hangs: leases do the rest."""

    def __init__(self, grace: float) -> None:
        self.heard = asyncio.Event()
        self._longest = grace + GOODBYE
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._hear)

    async def cuts(self, work: Coroutine[Any, Any, object]) -> bool:
        """Do the work unless told to stop before it ends; True if that cut it off."""
        task, told = asyncio.ensure_future(work), asyncio.create_task(self.heard.wait())
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if task.done():
            task.result()
            return False
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return True

    def _hear(self) -> None:
        if self.heard.is_set():
            os._exit(1)
        self.heard.set()
        self._loop.call_later(self._longest, self._give_up)

    def _give_up(self) -> None:
        click.echo(f"campana: not at its end {self._longest:.1f} s after the signal; leaving, and leases do the rest", err=True)
        os._exit(1)


def _listen(settings: Settings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        advice = "choose another --port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "check --host"
        # A name that leads nowhere has a number below zero, for which strerror() has no words.
        said = os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else "there is no such address"
        raise SettingsError(f"can't listen on {settings.host}:{settings.port}: {said}; {advice}") from None
    listener.setblocking(False)
    return listener


def _show(settings: Settings, made: Bootstrap, *, key: str) -> None:
    """Show what was made, this once; who gives the key works without eyes, and rotates to get a secret."""
    if settings.bootstrap_key is None:
        if made.key is not None:
            click.echo(f"{key}, shown this once: {made.key.text}")
        if made.signing_secret is not None:
            click.echo(f"Your webhooks are signed with this secret, shown this once: {made.signing_secret}")


def _greet(listener: socket.socket, settings: Settings, made: Bootstrap) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"Campana is ready at http://{shown}:{port} (API description at /docs)")
    _show(settings, made, key="Your key")
    if made.key is not None and settings.bootstrap_key is None:
        click.echo("Try it:")
        click.echo(
            f"  curl -H 'Authorization: Bearer {made.key.text}' -H 'Content-Type: application/json' \\\n"
            f'    -d \'{{"channel": "log", "target": {{"message": "hello"}}}}\' http://{shown}:{port}/v1/deliveries'
        )
    elif made.key is None:
        click.echo("Your key was shown when Campana first started; `campana key create` makes another.")
    if settings.is_development:
        click.echo("Development mode: webhooks may reach this machine, since WEBHOOK_ALLOW_CIDRS is unset.", err=True)


def _api(house: wiring.House) -> _Server:
    return _Server(
        uvicorn.Config(
            web.build(house.office),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
            http="httptools",
        ),
        house.office.waiters.end,
    )


async def _serve(settings: Settings, *, with_engine: bool, with_api: bool, migrates: bool) -> None:
    stop = _Stop(settings.shutdown_grace_seconds)
    async with contextlib.AsyncExitStack() as stack:
        # What can go wrong without a trace goes first: a first start that fails must leave no key that nobody was shown.
        wiring.require_secrets(settings)
        listener = stack.enter_context(_listen(settings)) if with_api else None
        if await stop.cuts(database.upgrade(settings) if migrates else database.require(settings)):
            return
        house = await stack.enter_async_context(wiring.open_house(settings, with_engine=with_engine))
        given = settings.bootstrap_key.get_secret_value() if settings.bootstrap_key is not None else None
        made = await keys.bootstrap(house.office, given)
        if stop.heard.is_set():
            return
        _collect_less_often()
        work, stops = _begin(house, listener)
        if listener is not None:
            _greet(listener, settings, made)
        else:
            _show(settings, made, key="The owner key")
        await _until_stopped(stop, work, stops)


def _begin(house: wiring.House, listener: socket.socket | None) -> tuple[list[asyncio.Task[None]], list[Callable[[], None]]]:
    work: list[asyncio.Task[None]] = []
    stops: list[Callable[[], None]] = []
    if listener is not None:
        server = _api(house)
        work.append(asyncio.create_task(server.serve(sockets=[listener])))
        stops.append(lambda: setattr(server, "should_exit", True))
    if house.engine is not None:
        work.append(asyncio.create_task(house.engine.run()))
        stops.append(house.engine.stop)
    return work, stops


async def _until_stopped(stop: _Stop, work: Sequence[asyncio.Task[None]], stops: Sequence[Callable[[], None]]) -> None:
    told = asyncio.create_task(stop.heard.wait())
    await asyncio.wait([told, *work], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    for one in stops:
        one()
    for came in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(came, BaseException):
            raise came


@click.command()
@options.address
@options.hold
@options.data
def up(**given: Any) -> None:
    """Run the API and an engine in one process; migrate first. On SQLite nothing else is needed."""
    _run(_serve(options.load(**given), with_engine=True, with_api=True, migrates=True))


@click.command()
@options.hold
@options.data
def engine(**given: Any) -> None:
    """Run an engine alone: it claims, delivers and settles."""
    _run(_serve(options.load(**given), with_engine=True, with_api=False, migrates=False))


@click.command()
@options.address
@options.data
def api(**given: Any) -> None:
    """Run the API alone; engines elsewhere do the work."""
    _run(_serve(options.load(**given), with_engine=False, with_api=True, migrates=False))


COMMANDS = {"up": up, "engine": engine, "api": api}
