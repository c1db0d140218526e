"""Routes of what people do to deliveries by hand, and of the explanation that they need for it."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from campana import operations
from campana.operations.office import Actor, Office
from campana.web import bodies, idempotency
from campana.web.api import describe, queries, shapes
from campana.web.auth import admit

router = APIRouter(prefix="/v1/deliveries", tags=["deliveries"])
Id = Annotated[str, Path(description="The delivery's id")]


def _answer(office: Office, record: Any) -> Response:
    return Response(bodies.dump(shapes.delivery(office, record)), media_type="application/json")


@router.get("/{delivery_id}/explain", **describe.EXPLAIN)
async def explain(request: Request, delivery_id: Id) -> Response:
    """Say where a delivery stands, everything that keeps it, what happens next and when, and its whole story."""
    office, actor = await admit(request, "read")
    queries.none(request)
    said = await operations.explain.explain(office, actor, queries.uuid(delivery_id))
    return Response(bodies.dump(shapes.explanation(said)), media_type="application/json")


@router.post("/{delivery_id}/redrive", **describe.REDRIVE)
async def redrive(request: Request, delivery_id: Id) -> Response:
    """Begin a dead letter anew: the same delivery key, a new generation with a budget and attempt keys of its own."""
    who = await admit(request, "write")
    queries.none(request)
    await bodies.read_nothing(request)

    async def work(office: Office, actor: Actor) -> Response:
        return _answer(office, await operations.acts.redrive(office, actor, queries.uuid(delivery_id)))

    return await idempotency.once(request, who, None, work)


@router.post("/{delivery_id}/discard", **describe.DISCARD)
async def discard(request: Request, delivery_id: Id) -> Response:
    """Put a dead letter away for good; it ends cancelled."""
    who = await admit(request, "write")
    queries.none(request)
    await bodies.read_nothing(request)

    async def work(office: Office, actor: Actor) -> Response:
        return _answer(office, await operations.acts.discard(office, actor, queries.uuid(delivery_id)))

    return await idempotency.once(request, who, None, work)


@router.post("/{delivery_id}/resolve", **describe.RESOLVE)
async def resolve(request: Request, delivery_id: Id) -> Response:
    """Say what an ambiguous attempt came to: `sent` completes the delivery, `not_sent` sends it anew."""
    who = await admit(request, "write")
    queries.none(request)
    said = await bodies.read_json(request)

    async def work(office: Office, actor: Actor) -> Response:
        return _answer(office, await operations.acts.resolve(office, actor, queries.uuid(delivery_id), said))

    return await idempotency.once(request, who, said, work)


@router.post("/{delivery_id}/reschedule", **describe.RESCHEDULE)
async def reschedule(request: Request, delivery_id: Id) -> Response:
    """Move a waiting delivery to another instant."""
    who = await admit(request, "write")
    queries.none(request)
    said = await bodies.read_json(request)

    async def work(office: Office, actor: Actor) -> Response:
        return _answer(office, await operations.acts.reschedule(office, actor, queries.uuid(delivery_id), said))

    return await idempotency.once(request, who, said, work)
