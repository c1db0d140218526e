"""`campana remind`: one delivery, made at the terminal."""

import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from campana.cli import office as offices
from campana.cli import options, tables, waiting
from campana.cli.office import Desk
from campana.domain import instants
from campana.errors import UnreadableError
from campana.operations import deliveries
from campana.operations.wanted import PRIORITIES
from campana.web.api import shapes

_CHANNELS = ("webhook", "python", "log")
_NAMES: Mapping[str, str] = {
    "/target/url": "--to",
    "/target/method": "--method",
    "/target/headers": "--header",
    "/target/body_template": "--template",
    "/target/handler": "--python",
    "/target/message": "--log",
    "/payload": "--payload",
    "/at": "--at",
    "/timezone": "--tz",
    "/late": "--late",
    "/recipient": "RECIPIENT",
    "/dedupe_key": "--dedupe-key",
    "/expires_after": "--expires-after",
    "/on_ambiguous": "--on-ambiguous",
    "/labels": "--label",
    "/project": "--project",
    "/retry/max_attempts": "--retry-attempts",
    "/retry/backoff": "--retry-backoff",
    "/retry/base": "--retry-base",
    "/retry/cap": "--retry-cap",
}


def _target(command: options.Decorated) -> options.Decorated:
    for option in (
        click.option("--template", metavar="JSON|@FILE|-", help="Body of the webhook, filled in from the payload (templates.md)"),
        click.option("--payload", metavar="JSON|@FILE|-", help="What it says; a webhook's body"),
        click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header of the webhook; repeatable"),
        click.option("--method", help="The webhook's method (POST)"),
        click.option("--log", metavar="TEXT", help="Write this to the engine's log"),
        click.option("--python", metavar="HANDLER", help="Call this function of the program that embeds the engine"),
        click.option("--to", "--webhook", "webhook", metavar="URL", help="Send a webhook to this address"),
    ):
        command = option(command)
    return command


def _time(command: options.Decorated) -> options.Decorated:
    for option in (
        click.option("--expires-after", metavar="DURATION", help="Not sent from so long after it is due"),
        click.option("--late", type=click.Choice(["send", "skip"]), help="What to do if --at is past"),
        click.option("--in", "after", callback=waiting.length, metavar="DURATION", help="When: after this long, such as 10m"),
        click.option("--tz", "timezone", metavar="ZONE", help="IANA zone of a local --at, such as Europe/London"),
        click.option("--at", metavar="TIME", help="When: 2026-12-01T09:00 with --tz, or an instant with its offset; else now"),
    ):
        command = option(command)
    return command


