"""Switches: emergency stops, thrown and lifted by name; who did it, when and why is kept with each."""

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from campana import store
from campana.domain import switches
from campana.errors import ForbiddenError, InvalidError, NotFoundError
from campana.operations.office import Actor, Office
from campana.operations.wanted import read

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EXPECTED = (
    "there is no such scope here: expected tenant, project:<id or name>, channel:<name> or schedule:<id>; "
    "for the whole installation all, all/channel:<name>, all/hold or tenant:<id>"
)
Switch = Any


class SwitchWanted(BaseModel):
    """How a switch shall stand."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    off: bool = Field(description="True stops everything under the scope; false lets it go on")
    reason: str = Field("", max_length=500, description="Why, for whoever asks later")


async def every(office: Office, actor: Actor) -> Sequence[Switch]:
    """Return the switches that were ever thrown where the actor may throw one."""
    roots = [switches.tenant(actor.tenant_id), *([switches.ALL] if actor.may("installation") else [])]
    rows = await office.database.read(store.switches.under, roots)
    if actor.project_id is None:
        return rows
    mine = switches.within(actor.tenant_id, "project", actor.project_id)
    return [row for row in rows if row.scope == mine or row.scope.startswith(switches.ALL)]


async def place(office: Office, actor: Actor, said: str) -> str:
    """Return the full scope of what the actor calls so; raise unless it exists and they may throw its switch."""
    kind, _, name = said.removeprefix("all/").partition(":")
    is_wide = said.split("/", maxsplit=1)[0] == switches.ALL or (kind == "tenant" and bool(name))
    if is_wide and not actor.may("installation"):
        raise ForbiddenError("expected a key with the scope `installation` to throw a switch outside its tenant")
    scope = await (_wide(office, said) if is_wide else _narrow(office, actor, said))
    if scope is None or (not is_wide and actor.project_id is not None and kind != "project"):
        raise NotFoundError(_EXPECTED)
    return scope


async def throw(office: Office, actor: Actor, scope: str, said: Any) -> Switch:
    """Set the switch of a full scope; two seconds later nothing that stands under it leaves."""
    reading = read(SwitchWanted, said, {"off": True})
    if reading.faults:
        raise InvalidError(*reading.faults)
    wanted = reading.wanted
    concerned = UUID(scope.partition(":")[2]) if scope.startswith("all/tenant:") else actor.tenant_id
    return await office.database.write(
        store.switches.throw,
        scope,
        off=wanted.off,
        reason=wanted.reason,
        actor=actor.who,
        now=office.world.clock.now(),
        tenant_id=concerned,
    )


async def release(office: Office, actor: Actor, reason: str = "") -> bool:
    """Lift the safe hold, so that calls and messages go out again; False where there was none."""
    scope = await place(office, actor, switches.SAFE_HOLD)
    before = await office.database.read(store.switches.get, scope)
    now = office.world.clock.now()
    if before is not None and not before.off and (before.changed_at, before.actor) == (now, actor.who):
        # It was this very request.
        return True
    if before is None or not before.off:
        return False
    await throw(office, actor, scope, {"off": False, "reason": reason})
    return True


async def _wide(office: Office, said: str) -> str | None:
    if said in {switches.ALL, switches.SAFE_HOLD}:
        return said
    kind, _, name = said.removeprefix("all/").partition(":")
    if said.startswith("all/channel:") and name in switches.CHANNELS:
        return said
    if kind == "tenant" and _ID.fullmatch(name) and UUID(name) in await office.database.read(store.tenants.every):
        return switches.over(UUID(name))
    return None


async def _narrow(office: Office, actor: Actor, said: str) -> str | None:
    kind, _, name = said.partition(":")
    if said == "tenant":
        return switches.tenant(actor.tenant_id)
    if kind == "channel" and name in switches.CHANNELS:
        return switches.within(actor.tenant_id, kind, name)
    if kind == "schedule" and _ID.fullmatch(name):
        return switches.within(actor.tenant_id, kind, name)
    if kind == "project":
        found = await office.database.read(store.tenants.projects_of, actor.tenant_id)
        ids = [one.id for one in found if name in {str(one.id), one.name} and actor.project_id in {None, one.id}]
        return switches.within(actor.tenant_id, kind, ids[0]) if ids else None
    return None
