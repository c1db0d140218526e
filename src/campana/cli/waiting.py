"""Waiting for a delivery at the terminal: `campana remind --wait` and `campana deliveries wait`."""

import json
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

import click

from campana.cli import codes, tables
from campana.cli.office import Desk
from campana.domain import durations
from campana.operations import explain, waiting
from campana.operations.office import Actor
from campana.web.api import shapes


def length(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Read an option that is a duration, as the API reads it."""
    try:
        return None if value is None else durations.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


async def until_final(desk: Desk, actor: Actor, delivery_id: UUID, patience: timedelta | None) -> tuple[dict[str, Any], str]:
    """Return the delivery once it has ended, or as it stands when patience is over, and then what keeps it."""
    most = {} if patience is None else {"seconds": patience.total_seconds()}
    record = await waiting.until_final(desk.office, actor, delivery_id, **most)
    shown = shapes.delivery(desk.office, record)
    return shown, "" if waiting.has_ended(record) else (await explain.explain(desk.office, actor, delivery_id)).text


def tell(shown: dict[str, Any], keeps: str, *, as_json: bool) -> NoReturn:
    """Print how it ended, and end with the exit code that says so."""
    if as_json:
        click.echo(json.dumps(shown, ensure_ascii=False))
    elif not keeps:
        click.echo(_ended(shown))
    if keeps:
        click.echo(f"campana: it has not ended in time: {tables.plain(keeps)}", err=True)
        raise click.exceptions.Exit(codes.NOT_YET)
    raise click.exceptions.Exit(codes.DONE if shown["status"] == "completed" else codes.ENDED_OTHERWISE)


def _ended(shown: dict[str, Any]) -> str:
    tries = f"{shown['attempt_count']} attempt{'' if shown['attempt_count'] == 1 else 's'}"
    reason = f" ({shown['reason']})" if shown["reason"] else ""
    error = f": {tables.plain(shown['last_error'])}" if shown["last_error"] and shown["status"] != "completed" else ""
    return f"{shown['id']}  {shown['status']}{reason} after {tries}{error}"
