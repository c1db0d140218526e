"""Which deliveries are meant: words from outside become what the store is asked for."""

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any
from uuid import UUID

from campana.domain import instants
from campana.domain.deliveries import WORDS, State
from campana.errors import Fault, InvalidError
from campana.operations import projects
from campana.operations.office import Actor, Office
from campana.operations.wanted import LettersWanted, ListWanted, read
from campana.store.deliveries import Filter


async def listing(office: Office, actor: Actor, said: Any) -> Filter:
    """Return what a list is narrowed to; raise InvalidError with every fault."""
    reading = read(ListWanted, said, {})
    states = {WORDS[word] for word in reading.wanted.status}
    return await narrow(office, actor, reading.wanted, reading.faults, states)


async def narrow(office: Office, actor: Actor, wanted: LettersWanted, found: list[Fault], states: AbstractSet[State]) -> Filter:
    """Return the filter for these words, in these states; raise InvalidError with what was found before and here."""
    project_id = await projects.named(office, actor, wanted.project, found)
    if found:
        raise InvalidError(*found)
    return Filter(
        states=frozenset(states),
        channel=wanted.channel,
        recipient=wanted.recipient,
        project_id=project_id,
        dedupe_key=wanted.dedupe_key,
        provider_call_id=wanted.provider_call_id,
        schedule_id=None if wanted.schedule_id is None else UUID(wanted.schedule_id),
        due_from=_instant(wanted.due_from),
        due_to=_instant(wanted.due_to),
        labels=wanted.labels,
    )


def _instant(said: str | None) -> datetime | None:
    return None if said is None else instants.parse(said)
