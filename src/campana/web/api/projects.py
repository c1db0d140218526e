"""Routes of projects and of what their webhooks are signed with."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from campana import operations
from campana.operations.office import Actor, Office
from campana.web import bodies, idempotency
from campana.web.api import describe, queries, shapes
from campana.web.auth import admit

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Project = Annotated[str, Path(description="Its id or its name")]


def _answer(said: object) -> Response:
    return Response(bodies.dump(said), media_type="application/json", headers={"cache-control": "no-store"})


@router.get("", **describe.PROJECTS)
async def every(request: Request) -> Response:
    """Return the projects that this key may see."""
    office, actor = await admit(request, "read")
    queries.none(request)
    return _answer(queries.page([shapes.project(row) for row in await operations.projects.every(office, actor)], None))


@router.get("/{project}", **describe.PROJECT)
async def get(request: Request, project: Project) -> Response:
    """Return one project, by id or name."""
    office, actor = await admit(request, "read")
    queries.none(request)
    return _answer(shapes.project(await operations.projects.find(office, actor, project)))


@router.get("/{project}/webhook-secrets", **describe.SECRETS)
async def secrets(request: Request, project: Project) -> Response:
    """Return what is known of a project's signing secrets."""
    office, actor = await admit(request, "read")
    queries.none(request)
    rows = await operations.secrets.of_project(office, actor, project)
    return _answer(queries.page([shapes.secret(office, row) for row in rows], None))


@router.post("/{project}/webhook-secrets/rotate", **describe.ROTATE)
async def rotate(request: Request, project: Project) -> Response:
    """Make a new signing secret and show it, once; the older ones end after the overlap."""
    who = await admit(request, "write")
    queries.none(request)
    said = await bodies.read_json_or_nothing(request)

    async def work(office: Office, actor: Actor) -> Response:
        found = await operations.projects.find(office, actor, project)
        return _answer(shapes.made_secret(office, await operations.secrets.rotate(office, actor, found.id, said)))

    return await idempotency.once(request, who, said, work)
