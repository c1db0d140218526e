"""Problem documents (RFC 9457): how every error looks, whatever it was."""

import logging
from typing import Any

from fastapi import FastAPI, Request, Response

from campana import errors
from campana.web.bodies import dump

STATUS: dict[type[errors.CampanaError], int] = {
    errors.InvalidError: 422,
    errors.UnreadableError: 400,
    errors.TooLargeError: 413,
    errors.WrongTypeError: 415,
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.NotFoundError: 404,
    errors.MethodError: 405,
    errors.ConflictError: 409,
    errors.AlreadyFinalError: 409,
    errors.TryAgainError: 409,
    errors.InProgressError: 409,
    errors.KeyReusedError: 422,
    errors.TooManyError: 429,
    errors.TooManyLiveError: 429,
    errors.UnavailableError: 503,
}
MEDIA_TYPE = "application/problem+json"


def document(error: errors.CampanaError) -> dict[str, Any]:
    """Return the problem document of an error."""
    said: dict[str, Any] = {
        "type": f"urn:campana:error:{error.code}",
        "title": error.title(),
        "status": STATUS[type(error)],
        "detail": error.detail,
        "code": error.code,
    }
    if isinstance(error, errors.InvalidError):
        said["errors"] = [{"pointer": one.pointer, "code": one.code, "detail": one.detail} for one in error.faults]
    return said


def response(error: errors.CampanaError) -> Response:
    """Return the answer that an error makes."""
    headers = {"cache-control": "no-store"}
    if isinstance(error, errors.TooManyError | errors.UnavailableError | errors.InProgressError):
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    if isinstance(error, errors.UnauthenticatedError):
        headers["www-authenticate"] = 'Bearer realm="campana"'
    return Response(dump(document(error)), status_code=STATUS[type(error)], headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error of the app a problem document, and no error a stack trace."""

    async def ours(request: Request, error: Exception) -> Response:
        del request
        if not isinstance(error, errors.CampanaError) or type(error) not in STATUS:
            raise error
        return response(error)

    async def nowhere(request: Request, error: Exception) -> Response:
        del error
        return response(errors.NotFoundError(f"there is nothing at {request.url.path[:200]}"))

    async def not_so(request: Request, error: Exception) -> Response:
        del error
        allowed = ", ".join(request.app.state.methods(request.url.path))
        answer = response(errors.MethodError(f"expected {allowed} at {request.url.path[:200]}, got {request.method[:20]}"))
        answer.headers["allow"] = allowed
        return answer

    async def bug(request: Request, error: Exception) -> Response:
        request.app.state.office.telemetry.emit(
            logging.ERROR, "api.bug", method=request.method, path=request.url.path, error=repr(error)
        )
        said = {
            "type": "urn:campana:error:internal",
            "title": "Something is wrong inside Campana.",
            "status": 500,
            "detail": "this is a bug and not your fault; the log names it",
            "code": "internal",
        }
        return Response(dump(said), status_code=500, media_type=MEDIA_TYPE)

    app.add_exception_handler(errors.CampanaError, ours)
    app.add_exception_handler(404, nowhere)
    app.add_exception_handler(405, not_so)
    app.add_exception_handler(Exception, bug)
