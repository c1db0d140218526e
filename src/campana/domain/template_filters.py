"""The filters of body templates, a closed set: arguments are checked when a template is saved, values when it is filled in."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final
from urllib.parse import quote

from campana.domain import instants
from campana.domain.zones import zone

Bound = Callable[[Any], Any]
"""A filter with its arguments; it raises ValueError with a sentence for a value that it can't work on."""

LONGEST_FORMAT = 100
MOST_CHARACTERS = 1_000_000


class Missing:
    """What a path leads to where there is nothing."""


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One filter: how its arguments are read, its line in the reference, and an example with what comes of it."""

    bind: Callable[[Sequence[Any]], Bound]
    says: str
    example: str
    gives: Any


def dumps(value: Any) -> str:
    """Return JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def text_of(value: Any) -> str:
    """Return a value as it stands within text: text as it is, everything else as JSON spells it."""
    return value if isinstance(value, str) else dumps(value)


def kind(value: Any) -> str:
    """Return what a value is, in a word of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def _plain(value: Any) -> str:
    if value is None or isinstance(value, list | dict):
        advice = ": give a `default` before" if value is None else ""
        raise ValueError(f"expected text, got {kind(value)}{advice}")
    return text_of(value)


def _without_arguments(work: Callable[[Any], str]) -> Callable[[Sequence[Any]], Bound]:
    def bind(arguments: Sequence[Any]) -> Bound:
        if arguments:
            raise ValueError("expected no argument")
        return work

    return bind


# ------------------------------------------------------------------------------------------------------- default, length


def _default(arguments: Sequence[Any]) -> Bound:
    if len(arguments) != 1:
        raise ValueError("expected one argument, such as default:'none'")
    return lambda value: arguments[0] if value is None or value is MISSING else value


def _truncate(arguments: Sequence[Any]) -> Bound:
    most = arguments[0] if len(arguments) == 1 else None
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST_CHARACTERS:
        raise ValueError("expected a number of characters from 1 on, such as truncate:80")

    def cut(value: Any) -> str:
        text = _plain(value)
        return text if len(text) <= most else text[: most - 1] + "…"

    return cut


# ------------------------------------------------------------------------------------------------------------------ time

_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905 - reads as a calendar
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905 - as above

# Not strftime: what that accepts, and in which language it answers, differs by platform and locale.
DIRECTIVES: Mapping[str, tuple[str, Callable[[datetime], str]]] = {
    "Y": ("the year, `2026`", lambda at: f"{at.year:04}"),
    "y": ("the year's last two digits, `26`", lambda at: f"{at.year % 100:02}"),
    "m": ("the month, `01` to `12`", lambda at: f"{at.month:02}"),
    "B": ("the month's name, `December`", lambda at: _MONTHS[at.month - 1]),
    "b": ("the month's short name, `Dec`", lambda at: _MONTHS[at.month - 1][:3]),
    "d": ("the day of the month, `01` to `31`", lambda at: f"{at.day:02}"),
    "e": ("the day of the month without a zero, `1` to `31`", lambda at: str(at.day)),
    "j": ("the day of the year, `001` to `366`", lambda at: f"{at.timetuple().tm_yday:03}"),
    "A": ("the day of the week, `Tuesday`", lambda at: _DAYS[at.weekday()]),
    "a": ("its short name, `Tue`", lambda at: _DAYS[at.weekday()][:3]),
    "u": ("its number, `1` (Monday) to `7`", lambda at: str(at.isoweekday())),
    "G": ("the year of the ISO week", lambda at: f"{at.isocalendar().year:04}"),
    "V": ("the ISO week, `01` to `53`", lambda at: f"{at.isocalendar().week:02}"),
    "H": ("the hour, `00` to `23`", lambda at: f"{at.hour:02}"),
    "I": ("the hour, `01` to `12`", lambda at: f"{(at.hour - 1) % 12 + 1:02}"),
    "p": ("`AM` or `PM`", lambda at: "AM" if at.hour < 12 else "PM"),  # noqa: PLR2004 - noon
    "M": ("the minute", lambda at: f"{at.minute:02}"),
    "S": ("the second", lambda at: f"{at.second:02}"),
    "f": ("the microsecond, six digits", lambda at: f"{at.microsecond:06}"),
    "z": ("the offset from UTC, `-0500`", lambda at: at.isoformat()[-6:].replace(":", "")),
    "s": ("seconds since 1970 UTC", lambda at: str(instants.to_micros(at) // 1_000_000)),
    "%": ("a percent sign", lambda _: "%"),
}
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})$")
_LONGEST_INSTANT = 40


def _when(form: str) -> Callable[[Sequence[Any]], Bound]:
    def bind(arguments: Sequence[Any]) -> Bound:
        if len(arguments) > 2 or not all(isinstance(one, str) for one in arguments):  # noqa: PLR2004 - form and zone
            raise ValueError("expected a form such as '%Y-%m-%d', and perhaps a time zone")
        said = arguments[0] if arguments else form
        place = zone(arguments[1]) if len(arguments) > 1 else None
        if len(said) > LONGEST_FORMAT:
            raise ValueError(f"expected a form of at most {LONGEST_FORMAT} characters, got {len(said)}")
        for found in _DIRECTIVE.finditer(said):
            if found[1] not in DIRECTIVES:
                known = " ".join(f"%{name}" for name in DIRECTIVES)
                raise ValueError(f"expected some of {known}, got {found[0]!r}")

        def show(value: Any) -> str:
            at = _moment(value)
            here = at if place is None else at.astimezone(place)
            return _DIRECTIVE.sub(lambda found: DIRECTIVES[found[1]][1](here), said)

        return show

    return bind


def _moment(value: Any) -> datetime:
    """Read an RFC 3339 instant, and keep the offset that it was written with."""
    if not isinstance(value, str):
        raise ValueError(f"expected an RFC 3339 instant such as 2026-12-01T14:00:00Z, got {kind(value)}")  # noqa: TRY004 - all refusals of a filter are of one class
    at = instants.parse(value[:_LONGEST_INSTANT])
    found = _OFFSET.search(value)
    if found is None:
        return at.astimezone(UTC)
    away = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return at.astimezone(timezone(away if found[1] == "+" else -away))


FILTERS: Mapping[str, Filter] = {
    "default": Filter(
        bind=_default,
        says="the argument where the path leads to nothing, or to null",
        example="{{ payload.nickname | default:'you' }}",
        gives="you",
    ),
    "upper": Filter(
        bind=_without_arguments(lambda value: _plain(value).upper()),
        says="in capitals",
        example="{{ payload.name | upper }}",
        gives="ANNA",
    ),
    "lower": Filter(
        bind=_without_arguments(lambda value: _plain(value).lower()),
        says="in small letters",
        example="{{ payload.name | lower }}",
        gives="anna",
    ),
    "trim": Filter(
        bind=_without_arguments(lambda value: _plain(value).strip()),
        says="without blanks at both ends",
        example="{{ payload.note | trim }}",
        gives="call first",
    ),
    "truncate": Filter(
        bind=_truncate,
        says="at most so many characters, the last one `…` where something was cut off",
        example="{{ payload.note | trim | truncate:5 }}",
        gives="call…",
    ),
    "date": Filter(
        bind=_when("%Y-%m-%d"),
        says="a day, in the form that is given (`'%Y-%m-%d'`) and the zone that is given (the instant's own offset)",
        example="{{ nominal.utc | date:'%e %B %Y', 'America/New_York' }}",
        gives="1 December 2026",
    ),
    "time": Filter(
        bind=_when("%H:%M"),
        says="a time of day, likewise (`'%H:%M'`)",
        example="{{ nominal.local | time }}",
        gives="09:00",
    ),
    "json": Filter(
        bind=_without_arguments(dumps),
        says="the value as JSON, put in as text",
        example="{{ payload.lines | json }}",
        gives="[1,2]",
    ),
    "urlencode": Filter(
        bind=_without_arguments(lambda value: quote(_plain(value), safe="")),
        says="safe as part of a URL",
        example="https://example.com/?who={{ payload.email | urlencode }}",
        gives="https://example.com/?who=anna%2B1%40example.com",
    ),
}