def _policy(command: options.Decorated) -> options.Decorated:
    for option in (
        click.option("--on-ambiguous", type=click.Choice(["retry", "hold", "reconcile"]), help="After a doubtful attempt"),
        click.option("--no-retry", is_flag=True, help="Never try again"),
        click.option("--retry-cap", metavar="DURATION", help="The longest delay between attempts"),
        click.option("--retry-base", metavar="DURATION", help="The first delay between attempts"),
        click.option("--retry-backoff", type=click.Choice(["exponential", "linear", "fixed"]), help="How the delay grows"),
        click.option("--retry-attempts", type=int, metavar="N", help="How many attempts at the most"),
        click.option("--priority", type=click.Choice(list(PRIORITIES)), help="Who goes first among what is due"),
        click.option("--dedupe-key", metavar="KEY", help="A second delivery with the same key is the first one"),
        click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A word of your own; repeatable"),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("recipient", required=False)
@_target
@_time
@_policy
@click.option("--wait", is_flag=True, help="Wait until it has ended; the exit code says how")
@click.option("--timeout", callback=waiting.length, metavar="DURATION", help="With --wait: for this long at the most")
@options.as_json
@options.place
def remind(*, wait: bool, timeout: timedelta | None, as_json: bool, **given: Any) -> None:
    """Make one delivery, for RECIPIENT if one is named: a webhook (--to), a call of your code (--python), a log line (--log)."""
    if given["payload"] == given["template"] == "-":
        raise click.UsageError("standard input can be read once: give --payload or --template otherwise")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long --wait waits: give both")
    place = {name: given.pop(name) for name in ("tenant", "project", "data", "database_url")}
    after: timedelta | None = given.pop("after")
    said = _wanted(given, after)

    async def work(desk: Desk) -> tuple[dict[str, Any] | None, str]:
        moment = {} if after is None else {"at": instants.show(desk.office.world.clock.now() + after)}
        made = await deliveries.create(desk.office, desk.actor, said | moment)
        if made.record is None:
            return None, ""
        shown = shapes.delivery(desk.office, made.record) | ({"deduplicated": True} if made.deduplicated else {})
        if not wait:
            return shown, ""
        if not as_json:
            _print(shown, given["timezone"])
        return await waiting.until_final(desk, desk.actor, UUID(shown["id"]), timeout)

    shown, keeps = offices.run(work, names=_NAMES, **place)
    if shown is None:
        click.echo(json.dumps({"deduplicated": True, "delivery": None}) if as_json else "There already, in another project.")
    elif wait:
        waiting.tell(shown, keeps, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(shown, ensure_ascii=False))
    else:
        _print(shown, given["timezone"])


def _wanted(given: Mapping[str, Any], after: timedelta | None) -> dict[str, Any]:
    """Return the delivery as the API would be asked for it."""
    if after is not None and given["at"] is not None:
        raise click.UsageError("expected either --at or --in, got both")
    channel, target = _channel(given)
    retry = {name: given[f"retry_{word}"] for name, word in _RETRY.items() if given[f"retry_{word}"] is not None}
    said: dict[str, Any] = {
        "channel": channel,
        "target": target,
        "payload": None if given["payload"] is None else _json(given["payload"], "--payload"),
        "labels": options.labels(given["labels"]),
        "retry": (retry | ({"enabled": False} if given["no_retry"] else {})) or None,
    }
    for name in ("at", "timezone", "late", "recipient", "dedupe_key", "expires_after", "priority", "on_ambiguous"):
        if given[name] is not None:
            said[name] = given[name]
    return said


_RETRY = {"max_attempts": "attempts", "backoff": "backoff", "base": "base", "cap": "cap"}


def _channel(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    named = [channel for channel in _CHANNELS if given[channel] is not None]
    if len(named) != 1:
        raise click.UsageError("expected one of --to, --python and --log")
    alien = [f"--{name}" for name in ("method", "template") if given[name] is not None] + ["--header"] * bool(given["headers"])
    if named == ["webhook"]:
        target: dict[str, Any] = {"url": given["webhook"]}
        headers = options.pairs(given["headers"], ":", "--header", "'Name: value'")
        target |= {"headers": {name.strip(): value.strip() for name, value in headers.items()}} if headers else {}
        target |= {} if given["method"] is None else {"method": given["method"].upper()}
        target |= {} if given["template"] is None else {"body_template": _json(given["template"], "--template")}
        return "webhook", target
    if alien:
        raise click.UsageError(f"{alien[0]} belongs to a webhook: give --to")
    return (named[0], {"handler": given["python"]}) if named == ["python"] else (named[0], {"message": given["log"]})


def _json(said: str, option: str) -> Any:
    """Read JSON as it stands, from a file, or from standard input."""
    from campana.web import bodies

    try:
        text = sys.stdin.buffer.read() if said == "-" else Path(said[1:]).read_bytes() if said.startswith("@") else said.encode()
        return bodies.parse(text)
    except UnreadableError as error:
        detail = error.detail.replace("the body", "it", 1)
        raise click.BadParameter(f"expected JSON, @FILE or -, but {detail}", param_hint=option) from None
    except (OSError, UnicodeEncodeError) as error:
        raise click.BadParameter(f"can't be read: {error}", param_hint=option) from None


def _print(shown: Mapping[str, Any], timezone: str | None) -> None:
    there = "  (there already: nothing new was made)" if shown.get("deduplicated") else ""
    click.echo(f"{shown['id']}  {shown['status']}{there}")
    if not there or shown["status"] == "scheduled":
        now = "now, " if shown["due_at"] == shown["created_at"] else ""
        click.echo(f"rings {now}{tables.both(shown['due_at'], timezone)}")


COMMANDS = {"remind": remind}
