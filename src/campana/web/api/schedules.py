"""Routes of schedules."""

from typing import Any

from fastapi import APIRouter, Request, Response

from campana import operations
from campana.operations.office import Actor, Office
from campana.web import bodies, idempotency
from campana.web.api import describe, queries
from campana.web.auth import admit

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])

PREVIEW: dict[str, Any] = {
    "summary": "Preview a rule",
    "description": "Its next instants, in UTC and as local clocks show them, with what clocks do to them. Nothing is written.",
    "responses": {200: describe.answer("The instants, in order", "Preview"), **describe.errors(400, 413, 415, 422)},
    "openapi_extra": describe.body(
        "PreviewWanted",
        {"trigger": {"cron": "30 2 * * *"}, "timezone": "America/New_York", "from": "2026-03-07T00:00:00Z", "count": 3},
    ),
}


@router.post("/preview", **PREVIEW)
async def preview(request: Request) -> Response:
    """Return the next instants of a rule."""
    who = await admit(request, "read")
    queries.none(request)
    said = await bodies.read_json(request)

    async def work(office: Office, actor: Actor) -> Response:
        del actor
        told = operations.previews.preview(said, now=office.world.clock.now())
        return Response(bodies.dump(operations.previews.shown(told)), media_type="application/json")

    return await idempotency.once(request, who, said, work)
