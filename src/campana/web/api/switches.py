"""Routes of switches, and of the safe hold, which is one of them."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from campana import operations
from campana.operations.office import Actor, Office
from campana.web import bodies, idempotency
from campana.web.api import describe, queries, shapes
from campana.web.auth import admit

router = APIRouter(prefix="/v1", tags=["switches"])
Scope = Annotated[str, Path(description="`tenant`, `project:<id or name>`, `channel:<name>`, `schedule:<id>`; `all`, ...")]


def _answer(said: object) -> Response:
    return Response(bodies.dump(said), media_type="application/json")


@router.get("/switches", **describe.SWITCHES)
async def every(request: Request) -> Response:
    """Return the switches that were ever thrown where this key may throw one."""
    office, actor = await admit(request, "read")
    queries.none(request)
    rows = await operations.switches.every(office, actor)
    return _answer(queries.page([shapes.switch(row, actor.tenant_id) for row in rows], None))


@router.put("/switches/{scope:path}", **describe.SWITCH)
async def throw(request: Request, scope: Scope) -> Response:
    """Stop everything under a scope, or let it go on. Engines heed it within two seconds."""
    office, actor = await admit(request, "write")
    queries.none(request)
    full = await operations.switches.place(office, actor, scope)
    row = await operations.switches.throw(office, actor, full, await bodies.read_json(request))
    return _answer(shapes.switch(row, actor.tenant_id))


@router.post("/engine/release", **describe.RELEASE)
async def release(request: Request) -> Response:
    """Lift the safe hold. Reconcile with the providers first: what waits is placed."""
    who = await admit(request, "write")
    queries.none(request)
    await bodies.read_nothing(request)

    async def work(office: Office, actor: Actor) -> Response:
        return _answer({"released": await operations.switches.release(office, actor)})

    return await idempotency.once(request, who, None, work)
