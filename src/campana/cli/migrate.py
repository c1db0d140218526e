"""`campana migrate`: bring the database to the schema of this version."""

import asyncio
from typing import Any

import click

from campana.cli import database, options


@click.command()
@options.data
def migrate(**given: Any) -> None:
    """Bring the database to the schema of this version; several may try at once, one does it."""
    settings = options.load(**given)
    before, after = asyncio.run(database.upgrade(settings))
    click.echo(
        f"The schema is {after} already." if before == after else f"The schema is {after} now (before: {before or 'none'})."
    )


COMMANDS = {"migrate": migrate}
