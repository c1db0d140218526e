"""Options that several commands share, and the settings that they lead to."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from campana.settings import Settings

Decorated = Callable[..., Any]
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON")
yes = click.option("--yes", is_flag=True, help="Do not ask")


def data(command: Decorated) -> Decorated:
    """Add `--data` and `--database`."""
    command = click.option("--database", "database_url", help="Database URL; by default a SQLite file in the data folder")(
        command
    )
    return click.option("--data", type=click.Path(path_type=Path), help="Folder for the SQLite file and its secrets")(command)


def tenant(command: Decorated) -> Decorated:
    """Add `--tenant`, and with it `--data` and `--database`."""
    return click.option("--tenant", metavar="NAME", help="In this tenant; `default`, if left out")(data(command))


def place(command: Decorated) -> Decorated:
    """Add `--tenant` and `--project`: where what is done is done."""
    return click.option("--project", metavar="NAME", help="Only in this project")(tenant(command))


def filters(command: Decorated) -> Decorated:
    """Add what deliveries are found by; `wanted` takes it out again."""
    for name, said in reversed(list(_FILTERS.items())):
        command = click.option(f"--{name.replace('_', '-')}", name, help=said)(command)
    said = "Only with this label; repeatable"
    return click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help=said)(command)


_FILTERS: Mapping[str, str] = {
    "channel": "Only of this channel",
    "recipient": "Only to this recipient",
    "dedupe_key": "Only with this key",
    "provider_call_id": "Only with this id of the provider",
    "due_from": "Due at this instant or later",
    "due_to": "Due before this instant",
}
NAMES: dict[str, str] = {f"/{name}": f"--{name.replace('_', '-')}" for name in _FILTERS} | {"/labels": "--label"}
"""The options behind the JSON pointers of an error."""


def wanted(given: dict[str, Any]) -> dict[str, Any]:
    """Take the filters out of what was given, as the API would be asked for them."""
    said = {name: value for name in _FILTERS if (value := given.pop(name)) is not None}
    found = labels(given.pop("labels"))
    return said | ({"labels": found} if found else {})


def labels(said: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=VALUE, as often as it was given."""
    return pairs(said, "=", "--label", "NAME=VALUE")


def pairs(said: tuple[str, ...], sign: str, option: str, form: str) -> dict[str, str]:
    """Read names and values with a sign between them; each name once."""
    found: dict[str, str] = {}
    for one in said:
        name, parted, value = one.partition(sign)
        if not (name and parted):
            raise click.BadParameter(f"expected {form}, got {one[:60]!r}", param_hint=option)
        if name in found:
            raise click.BadParameter(f"expected {name!r} once", param_hint=option)
        found[name] = value
    return found


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
