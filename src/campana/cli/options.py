"""Options that several commands share, and the settings that they lead to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from campana.settings import Settings

Decorated = Callable[..., Any]


def data(command: Decorated) -> Decorated:
    """Add `--data` and `--database`."""
    command = click.option("--database", "database_url", help="Database URL; by default a SQLite file in the data folder")(
        command
    )
    return click.option("--data", type=click.Path(path_type=Path), help="Folder for the SQLite file and its secrets")(command)


def address(command: Decorated) -> Decorated:
    """Add `--host` and `--port`."""
    command = click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on (8000)")(command)
    return click.option("--host", help="Address to listen on (127.0.0.1)")(command)


def hold(command: Decorated) -> Decorated:
    """Add `--hold`."""
    said = "Place no call and send no message until `campana release`, as is right after a restore"
    return click.option("--hold", is_flag=True, default=None, help=said)(command)


def load(**given: Any) -> Settings:
    """Return the settings, with what was given on the command line before all else."""
    return Settings.load(**given)
