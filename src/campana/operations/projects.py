"""Projects: the drawers of a tenant."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from campana import store
from campana.errors import Fault, NotFoundError
from campana.operations.office import Actor, Office

DEFAULT = "default"
NO_PROJECT = "there is no such project for this key"


async def every(office: Office, actor: Actor) -> Sequence[Any]:
    """Return the projects that the actor may see, by name."""
    found = await office.database.read(store.tenants.projects_of, actor.tenant_id)
    return [one for one in found if actor.project_id in (None, one.id)]


async def find(office: Office, actor: Actor, said: str) -> Any:
    """Return the project of this id or name; one answer where it is another's and where there is none."""
    seen = await every(office, actor)
    found = next((one for one in seen if str(one.id) == said), None) or next((one for one in seen if one.name == said), None)
    if found is None:
        raise NotFoundError(NO_PROJECT)
    return found


async def resolve(office: Office, actor: Actor, name: str | None, found: list[Fault], *, missed: set[str] | None = None) -> UUID:
    """Return the project that a request means: the one it names, the key's own, or the default one.

    `missed` names those that were looked for in vain: while it does, the database is not asked again.
    """
    if name is None and actor.project_id is not None:
        return actor.project_id
    wanted, known = name or DEFAULT, office.known_projects
    if (actor.tenant_id, wanted) not in known and not missed:
        await _read(office, actor)
    project_id = known.get((actor.tenant_id, wanted))
    if project_id is None and missed is not None:
        missed.add(wanted)
    if project_id is None or (actor.project_id is not None and project_id != actor.project_id):
        said = f"there is no project {wanted[:60]!r} for this key"
        found.append(Fault(pointer="/project", code="unknown_project", detail=said))
        return actor.project_id or actor.tenant_id
    return project_id


async def named(office: Office, actor: Actor, name: str | None, found: list[Fault]) -> UUID | None:
    """Return the project that a list is narrowed to; a key with a project of its own sees no other."""
    return actor.project_id if name is None else await resolve(office, actor, name, found)


async def learn(office: Office, actor: Actor, ids: Collection[UUID]) -> None:
    """Know the names of these projects of the tenant, so that they can be shown."""
    if not all(project_id in office.project_names for project_id in ids):
        await _read(office, actor)


async def _read(office: Office, actor: Actor) -> None:
    for project in await office.database.read(store.tenants.projects_of, actor.tenant_id):
        office.known_projects[actor.tenant_id, project.name] = project.id
        office.project_names[project.id] = project.name
