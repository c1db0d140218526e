"""A webhook's target as people write it: read once, and every fault in it named at once."""

import re
from collections.abc import Callable, Mapping, Sized
from datetime import timedelta
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from campana.channels import netguard
from campana.domain import durations

Fault = tuple[str, str, str]
"""A JSON pointer within the target, a code, and a sentence."""

METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE")
BODILESS = frozenset({"GET", "DELETE"})
SUCCESS: tuple[int | str, ...] = ("2xx",)
RETRY_ON: tuple[int | str, ...] = (408, 425, 429, "5xx")

GONE = 410

LONGEST_TIMEOUT = timedelta(minutes=5)
LARGEST_BODY = 262_144
MOST_HEADERS = 50
MOST_ENTRIES = 100
LONGEST_HEADER = 4_096

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_CLASS = re.compile(r"[2-5]xx")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

# What frames the message or speaks for us. Authorization, Content-Type and Cookie are the caller's to choose.
_RESERVED = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "date", "expect", "host", "http2-settings", "keep-alive"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "via", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"),
        *("idempotency-key", "user-agent"),
    }
)
_RESERVED_PREFIXES = ("webhook-", "campana-", "svix-", "sec-")


@lru_cache(maxsize=1_024)
def is_reserved(name: str) -> bool:
    """Say whether a header of this name is ours to send, or nobody's."""
    lower = name.lower()
    return lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES)


def matches(status: int, forms: tuple[int | str, ...]) -> bool:
    """Say whether a status is among codes such as 429 and classes such as 5xx."""
    return status in forms or f"{status // 100}xx" in forms


def is_repeated(status: int, forms: tuple[int | str, ...]) -> bool:
    """Say whether a failure of this status is tried again: what is gone is gone, unless the very code is named."""
    return status in forms if status == GONE else matches(status, forms)


def with_query(url: netguard.Url, query: Mapping[str, Any]) -> netguard.Url:
    """Return the URL with these names and values appended to its query; a list repeats its name."""
    if not query:
        return url
    separator = "&" if "?" in url.target else "?"
    target = f"{url.target}{separator}{urlencode(query, doseq=True)}"
    return netguard.Url(scheme=url.scheme, host=url.host, port=url.port, target=target)


def validate(target: Mapping[str, Any], rules: netguard.Rules) -> list[Fault]:
    """Return every fault of a target at once, or nothing; names are not resolved here."""
    faults: list[Fault] = []
    # Whoever sends thousands is told of some: an answer must not outgrow its question, nor the work on it.
    for name in islice((one for one in target if one not in _FIELDS), MOST_ENTRIES):
        known = ", ".join(_FIELDS)
        faults.append((_pointer(name), "unknown_field", f"expected one of {known}"))
    if "url" not in target:
        faults.append(("/url", "missing", "expected a URL such as https://example.com/hook"))
    for name, check in _FIELDS.items():
        if name in target and name != "url":
            faults += check(target[name])
    if "url" in target:
        faults += _url(target["url"], target.get("query"), rules)
    return faults + _together(target)


def _together(target: Mapping[str, Any]) -> list[Fault]:
    present = [name for name in ("body", "body_template") if name in target]
    if len(present) > 1:
        return [("/body", "conflict", "expected either body or body_template, got both")]
    method = target.get("method", "POST")
    if present and method in ("GET", "DELETE"):
        return [(f"/{present[0]}", "conflict", f"expected no body for {method}")]
    return []


def _pointer(*parts: object) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _wrong(name: str, expected: str, value: object) -> list[Fault]:
    return [(_pointer(name), "wrong_type", f"expected {expected}, got {_kind(value)}")]


