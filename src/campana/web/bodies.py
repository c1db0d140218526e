"""Bodies: read up to a bound, as strict JSON; written compactly."""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from fastapi import Request

from campana.errors import Fault, InvalidError, TooLargeError, UnreadableError, WrongTypeError

LARGEST = 1 << 20
DEEPEST = 64
PATIENCE = 60.0
"""Seconds that a body may take to arrive; a large one has longer."""
JSON = "application/json"
_ESCAPED_SURROGATE_OR_NUL = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
# An even number of backslashes before it: it is the character, not the six that spell it.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def dump(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def kind(request: Request) -> str:
    """Return the content type that a request says its body has, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_utf8(request: Request) -> bool:
    parameters = request.headers.get("content-type", "").split(";")[1:]
    named = [
        value.strip().strip('"').lower() for name, _, value in (one.partition("=") for one in parameters) if _is_charset(name)
    ]
    return set(named) <= {"utf-8", "utf8"}


def _is_charset(name: str) -> bool:
    return name.strip().lower() == "charset"


async def read(request: Request, *, at_most: int = LARGEST, types: tuple[str, ...] = (JSON,)) -> bytes:
    """Return the body, or refuse one that is too large, of another type, encoded, or too slow."""
    if kind(request) not in types:
        raise WrongTypeError(f"expected content-type {' or '.join(types)}, got {kind(request)[:60] or 'none'}")
    if not _is_utf8(request):
        raise WrongTypeError("expected the charset utf-8, or none named")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongTypeError("expected a body without content-encoding")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told[:20]) > at_most:
        raise TooLargeError(f"expected a body of at most {at_most} bytes, got {told[:20]}")
    return await _gather(request, at_most)


async def _gather(request: Request, at_most: int) -> bytes:
    patience = PATIENCE * max(1, at_most >> 22)
    try:
        async with asyncio.timeout(patience):
            return await _receive(request, at_most)
    except TimeoutError:
        raise UnreadableError(f"the body did not arrive within {patience:g} seconds") from None


async def _receive(request: Request, at_most: int) -> bytes:
    size, parts, more = 0, [], True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise UnreadableError("the connection ended before the body did")
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > at_most:
            raise TooLargeError(f"expected a body of at most {at_most} bytes")
        parts.append(part)
    return b"".join(parts)


async def read_nothing(request: Request) -> None:
    """Accept an absent body or an empty object; refuse fields that nobody would read."""
    if "content-length" not in request.headers and "transfer-encoding" not in request.headers:
        return
    body = await _gather(request, LARGEST)
    if not body.strip():
        return
    said = parse(body)
    if not isinstance(said, dict):
        raise InvalidError(Fault(pointer="", code="wrong_type", detail="expected no body, or an empty object"))
    if said:
        raise InvalidError(
            *(Fault(pointer=f"/{escaped(name)}", code="unknown_field", detail=NO_FIELD) for name in list(said)[:100])
        )


NO_FIELD = "there is no such field"


def escaped(name: str) -> str:
    """Return a name as a JSON pointer spells it."""
    return name.replace("~", "~0").replace("/", "~1")


def parse(body: bytes, *, deepest: int = DEEPEST) -> Any:
    """Read strict JSON: no duplicate names, no NaN, no NUL, no lone surrogates, no endless nesting."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"the body is not UTF-8 (byte {error.start})") from None
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise UnreadableError(f"the body is nested deeper than {deepest}") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"the body is not JSON: {error}") from None
    except ValueError:
        # All else that it says is about digits, more than a Python reads.
        raise UnreadableError("the body holds a number that is too large: it has thousands of digits") from None
    if _is_deep(value, deepest):
        raise UnreadableError(f"the body is nested deeper than {deepest}")
    if "\\u" in text and _ESCAPED_SURROGATE_OR_NUL.search(text):
        _refuse_strays(value)
    return value


async def read_json(request: Request) -> Any:
    """Read a request's body as strict JSON."""
    return parse(await read(request))


async def read_json_or_nothing(request: Request) -> Any:
    """Read a request's body as strict JSON; none at all is an empty object, where nothing has to be said."""
    is_absent = "transfer-encoding" not in request.headers and request.headers.get("content-length", "0") == "0"
    return {} if is_absent else await read_json(request)


def lines(body: bytes) -> Iterator[bytes]:
    """Return the lines of NDJSON that hold anything."""
    return (line for line in body.split(b"\n") if line.strip())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise UnreadableError(f"the body names {name[:60]!r} twice in one object")
            seen.add(name)
    return value


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise UnreadableError(f"the body holds a number that is too large: {text[:40]}")
    return number


def _constant(text: str) -> NoReturn:
    raise UnreadableError(f"the body holds {text}, which is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_float=_number, parse_constant=_constant)


def _is_deep(value: Any, deepest: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > deepest:
            return True
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = [one for one in inner if isinstance(one, dict | list)]
    return False


def _refuse_strays(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if _NUL.search(text):
        raise UnreadableError("the body holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableError("the body holds a lone surrogate") from None
