"""`campana deliveries`: list, show, cancel, move, and wait for them."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import click

from campana.cli import acting, options, tables, waiting
from campana.cli import office as offices
from campana.cli.office import Desk
from campana.cli.tables import Column
from campana.domain.acts import Act
from campana.domain.deliveries import LIVE, WORDS, State
from campana.operations import acts, filters
from campana.operations import deliveries as operations
from campana.operations.office import Actor, Office
from campana.store.deliveries import Record
from campana.web.api import shapes

_ID = click.argument("delivery_id", metavar="ID", type=click.UUID)
_PAGE = 200


@click.group()
def deliveries() -> None:
    """List, show, cancel, move and wait for deliveries."""


# ---------------------------------------------------------------------------------------------------------------- list

_LIST = (
    Column(name="ID", width=36),
    Column(name="STATUS", width=13),
    Column(name="CHANNEL", width=7),
    Column(name="DUE", width=17),
    Column(name="TRIES", width=5),
    Column(name="RECIPIENT", width=20),
    Column(name="LAST ERROR"),
)


@deliveries.command("list")
@click.option("--status", multiple=True, type=click.Choice(list(WORDS)), help="Only in this state; repeatable")
@options.filters
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at the most")
@click.option("--all", "every", is_flag=True, help="All of them, however many")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one delivery a line")
@options.place
def list_(status: Sequence[str], limit: int, *, every: bool, as_json: bool, **given: Any) -> None:
    """Show deliveries, the newest first."""
    wanted = options.wanted(given) | {"status": list(dict.fromkeys(status))}
    screen = tables.width()

    async def look(desk: Desk) -> None:
        narrowed = await filters.listing(desk.office, desk.actor, wanted)
        left, before, shown = limit, None, 0
        while every or left > 0:
            size = _PAGE if every else min(_PAGE, left)
            page = await operations.newest(desk.office, desk.actor, narrowed, before=before, limit=size)
            if page and not shown and not as_json:
                click.echo(tables.heading(_LIST, screen))
            for row in page:
                one = shapes.delivery(desk.office, row)
                click.echo(json.dumps(one, ensure_ascii=False) if as_json else tables.line(_LIST, _cells(one), screen))
            shown, left = shown + len(page), left - len(page)
            if len(page) < size:
                break
            before = page[-1].id

    offices.run(look, names=options.NAMES | {"/status": "--status"}, **given)


def _cells(one: Mapping[str, Any]) -> list[str]:
    tries = f"{one['attempt_count']}/{one['max_attempts']}"
    error = "" if one["status"] == "completed" else one["last_error"] or ""
    return [one["id"], one["status"], one["channel"], tables.minute(one["due_at"]), tries, one["recipient"] or "-", error]


# ---------------------------------------------------------------------------------------------------------------- show

_ATTEMPTS = (
    Column(name="NO", width=4),
    Column(name="STARTED", width=20),
    Column(name="OUTCOME", width=11),
    Column(name="TOOK", width=9),
    Column(name="CODE", width=4),
    Column(name="ERROR"),
)
_LONGEST_VALUE = 1_000


@deliveries.command()
@_ID
@options.as_json
@options.place
def show(delivery_id: UUID, *, as_json: bool, **given: Any) -> None:
    """Show one delivery with its attempts."""
    one = offices.run(lambda desk: _story(desk, delivery_id, shapes.summary), **given)
    if as_json:
        click.echo(json.dumps(one, ensure_ascii=False))
        return
    tries = one.pop("attempts")
    for name, value in one.items():
        if value not in (None, {}, False):
            click.echo(f"{name:20}{_value(value)}")
    if tries:
        click.echo()
        _print_attempts(tries)


@deliveries.command()
@_ID
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one attempt a line")
@options.place
def attempts(delivery_id: UUID, *, as_json: bool, **given: Any) -> None:
    """Show a delivery's attempts, the first one first."""
    tries = offices.run(lambda desk: _story(desk, delivery_id, shapes.attempt), **given)["attempts"]
    if as_json:
        for one in tries:
            click.echo(json.dumps(one, ensure_ascii=False))
    elif tries:
        _print_attempts(tries)


async def _story(desk: Desk, delivery_id: UUID, shape: Any) -> dict[str, Any]:
    record, tries = await operations.story(desk.office, await desk.over(delivery_id), delivery_id)
    return shapes.delivery(desk.office, record) | {"attempts": [shape(desk.office, one) for one in tries]}


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return tables.plain(text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… (--json has all of it)")


def _print_attempts(tries: Sequence[Mapping[str, Any]]) -> None:
    screen = tables.width()
    click.echo(tables.heading(_ATTEMPTS, screen))
    for one in tries:
        number = str(one["number"]) if one["generation"] == 1 else f"{one['generation']}.{one['number']}"
        took = "-" if one["duration_ms"] is None else f"{one['duration_ms']:.0f} ms"
        cells = [number, tables.second(one["started_at"]), one["outcome"] or "under way", took, str(one["response_code"] or "-")]
        click.echo(tables.line(_ATTEMPTS, [*cells, one["error"] or ""], screen))


# ---------------------------------------------------------------------------------------------------------------- acts


@deliveries.command()
@acting.ids
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([state.word for state in State if state in LIVE]),
    help="Only in this state; repeatable",
)
@options.filters
@options.yes
@options.as_json
@options.place
def cancel(status: Sequence[str], **given: Any) -> None:
    """Cancel deliveries that have not ended, by ID or by filter: at once where they wait, else as soon as can be."""

    async def one(office: Office, actor: Actor, delivery_id: UUID) -> Record:
        record, _ = await operations.cancel(office, actor, delivery_id)
        return record

    acting.do(Act.CANCEL, one, "deliveries", asks=True, every=False, status=status, **given)


@deliveries.command()
@_ID
@click.option("--at", required=True, metavar="TIME", help="When: 2026-12-01T09:00 with --tz, or an instant with its offset")
@click.option("--tz", "timezone", metavar="ZONE", help="IANA zone of a local --at")
@click.option("--late", type=click.Choice(["send"]), help="Send now if --at is past")
@options.as_json
@options.place
def reschedule(delivery_id: UUID, at: str, timezone: str | None, late: str | None, *, as_json: bool, **given: Any) -> None:
    """Move a waiting delivery to another time."""
    said = {name: value for name, value in {"at": at, "timezone": timezone, "late": late}.items() if value is not None}

    async def move(desk: Desk) -> dict[str, Any]:
        moved = await acts.reschedule(desk.office, await desk.over(delivery_id), delivery_id, said)
        return shapes.delivery(desk.office, moved)

    one = offices.run(move, names={"/at": "--at", "/timezone": "--tz", "/late": "--late"}, **given)
    click.echo(json.dumps(one, ensure_ascii=False) if as_json else f"{one['id']}  rings {tables.both(one['due_at'], timezone)}")


@deliveries.command()
@_ID
@click.option("--timeout", callback=waiting.length, metavar="DURATION", help="For this long at the most")
@options.as_json
@options.place
def wait(delivery_id: UUID, timeout: timedelta | None, *, as_json: bool, **given: Any) -> None:
    """Wait until a delivery has ended; the exit code says how."""

    async def work(desk: Desk) -> tuple[dict[str, Any], str]:
        return await waiting.until_final(desk, await desk.over(delivery_id), delivery_id, timeout)

    shown, keeps = offices.run(work, **given)
    waiting.tell(shown, keeps, as_json=as_json)


COMMANDS = {"deliveries": deliveries}
