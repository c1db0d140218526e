"""`campana switch` and `campana release`: emergency stops, by somebody who can reach the database."""

import json
from collections.abc import Sequence
from typing import Any

import click

from campana.cli import options, tables
from campana.cli.office import Desk, run
from campana.operations import switches
from campana.web.api import shapes

_REASON = click.option("--reason", default="", help="Why, for whoever asks later")
_SCOPE = click.argument("scope")


@click.group()
def switch() -> None:
    """Stop what stands under a scope, or let it go on: all, all/channel:NAME, tenant, project:NAME, channel:NAME, ..."""


@switch.command("list")
@options.as_json
@options.place
def list_(*, as_json: bool, **given: Any) -> None:
    """Show every switch that was ever thrown: who did it, when and why."""

    async def look(desk: Desk) -> Sequence[dict[str, Any]]:
        return [shapes.switch(row, desk.actor.tenant_id) for row in await switches.every(desk.office, desk.actor)]

    found = run(look, **given)
    if as_json:
        click.echo(json.dumps(found))
    else:
        for one in found:
            click.echo(_line(one))


@switch.command()
@_SCOPE
@_REASON
@options.as_json
@options.place
def off(scope: str, reason: str, *, as_json: bool, **given: Any) -> None:
    """Stop everything under SCOPE; two seconds later nothing of it leaves."""
    _throw(scope, as_json=as_json, said={"off": True, "reason": reason}, **given)


@switch.command()
@_SCOPE
@_REASON
@options.as_json
@options.place
def on(scope: str, reason: str, *, as_json: bool, **given: Any) -> None:
    """Let what stands under SCOPE go on."""
    _throw(scope, as_json=as_json, said={"off": False, "reason": reason}, **given)


@click.command()
@_REASON
@options.data
def release(reason: str, **given: Any) -> None:
    """Lift the safe hold, after reconciling with the providers: calls and messages that wait go out."""

    async def lift(desk: Desk) -> bool:
        return await switches.release(desk.office, desk.actor, reason)

    click.echo("Released." if run(lift, **given) else "Nothing was held.")


def _throw(scope: str, said: dict[str, Any], *, as_json: bool, **given: Any) -> None:
    async def change(desk: Desk) -> dict[str, Any]:
        full = await switches.place(desk.office, desk.actor, scope)
        return shapes.switch(await switches.throw(desk.office, desk.actor, full, said), desk.actor.tenant_id)

    now = run(change, **given)
    click.echo(json.dumps(now) if as_json else _line(now))


def _line(one: dict[str, Any]) -> str:
    reason = f": {tables.plain(one['reason'])}" if one["reason"] else ""
    return f"{'OFF' if one['off'] else 'on ':3}  {one['scope']:40}  {one['changed_at']}  {one['actor']}{reason}"


COMMANDS = {"switch": switch, "release": release}
