"""Routes of what is done to many deliveries in the background."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from campana import operations
from campana.domain.acts import Act
from campana.operations.bulk import NO_OPERATION
from campana.operations.office import Actor, Office
from campana.web import bodies, idempotency
from campana.web.api import describe, queries, shapes
from campana.web.auth import admit

router = APIRouter(prefix="/v1", tags=["operations"])
Id = Annotated[str, Path(description="The operation's id")]


@router.post("/deliveries/redrive", **describe.REDRIVE_MANY)
async def redrive(request: Request) -> Response:
    """Begin every dead letter anew that matches; an empty object means all of them."""
    return await _begin(request, Act.REDRIVE)


@router.post("/deliveries/discard", **describe.DISCARD_MANY)
async def discard(request: Request) -> Response:
    """Put every dead letter away for good that matches; an empty object means all of them."""
    return await _begin(request, Act.DISCARD)


@router.post("/deliveries/cancel", **describe.CANCEL_MANY)
async def cancel(request: Request) -> Response:
    """Cancel every delivery that matches and has not ended: at once where it waits, else as soon as it can be."""
    return await _begin(request, Act.CANCEL)


async def _begin(request: Request, act: Act) -> Response:
    who = await admit(request, "write")
    queries.none(request)
    said = await bodies.read_json(request)

    async def work(office: Office, actor: Actor) -> Response:
        begun = await operations.bulk.begin(office, actor, act, said)
        where = {"location": f"/v1/operations/{begun}"}
        return Response(bodies.dump({"operation": str(begun)}), status_code=202, headers=where, media_type=bodies.JSON)

    return await idempotency.once(request, who, said, work)


@router.get("/operations/{operation_id}", **describe.OPERATION)
async def get(request: Request, operation_id: Id) -> Response:
    """Say how far an operation is."""
    office, actor = await admit(request, "read")
    queries.none(request)
    record = await operations.bulk.get(office, actor, queries.uuid(operation_id, NO_OPERATION))
    return Response(bodies.dump(shapes.operation(record)), media_type=bodies.JSON)


@router.post("/operations/{operation_id}/cancel", **describe.STOP)
async def stop(request: Request, operation_id: Id) -> Response:
    """Stop an operation after the batch that is under way; what it has done stays done."""
    who = await admit(request, "write")
    queries.none(request)
    await bodies.read_nothing(request)

    async def work(office: Office, actor: Actor) -> Response:
        record = await operations.bulk.stop(office, actor, queries.uuid(operation_id, NO_OPERATION))
        return Response(bodies.dump(shapes.operation(record)), media_type=bodies.JSON)

    return await idempotency.once(request, who, None, work)
