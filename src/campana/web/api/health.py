"""Routes that say whether this process is well."""

from fastapi import APIRouter, Response

from campana.web import bodies
from campana.web.api import describe

router = APIRouter(tags=["health"])


@router.get("/health", **describe.HEALTH)
async def health() -> Response:
    """Answer without looking at anything else: for a load balancer."""
    return Response(bodies.dump({"status": "healthy", "service": "campana"}), media_type="application/json")
