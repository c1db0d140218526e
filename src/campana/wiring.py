"""Settings become running objects here, and only here are concrete classes named."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from campana import telemetry as told
from campana import world as worlds
from campana.channels import http, http_dialer, netguard
from campana.channels.base import Channel
from campana.channels.log import Log
from campana.channels.python import Handler, Python
from campana.channels.webhook import Webhook
from campana.domain import breakers, retries, switches
from campana.engine.engine import Engine
from campana.engine.options import Options
from campana.engine.secrets import Keyring
from campana.engine.wakeup import Wakeup
from campana.errors import SettingsError
from campana.operations.intake import Intake
from campana.operations.office import Office
from campana.sealing import Sealer
from campana.settings import SHORTEST_SECRET, Settings
from campana.store import servers
from campana.store.database import Database, Runner
from campana.store.filelock import FileLock
from campana.store.notices import Notices
from campana.store.servers import Role, ServerRunner
from campana.store.sqlite import FileRunner
from campana.telemetry import Telemetry
from campana.version import VERSION
from campana.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """Everything that a process of ours is made of."""

    settings: Settings
    world: World
    telemetry: Telemetry
    office: Office
    engine: Engine | None


def require_secrets(settings: Settings) -> None:
    """Raise unless every secret is given, or can be made and kept beside the data."""
    if settings.secret_key is None and settings.file is None:
        raise SettingsError(
            "SECRET_KEY: required on a database server, since all hosts must share it; set CAMPANA_SECRET_KEY to "
            f"{SHORTEST_SECRET} or more random characters, for example {worlds.real().chance.token(32).hex()}"
        )


def secret_of(settings: Settings, world: World) -> bytes:
    """Return the installation's secret: given, or on SQLite made once and kept beside the data."""
    if settings.secret_key is not None:
        return settings.secret_key.get_secret_value().encode()
    require_secrets(settings)
    path = settings.home / "secret.key"
    settings.home.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _keep(path, world.chance.token(32).hex())
    secret = path.read_bytes().strip()
    if len(secret) < SHORTEST_SECRET:
        raise SettingsError(f"{path} should hold {SHORTEST_SECRET} characters or more, it holds {len(secret)}: restore it")
    return secret


def sealer_of(settings: Settings, world: World, secret: bytes) -> Sealer:
    """Return what seals secrets at rest: under the newest key that is given, else under one made of the installation's secret."""
    given = "" if settings.encryption_keys is None else settings.encryption_keys.get_secret_value()
    keys = [part.strip().encode() for part in given.split(",") if part.strip()]
    return Sealer(world.chance, [*keys, secret])


def _keep(path: Path, secret: str) -> None:
    # Written whole beside it and then linked: a crash leaves no half of a secret, and of two processes the first one's stays.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".secret-")
    with os.fdopen(handle, "w") as file:
        file.write(secret)
        file.flush()
        os.fsync(handle)
    with contextlib.suppress(FileExistsError):
        os.link(name, path)
    Path(name).unlink()


def runner_of(settings: Settings, role: Role, size: int | None = None) -> Runner:
    """Return what runs transactions on this kind of database."""
    most = size or settings.database_pool_size
    return FileRunner(settings.url) if settings.is_file else ServerRunner(settings.url, size=most, role=role)


def _listens_at(settings: Settings) -> str | None:
    """Return where notices can be heard: on PostgreSQL, and past any pooler, which would lose them."""
    url = settings.database_direct_url or settings.url
    return url if url.startswith("postgresql") and not servers.is_pooled(url) else None


def options_of(settings: Settings) -> Options:
    """Return an engine's numbers."""
    return Options(
        tick=timedelta(seconds=settings.tick_seconds),
        batch=settings.scheduler_batch_size,
        in_flight=settings.max_in_flight,
        per_host=settings.max_in_flight_per_host,
        breaker=breakers.Policy(
            trip_after=settings.breaker_trip_after,
            first=timedelta(seconds=settings.breaker_first_seconds),
            longest=timedelta(seconds=settings.breaker_longest_seconds),
        ),
        lease=timedelta(seconds=settings.lease_seconds),
        renewal=timedelta(seconds=settings.lease_seconds / 3),
        grace=timedelta(seconds=settings.shutdown_grace_seconds),
        retention=timedelta(days=settings.retention_days),
        hold=settings.hold,
        closed=frozenset({switches.DISABLED_CALLS} if settings.disable_all_calls else ()),
    )


