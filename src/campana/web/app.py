"""The web application: the API's routes and its document."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from campana.operations.office import Office
from campana.version import VERSION
from campana.web import problems
from campana.web.api import acts, bulk, deliveries, describe, health, projects, schedules, switches
from campana.web.auth import Doorkeeper

ROUTERS = (
    deliveries.router,
    acts.router,
    bulk.router,
    schedules.router,
    projects.router,
    switches.router,
    health.router,
)


def routes() -> list[APIRoute]:
    """Return every route of the API."""
    return [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


def methods(path: str) -> list[str]:
    """Return what can be done at a path."""
    exact = [route for route in routes() if route.path == path]
    found = exact or [route for route in routes() if route.path_regex.match(path)]
    return sorted({method for route in found for method in route.methods or ()})


def build(office: Office) -> FastAPI:
    """Return an app that works in this office."""
    app = FastAPI(
        title="Campana",
        version=VERSION,
        summary="Rings on time. Rings once.",
        redirect_slashes=False,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.office = office
    app.state.doorkeeper = Doorkeeper(office)
    app.state.methods = methods
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            said = get_openapi(title=app.title, version=VERSION, summary=app.summary, routes=app.routes)
            app.openapi_schema = describe.complete(said)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's own way of changing the document
    return app
