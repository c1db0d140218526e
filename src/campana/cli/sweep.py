"""`campana sweep`: what is done from time to time, when it was done last, and doing it now."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import click

from campana import store, wiring
from campana.cli import database, options
from campana.domain import durations, instants
from campana.engine.sweeps import Sweeper
from campana.errors import ConflictError
from campana.store.sweeps import SWEEPS

Record = Mapping[str, Any]


@click.group()
def sweep() -> None:
    """Show and run what is done from time to time."""


@sweep.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table")
@options.data
def show(*, as_json: bool, **given: Any) -> None:
    """List the sweeps: how often, when last, how many rows, and how it ended."""
    settings = options.load(**given)

    async def look() -> list[Record]:
        await database.require(settings)
        async with wiring.open_house(settings, with_engine=False) as house:
            return _records(await house.office.database.read(store.sweeps.every))

    _print(asyncio.run(look()), as_json=as_json)


@sweep.command()
@click.argument("name", type=click.Choice(list(SWEEPS)))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table")
@options.data
def run(name: str, *, as_json: bool, **given: Any) -> None:
    """Run one sweep now, due or not; exit code 1 if it fails or is under way elsewhere."""
    settings = options.load(**given)

    async def work() -> tuple[bool | None, list[Record]]:
        await database.require(settings)
        async with wiring.open_house(settings, with_engine=False) as house:
            keep = wiring.options_of(settings).retention
            sweeper = Sweeper(
                me=house.world.new_id(), world=house.world, database=house.office.database, telemetry=house.telemetry, keep=keep
            )
            ended = await sweeper.sweep(name, is_asked=True)
            every = _records(await house.office.database.read(store.sweeps.every))
            return ended, [record for record in every if record["name"] == name]

    ended, records = asyncio.run(work())
    if ended is None:
        raise ConflictError(f"{name} is under way elsewhere: `campana sweep list` says when it has ended")
    _print(records, as_json=as_json)
    if not ended:
        raise click.exceptions.Exit(1)


def _records(found: Mapping[str, Any]) -> list[Record]:
    return [_record(name, found.get(name)) for name in SWEEPS]


def _record(name: str, row: Any) -> Record:
    one = SWEEPS[name]
    return {
        "name": name,
        "what": one.what,
        "period": durations.show(one.period),
        **{at: _shown(row, at) for at in ("started_at", "finished_at", "next_at")},
        "rows": row and row.done,
        "result": _result(row),
        "error": row and row.error,
    }


def _shown(row: Any, name: str) -> str | None:
    at = row and getattr(row, name)
    return at and instants.show(at)


def _result(row: Any) -> str:
    if row is None:
        return "never run"
    if row.finished_at is None:
        return "under way"
    return "failed" if row.error else "done"


_SHOWN = {"name": "SWEEP", "period": "EVERY", "finished_at": "LAST", "next_at": "NEXT", "rows": "ROWS", "result": "RESULT"}


def _print(records: list[Record], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(records, indent=2))
        return
    lines = [tuple(_SHOWN.values()), *(tuple(_cell(record[name]) for name in _SHOWN) for record in records)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for record in records:
        if record["error"]:
            click.echo(f"{record['name']}: {record['error']}")


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


COMMANDS = {"sweep": sweep}
