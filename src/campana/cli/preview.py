"""`campana preview`: when a rule would ring. It needs no database and no server."""

import json
from typing import Any

import click

from campana import world
from campana.errors import InvalidError
from campana.operations import previews


@click.command()
@click.option("--cron", help="Five fields, or six with seconds first")
@click.option("--every", help="A length such as 90m or 2d")
@click.option("--anchor", help="An instant on the grid of --every; now if left out")
@click.option("--daily", multiple=True, metavar="HH:MM", help="A time of day; as often as you like")
@click.option("--weekday", multiple=True, metavar="DAY", help="Only on these days, of --daily: mon, tue, ...")
@click.option("--rrule", help="DTSTART and RRULE of RFC 5545, with \\n between them")
@click.option("--at", help="One instant, or a local time")
@click.option("--tz", "timezone", help="IANA time zone of the rule; UTC if left out")
@click.option("--dst", type=click.Choice(["shift", "skip"]), default="shift", show_default=True, help="Lost wall times")
@click.option("--fold", type=click.Choice(["first", "second", "both"]), default="first", show_default=True, help="Doubled ones")
@click.option("--from", "from_", help="After this instant; now if left out")
@click.option("--to", help="Up to and with this instant")
@click.option("--count", type=int, default=10, show_default=True, help="So many at the most")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as the API answers it")
def preview(*, as_json: bool, **given: Any) -> None:
    """Show the next instants of a rule, in UTC and as local clocks show them."""
    said = {name: given[name] for name in ("timezone", "to", "dst", "fold", "count") if given[name] is not None}
    said |= {"trigger": _trigger(given)} | ({"from": given["from_"]} if given["from_"] else {})
    try:
        told = previews.preview(said, now=world.real().clock.now())
    except InvalidError as error:
        raise click.UsageError("; ".join(f"{one.pointer.lstrip('/') or 'rule'}: {one.detail}" for one in error.faults)) from None
    shown = previews.shown(told)
    click.echo(json.dumps(shown) if as_json else _page(shown))


def _trigger(given: dict[str, Any]) -> dict[str, Any]:
    said = {name: given[name] for name in ("cron", "every", "anchor", "at") if given[name] is not None}
    if given["rrule"] is not None:
        said["rrule"] = given["rrule"].replace("\\n", "\n")
    if given["daily"]:
        said["daily"] = list(given["daily"])
    if given["weekday"]:
        said["weekdays"] = list(given["weekday"])
    return said


def _page(shown: dict[str, Any]) -> str:
    if not shown["items"]:
        return "It never rings after that." if shown["never"] else "It does not ring in that time."
    lines = [f"{one['local']:<27}{one['at']:<22}{one['note'] or ''}".rstrip() for one in shown["items"]]
    return "\n".join([f"{'LOCAL':<27}UTC", *lines])


COMMANDS = {"preview": preview}
"""What the root of the commands finds here."""
