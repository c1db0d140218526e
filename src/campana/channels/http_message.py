"""What is sent and what comes back: requests as bytes, answers and failures as values."""

import re
from dataclasses import dataclass
from functools import lru_cache

from campana.channels.netguard import Url
from campana.domain.ambiguity import Trouble

KEPT = 65_536
"""Bytes of an answer's body that are kept."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TARGET = re.compile(r"/[\x21-\x7e]*")
# The length, the host and the connection are the client's to say; anything else here would be a second opinion.
_OURS = frozenset({"accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"})
_OURS |= {"transfer-encoding", "upgrade"}


class UnsendableError(ValueError):
    """The request would say more on the wire than it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. Host, Content-Length and Accept-Encoding are the client's own, everything else is in `headers`."""

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer: names of headers in lower case, the body as it was on the wire, cut at a cap (`truncated`)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No complete answer; `response` is what had come of one."""

    trouble: Trouble
    detail: str
    response: Response | None = None


@lru_cache(maxsize=1_024)
def _name(name: str) -> str:
    if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
        raise UnsendableError(f"expected a header name that is a token and not the client's own, got {name[:60]!r}")
    return name


def encode(request: Request) -> bytes:
    """Return the request as it goes over the wire; an `UnsendableError` where it can't be trusted to."""
    url, body = request.url, request.body
    lines = [f"{_name(name)}: {value}" for name, value in request.headers]
    if _CONTROL.search("".join([value for _, value in request.headers])):
        raise UnsendableError("expected header values without control characters")
    if not _TOKEN.fullmatch(request.method) or not _TARGET.fullmatch(url.target):
        raise UnsendableError(f"expected a method and a path that fit into a request line, got {request.method[:20]!r}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    start = f"{request.method} {url.target} HTTP/1.1\r\nHost: {url.authority}\r\nAccept-Encoding: identity\r\n"
    head = start + "\r\n".join([*lines, "", ""]) if lines else start + "\r\n"
    try:
        return head.encode("latin-1") + (body or b"")
    except UnicodeEncodeError:
        raise UnsendableError("expected headers of ISO 8859-1 characters") from None
