"""A command that works on the database as the operator at the machine, without a running Campana."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import click

from campana import wiring
from campana.cli import codes, database, options
from campana.errors import InvalidError
from campana.operations import explain, keys
from campana.operations.office import Actor, Office

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where the operator sits: the office, and in which tenant and project what they do is done."""

    office: Office
    actor: Actor
    is_placed: bool
    """True where a tenant or a project was named: then nothing outside of it is reached."""

    async def over(self, delivery_id: UUID) -> Actor:
        """Return who may act on this delivery: wherever it is, unless the operator has named a place."""
        return self.actor if self.is_placed else await explain.owner(self.office, self.actor, delivery_id)


def run(
    work: Callable[[Desk], Awaitable[T]],
    *,
    tenant: str | None = None,
    project: str | None = None,
    names: Mapping[str, str] | None = None,
    **given: Any,
) -> T:
    """Do this work with an office of one's own, and return what came of it; `names` are the options behind JSON pointers."""
    settings = options.load(**given)

    async def act() -> T:
        await database.require(settings)
        async with wiring.open_house(settings, with_engine=False) as house:
            actor = await keys.operator(house.office, tenant=tenant, project=project)
            is_placed = tenant is not None or project is not None
            return await work(Desk(office=house.office, actor=actor, is_placed=is_placed))

    with _in_words(names or {}):
        return asyncio.run(act())


@contextlib.contextmanager
def _in_words(names: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except InvalidError as error:
        for fault in error.faults:
            click.echo(f"campana: {_spoken(fault.pointer, names)}{fault.detail}", err=True)
        raise click.exceptions.Exit(codes.FAILED) from None


def _spoken(pointer: str, names: Mapping[str, str]) -> str:
    """Return the option that a pointer leads to, and the rest of the way."""
    known = [start for start in names if f"{pointer}/".startswith(f"{start}/")]
    if not known:
        return f"{pointer}: " if pointer else ""
    start = max(known, key=len)
    rest = pointer.removeprefix(start).lstrip("/")
    return f"{names[start]}{f' ({rest})' if rest else ''}: "
