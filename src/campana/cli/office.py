"""A command that works on the database as the operator at the machine, without a running Campana."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from campana import wiring
from campana.cli import database, options
from campana.operations import keys
from campana.operations.office import Actor, Office

T = TypeVar("T")


def run(work: Callable[[Office, Actor], Awaitable[T]], **given: Any) -> T:
    """Do this work with an office of one's own, and return what came of it."""
    settings = options.load(**given)

    async def act() -> T:
        await database.require(settings)
        async with wiring.open_house(settings, with_engine=False) as house:
            return await work(house.office, await keys.operator(house.office))

    return asyncio.run(act())
