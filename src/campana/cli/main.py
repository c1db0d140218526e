"""The root of the commands, and how an error of ours ends one."""

import importlib
import sys
from dataclasses import dataclass
from typing import Any

import click

from campana.cli import codes
from campana.errors import CampanaError, NotFoundError
from campana.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a command is, and its line in the list of commands: known without importing it."""

    module: str
    summary: str


ENTRIES = {
    "up": Entry(module="serve", summary="Run the API and an engine in one process; nothing else is needed."),
    "api": Entry(module="serve", summary="Run the API alone; engines elsewhere do the work."),
    "engine": Entry(module="serve", summary="Run an engine alone."),
    "migrate": Entry(module="migrate", summary="Bring the database to the schema of this version."),
    "doctor": Entry(module="doctor", summary="Say what is wrong here, and what to do about it."),
    "remind": Entry(module="remind", summary="Make one delivery: now, at a time, or in a while."),
    "deliveries": Entry(module="deliveries", summary="List, show, cancel, move and wait for deliveries."),
    "explain": Entry(module="explain", summary="Say where a delivery stands, what keeps it and what comes next."),
    "dead": Entry(module="dead", summary="Look at dead letters; redrive, discard or resolve them."),
    "preview": Entry(module="preview", summary="Show when a rule would ring, with what clocks do to it."),
    "switch": Entry(module="switch", summary="Stop what stands under a scope, or let it go on."),
    "release": Entry(module="switch", summary="Lift the safe hold over calls and messages."),
    "key": Entry(module="key", summary="Make API keys."),
    "project": Entry(module="project", summary="Show projects, and rotate what their webhooks are signed with."),
    "reseal": Entry(module="project", summary="Seal kept secrets under the newest of the encryption keys."),
    "sweep": Entry(module="sweep", summary="Show and run what is done from time to time."),
}


class _Commands(click.Group):
    """Imports a command when it is asked for: `--help` must not load a web framework."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in ENTRIES:
            return None
        command: click.Command = importlib.import_module(f"campana.cli.{ENTRIES[cmd_name].module}").COMMANDS[cmd_name]
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("campana: interrupted; what was done stays done", err=True)
            raise click.exceptions.Exit(codes.INTERRUPTED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in ENTRIES.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="campana")
def root() -> None:
    """Campana delivers reminders, webhooks and calls on time, and never twice."""


def main() -> None:
    """Run a command; an error of ours is one line and its exit code."""
    try:
        root(prog_name="campana")
    except (CampanaError, OSError) as error:
        click.echo(f"campana: {error}", err=True)
        sys.exit(codes.NOT_FOUND if isinstance(error, NotFoundError) else codes.FAILED)
