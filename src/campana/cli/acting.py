"""Acts on deliveries, one by one or all that match, shared by the commands that perform them."""

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import click

from campana.cli import codes, options, tables
from campana.cli import office as offices
from campana.cli.office import Desk
from campana.domain.acts import Act
from campana.errors import CampanaError, NotFoundError
from campana.operations import bulk
from campana.operations.office import Actor, Office
from campana.store.bulk import Status
from campana.store.deliveries import Record
from campana.web.api import shapes

One = Callable[[Office, Actor, UUID], Awaitable[Record]]
ids = click.argument("ids", metavar="[ID]...", nargs=-1, type=click.UUID)


def do(
    act: Act, one: One, noun: str, *, ids: Sequence[UUID], asks: bool, every: bool, yes: bool, as_json: bool, **given: Any
) -> None:
    """Do it to these, or to all that match; ask before, where it can't be undone."""
    wanted, project = options.wanted(given), given.get("project")
    status = list(given.pop("status", ()))
    wanted |= {"status": status} if status else {}
    if bool(ids) == bool(every or wanted or (project and not ids)):
        raise click.UsageError(f"expected either the ids of {noun}, or filters{', or --all' if act is not Act.CANCEL else ''}")
    if asks and not yes:
        which = f"{len(ids)} {noun}" if ids else f"all {noun} that match" if wanted or project else f"all {noun}"
        click.confirm(f"{act.value.capitalize()} {which}? This can't be undone.", abort=True, err=True)
    if ids:
        one_by_one(ids, one, as_json=as_json, **given)
    else:
        _by_filter(act, wanted | ({} if project is None else {"project": project}), as_json=as_json, **given)


def one_by_one(ids: Sequence[UUID], one: One, *, as_json: bool, **given: Any) -> None:
    """Do it to each; one that can't be done is told and holds up no other, and makes the exit code."""

    async def work(desk: Desk) -> list[dict[str, Any] | CampanaError]:
        came: list[dict[str, Any] | CampanaError] = []
        for delivery_id in ids:
            try:
                came.append(shapes.delivery(desk.office, await one(desk.office, await desk.over(delivery_id), delivery_id)))
            except CampanaError as error:
                came.append(error)
        return came

    results = offices.run(work, **given)
    if as_json:
        click.echo(json.dumps([one for one in results if isinstance(one, dict)], ensure_ascii=False))
    for delivery_id, result in zip(ids, results, strict=True):
        if isinstance(result, CampanaError):
            click.echo(f"campana: {delivery_id}: {tables.plain(result)}", err=True)
        elif not as_json:
            click.echo(f"{delivery_id}  {result['status']}{', cancelling' if result['cancel_requested'] else ''}")
    errors = [one for one in results if isinstance(one, CampanaError)]
    if errors:
        raise click.exceptions.Exit(codes.NOT_FOUND if all(isinstance(one, NotFoundError) for one in errors) else codes.FAILED)


def _by_filter(act: Act, wanted: dict[str, Any], *, as_json: bool, **given: Any) -> None:
    """Do it here and now, with whatever engines are running, and say how far it is."""

    async def work(desk: Desk) -> dict[str, Any]:
        begun = await bulk.begin(desk.office, desk.actor, act, wanted)
        while (record := await bulk.work(desk.office, desk.actor, begun)).status == Status.RUNNING:
            _progress(f"{record.done + record.failed} so far")
            await desk.office.world.clock.sleep(0.01)
        _progress("")
        return shapes.operation(record)

    ended = offices.run(work, names=options.NAMES, **given)
    left = f", {ended['failed']} could not be" if ended["failed"] else ""
    click.echo(json.dumps(ended) if as_json else f"{ended['kind']}: {ended['done']} done{left}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{text:40}\r", err=True, nl=False)
