"""`campana doctor`: what is wrong with this installation, and what to do about it."""

import asyncio
import re
import zoneinfo
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import click
from pydantic import SecretStr

from campana import wiring
from campana.cli import database, options, tables
from campana.domain import zones
from campana.domain.switches import SAFE_HOLD
from campana.errors import CampanaError
from campana.operations import secrets
from campana.operations.stories import said
from campana.settings import Settings
from campana.store import engines, health, migrate, switches

_FAR = 1.0
_MOST = 20
_LATE = timedelta(seconds=60)
"""Due for longer than that, though an engine serves it, is too long."""
_START = "; start `campana up`, or `campana engine`"
# Up to the last @: a password may hold one, and better too much is hidden than too little.
_PASSWORD = re.compile(r"(://[^:/]*:).*(@)")


@click.command()
@click.option("--settings", "show", is_flag=True, help="Print the effective settings, secrets masked, and do nothing else")
@options.data
def doctor(*, show: bool, **given: Any) -> None:
    """Check settings, database, schema, clock, switches, engines and what is late; exit code 1 if anything is wrong."""
    settings = options.load(**given)
    if show:
        _print_settings(settings)
        return
    findings = asyncio.run(_examine(settings))
    for is_well, line in findings:
        click.echo(("ok    " if is_well else "WRONG ") + line)
    if not all(is_well for is_well, _ in findings):
        raise click.exceptions.Exit(1)


def _print_settings(settings: Settings) -> None:
    for name in sorted(type(settings).model_fields):
        value = getattr(settings, name)
        if name.startswith("database_") and name.endswith("_url"):
            value = _PASSWORD.sub(r"\1***\2", value or (settings.url if name == "database_url" else ""))
        click.echo(f"{name.upper()}={'***' if isinstance(value, SecretStr) else '' if value is None else value}")


async def _examine(settings: Settings) -> list[tuple[bool, str]]:
    findings = [(True, f"settings: {f'SQLite file {settings.file}' if settings.file else 'a database server'}")]
    findings.append(_zones())
    try:
        await database.require(settings)
        findings.append((True, f"schema: {migrate.newest()}"))
        async with wiring.open_house(settings, with_engine=False) as house:
            told = await house.office.database.read(engines.examine)
            away = abs((told.database_now - house.world.clock.wall()).total_seconds()) if told.database_now else 0.0
            advice = "" if away < _FAR else "; Campana follows the database, set this host's clock"
            findings.append((away < _FAR, f"clock: {away:.3f} s from the database's{advice}"))
            findings.append((told.is_read_committed, f"isolation: {told.isolation}"))
            findings.append(_signing(await secrets.unreadable(house.office)))
            findings += _stops(settings, await house.office.database.read(switches.every))
            now = told.database_now or house.world.clock.wall()
            findings += list(work(await house.office.database.read(health.look, now=now), now))
    except CampanaError as error:
        findings.append((False, str(error)))
    return findings


def _signing(unreadable: Sequence[Any]) -> tuple[bool, str]:
    if not unreadable:
        return True, "signing secrets: all can be opened"
    which = ", ".join(sorted({str(row.project_id) for row in unreadable})[:_MOST])
    return False, (
        f"signing secrets: {len(unreadable)} can't be opened, and no webhook leaves of the projects {which}; "
        "add the key that sealed them to ENCRYPTION_KEYS, or `campana project rotate-secret NAME --overlap 0s`"
    )


def _stops(settings: Settings, every: Sequence[Any]) -> Iterator[tuple[bool, str]]:
    calls = "none is placed, since DISABLE_ALL_CALLS is set here" if settings.disable_all_calls else "not disabled here"
    yield True, f"calls: {calls}"
    off = [row for row in every if row.off]
    if any(row.scope == SAFE_HOLD for row in off):
        yield False, "safe hold: engaged; reconcile with the providers, then `campana release`"
    rest = [row for row in off if row.scope != SAFE_HOLD]
    if not rest:
        yield True, "switches: none is off"
    # Somebody wanted it so: that is no fault, and the first thing to know when nothing leaves.
    for row in rest[:_MOST]:
        why = f": {row.reason}" if row.reason else ""
        yield True, tables.plain(f"switches: {row.scope} is off since {said(row.changed_at)}, by {row.actor}{why}")
    if len(rest) > _MOST:
        yield True, f"switches: {len(rest) - _MOST} more are off, see `campana switch list`"


def work(seen: health.Health, now: datetime) -> Iterator[tuple[bool, str]]:
    """Say whether anybody does the work, and what has waited for longer than it should."""
    if seen.engines:
        yield True, f"engines: {seen.engines} running"
    else:
        last = "there never was one" if seen.seen_at is None else f"the last one was seen at {said(seen.seen_at)}"
        yield not seen.due, f"engines: none is running, {last}{_START if seen.due else ''}"
    late = {queue: first for queue, first in seen.due.items() if queue in seen.unserved or now - first > _LATE}
    for queue, first in sorted(late.items())[:_MOST]:
        waits = tables.plain(f"queue {queue}: work has been due since {said(first)}")
        if not seen.engines:
            yield False, waits
        elif queue in seen.unserved:
            yield False, f"{waits}, and no engine that runs serves it; start the program that does"
        else:
            yield False, f"{waits}; engines are behind: see their log"
    if not late:
        yield True, "queues: nothing is late"


def _zones() -> tuple[bool, str]:
    try:
        zones.zone("America/New_York")
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        return False, "time zones: none found; install the package tzdata"
    from importlib.metadata import version

    return True, f"time zones: tzdata {version('tzdata')}"


COMMANDS = {"doctor": doctor}
