"""`campana project` and `campana reseal`: projects, what their webhooks are signed with, and how that is kept."""

import json
from typing import Any

import click

from campana.cli import options
from campana.cli.office import Desk, run
from campana.domain.secrets import OVERLAP
from campana.operations import projects, secrets
from campana.operations.secrets import Resealed
from campana.web.api import shapes

_NAME = click.argument("name")


@click.group()
def project() -> None:
    """Show projects, and what their webhooks are signed with."""


@project.command("list")
@options.as_json
@options.tenant
def list_(*, as_json: bool, **given: Any) -> None:
    """List the projects by name."""

    async def look(desk: Desk) -> list[dict[str, Any]]:
        return [shapes.project(row) for row in await projects.every(desk.office, desk.actor)]

    found = run(look, **given)
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else _lines(f"{one['id']}  {one['name']}" for one in found))


@project.command("secrets")
@_NAME
@options.as_json
@options.tenant
def secrets_(name: str, *, as_json: bool, **given: Any) -> None:
    """Show what is known of the signing secrets of the project NAME, the newest first; never the secrets themselves."""

    async def look(desk: Desk) -> list[dict[str, Any]]:
        return [shapes.secret(desk.office, row) for row in await secrets.of_project(desk.office, desk.actor, name)]

    found = run(look, **given)
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else _lines(map(_line, found)))


@project.command("rotate-secret")
@_NAME
@click.option("--overlap", default=OVERLAP, show_default=True, help="For how long the older ones sign too; 0s: not at all")
@options.as_json
@options.tenant
def rotate_secret(name: str, overlap: str, *, as_json: bool, **given: Any) -> None:
    """Make a new signing secret for the project NAME and print it, this once; webhooks bear it within two seconds."""

    async def change(desk: Desk) -> dict[str, Any]:
        found = await projects.find(desk.office, desk.actor, name)
        made = await secrets.rotate(desk.office, desk.actor, found.id, {"overlap": overlap})
        return shapes.made_secret(desk.office, made)

    made = run(change, **given)
    click.echo(json.dumps(made) if as_json else made["secret"])
    if not as_json:
        click.echo(f"Number {made['number']}, shown this once. Older ones have ended by {made['older_until']}.", err=True)


@click.command()
@options.as_json
@options.data
def reseal(*, as_json: bool, **given: Any) -> None:
    """Seal every secret under the newest of ENCRYPTION_KEYS; exit code 1 if one can't be opened. Then older keys may go."""

    async def work(desk: Desk) -> Resealed:
        return await secrets.reseal(desk.office)

    came = run(work, **given)
    told = f"Sealed anew: {came.done}; not to be opened with the keys that are here: {came.failed}."
    click.echo(json.dumps({"done": came.done, "failed": came.failed}) if as_json else told)
    if came.failed:
        raise click.exceptions.Exit(1)


def _line(one: dict[str, Any]) -> str:
    end = f"until {one['expires_at']}" if one["expires_at"] else ""
    return f"{one['number']:4}  {one['state']:8}  {one['created_at']}  {one['who']}  {end}".rstrip()


def _lines(lines: Any) -> str:
    return "\n".join(lines)


COMMANDS = {"project": project, "reseal": reseal}
