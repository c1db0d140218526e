"""`campana dead`: what wants a person."""

import json
from typing import Any
from uuid import UUID

import click

from campana.cli import acting, options, tables
from campana.cli import office as offices
from campana.cli.office import Desk
from campana.domain.acts import Act
from campana.operations import acts, deliveries, filters
from campana.operations.office import Actor, Office
from campana.store.deliveries import Record
from campana.web.api import shapes

_ALL = click.option("--all", "every", is_flag=True, help="All dead letters, where no filter is given")


@click.group()
def dead() -> None:
    """Look at dead letters; redrive, discard or resolve them."""


@dead.command("list")
@options.filters
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at the most")
@options.as_json
@options.place
def list_(limit: int, *, as_json: bool, **given: Any) -> None:
    """Show dead letters, the newest first, each with its reason and its last error."""
    wanted = options.wanted(given) | {"status": ["dead_letter"]}

    async def look(desk: Desk) -> list[dict[str, Any]]:
        narrowed = await filters.listing(desk.office, desk.actor, wanted)
        found = await deliveries.newest(desk.office, desk.actor, narrowed, before=None, limit=limit)
        return [shapes.delivery(desk.office, one) for one in found]

    letters = offices.run(look, names=options.NAMES, **given)
    if as_json:
        click.echo(json.dumps(letters, ensure_ascii=False))
    else:
        for one in letters:
            click.echo(_line(one))


@dead.command()
@acting.ids
@options.filters
@_ALL
@options.yes
@options.as_json
@options.place
def redrive(**given: Any) -> None:
    """Send dead letters anew, by ID or by filter: each begins a new generation with a budget of its own."""
    acting.do(Act.REDRIVE, acts.redrive, "dead letters", asks=not given["ids"], **given)


@dead.command()
@acting.ids
@options.filters
@_ALL
@options.yes
@options.as_json
@options.place
def discard(**given: Any) -> None:
    """Put dead letters away for good, by ID or by filter."""
    acting.do(Act.DISCARD, acts.discard, "dead letters", asks=True, **given)


@dead.command()
@click.argument("delivery_id", metavar="ID", type=click.UUID)
@click.argument("effect", type=click.Choice(["sent", "not_sent"]))
@click.option("--note", help="Words for the record")
@options.as_json
@options.place
def resolve(delivery_id: UUID, effect: str, note: str | None, *, as_json: bool, **given: Any) -> None:
    """Say what an ambiguous attempt came to: `sent` completes the delivery, `not_sent` sends it anew."""

    async def decide(office: Office, operator: Actor, one: UUID) -> Record:
        return await acts.resolve(office, operator, one, {"effect": effect, "note": note})

    acting.one_by_one([delivery_id], decide, as_json=as_json, **given)


def _line(one: dict[str, Any]) -> str:
    tries = f"{one['attempt_count']} of {one['max_attempts']}"
    doubt = f", {one['ambiguous_attempts']} ambiguous" if one["ambiguous_attempts"] else ""
    error = f"  {tables.plain(one['last_error'][:100])}" if one["last_error"] else ""
    return f"{one['id']}  {one['finished_at']}  {one['channel']:8}  {one['reason'] or '':12}  {tries}{doubt}{error}"


COMMANDS = {"dead": dead}
