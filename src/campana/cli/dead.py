"""`campana dead`: what wants a person."""

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import click

from campana.cli import office as offices
from campana.cli import options
from campana.domain.acts import Act
from campana.domain.deliveries import State
from campana.errors import CampanaError
from campana.operations import acts, bulk, deliveries, explain, projects
from campana.operations.office import Actor, Office
from campana.store.bulk import Status
from campana.store.deliveries import Filter, Record
from campana.web.api import shapes

Decorated = Callable[..., Any]
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON")
_IDS = click.argument("ids", metavar="[ID]...", nargs=-1, type=click.UUID)
_YES = click.option("--yes", is_flag=True, help="Do not ask")
_ALL = click.option("--all", "every", is_flag=True, help="All dead letters, where no filter is given")


def _filters(command: Decorated) -> Decorated:
    for name in ("project", "recipient", "channel"):
        command = click.option(f"--{name}", help=f"Only of this {name}")(command)
    return click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only with this label; repeatable")(
        command
    )


@click.group()
def dead() -> None:
    """Look at dead letters of the tenant `default`; redrive, discard or resolve them."""


@dead.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at the most")
@_AS_JSON
@options.data
def list_(limit: int, *, as_json: bool, **given: Any) -> None:
    """Show dead letters, the newest first, each with its reason and its last error."""
    wanted = _wanted(given)

    async def look(office: Office, actor: Actor) -> list[dict[str, Any]]:
        found = await deliveries.newest(office, actor, await _filter(office, actor, wanted), before=None, limit=limit)
        return [shapes.delivery(office, one) for one in found]

    letters = offices.run(look, **given)
    if as_json:
        click.echo(json.dumps(letters, ensure_ascii=False))
    else:
        for one in letters:
            click.echo(_line(one))


async def _filter(office: Office, actor: Actor, wanted: dict[str, Any]) -> Filter:
    project = wanted.pop("project", None)
    found: list[Any] = []
    project_id = await projects.named(office, actor, project, found)
    if found:
        raise click.BadParameter(found[0].detail)
    return Filter(states=frozenset({State.DEAD_LETTER}), project_id=project_id, **wanted)


@dead.command()
@_IDS
@_filters
@_ALL
@_YES
@_AS_JSON
@options.data
def redrive(**given: Any) -> None:
    """Send dead letters anew, by ID or by filter: each begins a new generation with a budget of its own."""
    _do(Act.REDRIVE, acts.redrive, asks=not given["ids"], **given)


@dead.command()
@_IDS
@_filters
@_ALL
@_YES
@_AS_JSON
@options.data
def discard(**given: Any) -> None:
    """Put dead letters away for good, by ID or by filter."""
    _do(Act.DISCARD, acts.discard, asks=True, **given)


@dead.command()
@click.argument("delivery_id", metavar="ID", type=click.UUID)
@click.argument("effect", type=click.Choice(["sent", "not_sent"]))
@click.option("--note", help="Words for the record")
@_AS_JSON
@options.data
def resolve(delivery_id: UUID, effect: str, note: str | None, *, as_json: bool, **given: Any) -> None:
    """Say what an ambiguous attempt came to: `sent` completes the delivery, `not_sent` sends it anew."""

    async def decide(office: Office, operator: Actor, one: UUID) -> Record:
        return await acts.resolve(office, operator, one, {"effect": effect, "note": note})

    _one_by_one([delivery_id], decide, as_json=as_json, **given)


def _do(
    act: Act,
    one: Callable[[Office, Actor, UUID], Awaitable[Record]],
    *,
    ids: Sequence[UUID],
    asks: bool,
    every: bool,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    wanted = _wanted(given)
    if bool(ids) == bool(every or wanted):
        raise click.UsageError("expected either the ids of dead letters, or filters, or --all")
    if asks and not yes:
        which = f"{len(ids)} dead letters" if ids else "all dead letters that match" if wanted else "all dead letters"
        click.confirm(f"{act.value.capitalize()} {which}? This can't be undone.", abort=True, err=True)
    if ids:
        _one_by_one(ids, one, as_json=as_json, **given)
    else:
        _by_filter(act, wanted, as_json=as_json, **given)


def _one_by_one(
    ids: Sequence[UUID], one: Callable[[Office, Actor, UUID], Awaitable[Record]], *, as_json: bool, **given: Any
) -> None:
    """Do it to each; one that can't be done is told and holds up no other, and makes exit code 1."""

    async def work(office: Office, operator: Actor) -> list[dict[str, Any] | CampanaError]:
        came: list[dict[str, Any] | CampanaError] = []
        for delivery_id in ids:
            try:
                actor = await explain.owner(office, operator, delivery_id)
                came.append(shapes.delivery(office, await one(office, actor, delivery_id)))
            except CampanaError as error:
                came.append(error)
        return came

    results = offices.run(work, **given)
    if as_json:
        click.echo(json.dumps([one for one in results if isinstance(one, dict)], ensure_ascii=False))
    for delivery_id, result in zip(ids, results, strict=True):
        if isinstance(result, CampanaError):
            click.echo(f"campana: {delivery_id}: {result}", err=True)
        elif not as_json:
            click.echo(f"{delivery_id}  {result['status']}")
    if any(isinstance(one, CampanaError) for one in results):
        raise click.exceptions.Exit(1)


def _by_filter(act: Act, wanted: dict[str, Any], *, as_json: bool, **given: Any) -> None:
    """Do it here and now, with whatever engines are running, and say how far it is."""

    async def work(office: Office, actor: Actor) -> dict[str, Any]:
        begun = await bulk.begin(office, actor, act, wanted)
        while (record := await bulk.work(office, actor, begun)).status == Status.RUNNING:
            _progress(f"{record.done + record.failed} so far")
            await office.world.clock.sleep(0.01)
        _progress("")
        return shapes.operation(record)

    ended = offices.run(work, **given)
    left = f", {ended['failed']} could not be" if ended["failed"] else ""
    click.echo(json.dumps(ended) if as_json else f"{ended['kind']}: {ended['done']} done{left}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{text:40}\r", err=True, nl=False)


def _wanted(given: dict[str, Any]) -> dict[str, Any]:
    """Take the filters out of what was given, as the API would be asked for them."""
    wanted = {name: value for name in ("channel", "recipient", "project") if (value := given.pop(name)) is not None}
    pairs = [label.partition("=") for label in given.pop("labels")]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.BadParameter(f"expected NAME=VALUE, got {name!r}", param_hint="--label")
    return wanted | ({"labels": {name: value for name, _, value in pairs}} if pairs else {})


def _line(one: dict[str, Any]) -> str:
    tries = f"{one['attempt_count']} of {one['max_attempts']}"
    doubt = f", {one['ambiguous_attempts']} ambiguous" if one["ambiguous_attempts"] else ""
    error = f"  {one['last_error'][:100]}" if one["last_error"] else ""
    return f"{one['id']}  {one['finished_at']}  {one['channel']:8}  {one['reason'] or '':12}  {tries}{doubt}{error}"


COMMANDS = {"dead": dead}
