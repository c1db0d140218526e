"""`campana key`: keys, by somebody who can reach the database."""

import asyncio
from typing import Any

import click

from campana import wiring
from campana.cli import database, options
from campana.operations import keys
from campana.operations.keys import Issued


@click.group()
def key() -> None:
    """Make API keys."""


@key.command()
@click.option("--name", default="cli", show_default=True, help="What the key is for")
@click.option("--installation", is_flag=True, help="The key may also do what concerns the whole installation")
@options.data
def create(name: str, *, installation: bool, **given: Any) -> None:
    """Make an owner key of the tenant `default` and print it, this once."""
    settings = options.load(**given)

    async def make() -> Issued:
        await database.require(settings)
        async with wiring.open_house(settings, with_engine=False) as house:
            return await keys.issue_for_default(house.office, name=name, installation=installation)

    click.echo(asyncio.run(make()).text)


COMMANDS = {"key": key}
