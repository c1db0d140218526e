"""Limits: what has just been claimed gets its instants, one update for each scope and batch; each row waits for its own."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from campana import store
from campana.domain import guards, switches
from campana.domain.tickets import Ticket
from campana.engine.deliver import Deliverer
from campana.errors import UnavailableError
from campana.store.database import Database, Urgency
from campana.store.engines import Board
from campana.world import World

AWAY = timedelta(seconds=1)
"""How long a row waits whose limit could not be asked."""


async def reserve(
    world: World, database: Database, deliverer: Deliverer, board: Board, tickets: Sequence[Ticket]
) -> Sequence[Ticket]:
    """Return the tickets, those that stand under a limit with the instant that it hands out to them."""
    if not board.limits:
        return tickets
    has_hosts = any("/host:" in scope for scope in board.limits)
    over: dict[int, list[str]] = {}
    for place, ticket in enumerate(tickets):
        # What is turned away anyway, or has its instant, takes none from the others.
        if ticket.slot_at is None and isinstance(deliverer.rule(ticket).verdict, guards.Allow):
            found = [scope for scope in _scopes(ticket, has_hosts=has_hosts) if scope in board.limits]
            if found:
                over[place] = found
    wanted: dict[str, int] = defaultdict(int)
    for found in over.values():
        for scope in found:
            wanted[scope] += 1
    now = world.clock.now()
    try:
        given = await database.urgently(Urgency.CLAIM, store.limits.reserve, wanted, now=now)
    except UnavailableError:
        given = {scope: [now + AWAY] * count for scope, count in wanted.items()}
    turns = {scope: iter(instants) for scope, instants in given.items()}
    slots: dict[int, datetime] = {
        place: max(next(turns[scope], now) for scope in found if scope in turns)
        for place, found in over.items()
        if any(scope in turns for scope in found)
    }
    return [ticket._replace(slot_at=slots.get(place, ticket.slot_at)) for place, ticket in enumerate(tickets)]


def _scopes(ticket: Ticket, *, has_hosts: bool) -> list[str]:
    place = switches.above(
        tenant_id=ticket.tenant_id, project_id=ticket.project_id, channel=ticket.channel, schedule_id=ticket.schedule_id
    )
    found = list(place)
    if ticket.recipient is not None:
        found.append(switches.within(ticket.tenant_id, "recipient", ticket.recipient))
    if has_hosts:
        url = json.loads(ticket.target).get("url")
        if isinstance(url, str):
            found.append(switches.within(ticket.tenant_id, "host", urlsplit(url).hostname))
    return found