def _kind(value: object) -> str:
    """Return what kind of JSON a value is."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case Mapping():
            return "an object"
        case _:
            return "a list"


def _too_many(name: str, value: Sized) -> list[Fault]:
    return [(_pointer(name), "invalid", f"expected at most {MOST_ENTRIES} entries, got {len(value)}")]


def _url(value: object, query: object, rules: netguard.Rules) -> list[Fault]:
    if not isinstance(value, str):
        return _wrong("url", "a string", value)
    try:
        url = netguard.parse(value)
    except ValueError as error:
        return [("/url", "invalid", str(error))]
    refused = netguard.url_refusal(url, rules)
    if refused:
        return [("/url", "address_refused", refused)]
    if isinstance(query, Mapping) and not _query(query):
        whole = len(with_query(url, query).target)
        if whole > netguard.LONGEST_URL:
            return [("/query", "invalid", f"expected {netguard.LONGEST_URL} characters at most, with the URL {whole}")]
    return []


def _method(value: object) -> list[Fault]:
    if not isinstance(value, str):
        return _wrong("method", "a string", value)
    if value not in METHODS:
        return [("/method", "invalid", f"expected one of {', '.join(METHODS)}, got {value[:20]!r}")]
    return []


def _headers(value: object) -> list[Fault]:
    if not isinstance(value, Mapping):
        return _wrong("headers", "an object", value)
    if len(value) > MOST_HEADERS:
        return [("/headers", "invalid", f"expected at most {MOST_HEADERS} headers, got {len(value)}")]
    faults: list[Fault] = []
    seen: set[str] = set()
    for name, content in value.items():
        problem = _header(str(name), content) or (
            ("duplicate", "expected each header once, whatever its case") if str(name).lower() in seen else None
        )
        if problem:
            faults.append((_pointer("headers", name), *problem))
        seen.add(str(name).lower())
    return faults


def _header(name: str, value: object) -> tuple[str, str] | None:
    if not _TOKEN.fullmatch(name):
        return "invalid", "expected a header name of letters, digits and hyphens"
    if is_reserved(name):
        return "reserved", f"expected a header of your own: {name} is set by Campana or belongs to the connection"
    if not isinstance(value, str):
        return "wrong_type", f"expected a string, got {_kind(value)}"
    problem = _content(value)
    return ("invalid", problem) if problem else None


def _content(value: str) -> str | None:
    if len(value) > LONGEST_HEADER:
        return f"expected at most {LONGEST_HEADER} characters, got {len(value)}"
    if _CONTROL.search(value) or value != value.strip():
        return "expected a value without line breaks, control characters and surrounding spaces"
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return "expected characters of ISO 8859-1: encode others"
    return None


def _query(value: object) -> list[Fault]:
    if not isinstance(value, Mapping):
        return _wrong("query", "an object", value)
    if len(value) > MOST_ENTRIES:
        return _too_many("query", value)
    faults: list[Fault] = []
    for name, content in value.items():
        parts = content if isinstance(content, list) else [content]
        if not all(isinstance(part, str) for part in parts):
            faults.append((_pointer("query", name), "wrong_type", "expected a string or a list of strings"))
        elif not all(_is_text(part) for part in (str(name), *parts)):
            faults.append((_pointer("query", name), "invalid", "expected Unicode text"))
    return faults


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _body(value: object) -> list[Fault]:
    if not isinstance(value, str):
        return _wrong("body", "a string", value)
    if not _is_text(value):
        return [("/body", "invalid", "expected Unicode text")]
    if len(value.encode()) > LARGEST_BODY:
        return [("/body", "invalid", f"expected at most {LARGEST_BODY} bytes, got {len(value.encode())}")]
    return []


def _timeout(value: object) -> list[Fault]:
    if not isinstance(value, str):
        return _wrong("timeout", "a duration such as 30s", value)
    try:
        length = durations.parse(value)
    except ValueError as error:
        return [("/timeout", "invalid", str(error))]
    if not timedelta(0) < length <= LONGEST_TIMEOUT:
        return [("/timeout", "invalid", f"expected more than nothing and at most 5m, got {value!r}")]
    return []


def _statuses(name: str, least: int) -> Callable[[object], list[Fault]]:
    def check(value: object) -> list[Fault]:
        if not isinstance(value, list | tuple):
            return _wrong(name, "a list of codes and classes", value)
        if len(value) < least:
            return [(_pointer(name), "invalid", "expected at least one code or class, got an empty list")]
        if len(value) > MOST_ENTRIES:
            return _too_many(name, value)
        return [
            (_pointer(name, place), "invalid", "expected a code from 200 to 599 or a class from 2xx to 5xx")
            for place, form in enumerate(value)
            if not _is_status(form)
        ]

    return check


def _is_status(form: object) -> bool:
    if isinstance(form, str):
        return bool(_CLASS.fullmatch(form))
    return isinstance(form, int) and not isinstance(form, bool) and 200 <= form <= 599  # noqa: PLR2004 - final codes


def _elsewhere(_: object) -> list[Fault]:
    """Return nothing: a template is checked where templates are known."""
    return []


_FIELDS: dict[str, Callable[[object], list[Fault]]] = {
    "url": _elsewhere,
    "method": _method,
    "headers": _headers,
    "query": _query,
    "body": _body,
    "body_template": _elsewhere,
    "timeout": _timeout,
    "success": _statuses("success", 1),
    "retry_on": _statuses("retry_on", 0),
}
