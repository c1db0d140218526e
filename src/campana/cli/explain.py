"""`campana explain`: where one delivery stands, and why."""

import json
from typing import Any
from uuid import UUID

import click

from campana.cli import office as offices
from campana.cli import options, tables
from campana.cli.office import Desk
from campana.operations import explain as operation
from campana.operations.explain import Explanation
from campana.operations.stories import said
from campana.web.api import shapes


@click.command()
@click.argument("delivery_id", metavar="ID", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as the API answers it")
@options.place
def explain(delivery_id: UUID, *, as_json: bool, **given: Any) -> None:
    """Say where the delivery ID stands, everything that keeps it, what happens next and when, and what happened so far."""

    async def look(desk: Desk) -> Explanation:
        return await operation.explain(desk.office, await desk.over(delivery_id), delivery_id)

    told = offices.run(look, **given)
    click.echo(json.dumps(shapes.explanation(told), ensure_ascii=False) if as_json else _page(told))


def _page(told: Explanation) -> str:
    lines = [f"{told.status}{f' ({told.reason})' if told.reason else ''}", tables.plain(told.text), ""]
    return "\n".join([*lines, *(f"{said(line.at)}  {tables.plain(line.text)}" for line in told.story)])


COMMANDS = {"explain": explain}