def retry_of(settings: Settings) -> retries.Policy:
    """Return the policy of a delivery that says nothing itself."""
    return retries.Policy(
        max_attempts=settings.retry_max_attempts,
        base=timedelta(seconds=settings.retry_base_delay_seconds),
        cap=timedelta(seconds=settings.retry_cap_seconds),
    )


@contextlib.asynccontextmanager
async def open_house(
    settings: Settings, *, with_engine: bool, handlers: Mapping[str, Handler] | None = None
) -> AsyncIterator[House]:
    """Open what the settings describe; close it in the other order. The schema must be there."""
    async with contextlib.AsyncExitStack() as stack:
        world = worlds.real()
        telemetry = Telemetry(steady=world.clock.steady)
        told.configure(level=settings.log_level, form=settings.log_format)
        secret = secret_of(settings, world)
        sealer = sealer_of(settings, world, secret)
        if with_engine and settings.is_file:
            stack.callback(FileLock.take(settings.url).give_back)
        database = Database(runner_of(settings, Role.API), world, telemetry)
        stack.push_async_callback(database.close)
        rules = netguard.Rules(allow=netguard.networks(settings.allowed_networks))
        wakeup = Wakeup(world.clock)
        heard_at = _listens_at(settings)
        notices = None if heard_at is None else Notices(heard_at, world, telemetry)
        engine = None
        if with_engine:
            engine = await _engine(stack, settings, world, telemetry, database, rules, wakeup, secret, sealer, handlers or {})

        def ring(at: datetime) -> None:
            if engine is not None:
                wakeup.ring(at)
            if notices is not None:
                notices.ring(at)

        names = http_dialer.Names(rules, resolver=http_dialer.sparing(together=2, most=200))
        stack.push_async_callback(names.close)
        office = Office(
            world=world, database=database, telemetry=telemetry, rules=rules, leads_inside=names.leads_inside,
            retry=retry_of(settings), secret=secret, sealer=sealer, intake=Intake(database, world.clock), ring=ring,
            most_live=settings.max_live_per_tenant,
        )  # fmt: skip
        if notices is not None:
            talks = [notices.listen(lambda: wakeup.ring(world.clock.now()))] if engine is not None else [notices.speak()]
            for talk in talks:
                stack.push_async_callback(_end, asyncio.create_task(talk))
        yield House(settings=settings, world=world, telemetry=telemetry, office=office, engine=engine)


async def _engine(  # noqa: PLR0917 - wiring names every part once
    stack: contextlib.AsyncExitStack,
    settings: Settings,
    world: World,
    telemetry: Telemetry,
    database: Database,
    rules: netguard.Rules,
    wakeup: Wakeup,
    secret: bytes,
    sealer: Sealer,
    handlers: Mapping[str, Handler],
) -> Engine:
    pulse = database
    if not settings.is_file:
        # A burst of requests must not take the connections on which outcomes are settled, and nothing those of the heartbeat
        # and the leases.
        database = Database(runner_of(settings, Role.ENGINE), world, telemetry)
        pulse = Database(runner_of(settings, Role.TICK, 2), world, telemetry)
        stack.push_async_callback(database.close)
        stack.push_async_callback(pulse.close)
    client = http.Client(rules, per_host=settings.max_in_flight_per_host)
    keyring = Keyring(world=world, database=database, sealer=sealer, telemetry=telemetry)
    channels: dict[str, Channel] = {
        "webhook": Webhook(client, rules, keyring.keys, user_agent=f"Campana/{VERSION}", now=world.clock.now),
        "log": Log(telemetry),
        "python": Python(handlers),
    }
    for channel in channels.values():
        stack.push_async_callback(channel.close)
    room = settings.max_in_flight
    queues = {"webhook": room, "log": room, **{f"python:{name}": room for name in handlers}}
    return Engine(
        world=world, database=database, pulse=pulse, channels=channels, queues=queues, secret=secret,
        telemetry=telemetry, options=options_of(settings), wakeup=wakeup, keyring=keyring, owns_file=settings.is_file,
    )  # fmt: skip


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
