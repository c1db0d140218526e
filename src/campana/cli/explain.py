"""`campana explain`: where one delivery stands, and why."""

import json
from typing import Any
from uuid import UUID

import click

from campana.cli import office as offices
from campana.cli import options
from campana.operations import explain as operation
from campana.operations.explain import Explanation
from campana.operations.office import Actor, Office
from campana.operations.stories import said
from campana.web.api import shapes


@click.command()
@click.argument("delivery_id", metavar="ID", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as the API answers it")
@options.data
def explain(delivery_id: UUID, *, as_json: bool, **given: Any) -> None:
    """Say where the delivery ID stands, everything that keeps it, what happens next and when, and what happened so far."""

    async def look(office: Office, operator: Actor) -> Explanation:
        return await operation.explain(office, await operation.owner(office, operator, delivery_id), delivery_id)

    told = offices.run(look, **given)
    click.echo(json.dumps(shapes.explanation(told), ensure_ascii=False) if as_json else _page(told))


def _page(told: Explanation) -> str:
    lines = [f"{told.status}{f' ({told.reason})' if told.reason else ''}", told.text, ""]
    return "\n".join([*lines, *(f"{said(line.at)}  {line.text}" for line in told.story)])


COMMANDS = {"explain": explain}
