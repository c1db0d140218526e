"""What is printed for people: tables that fit the screen, and nothing in them that a terminal would obey."""

import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from campana.domain import instants
from campana.domain.zones import zone

_LEAST = 12
"""Columns that the last cell must have left, or it is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading, and how wide the cells under it are; the one without a width takes what is left."""

    name: str
    width: int | None = None


def width() -> int:
    """Return how many columns the screen has; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def line(columns: Sequence[Column], cells: Sequence[str], screen: int) -> str:
    """Return one line of a table; columns that don't fit the screen are left out."""
    shown, left = [], screen
    for column, cell in zip(columns, cells, strict=True):
        size = min(column.width, left) if column.width is not None and left >= column.width else left
        if (column.width is not None and left < column.width) or (column.width is None and left < _LEAST):
            break
        shown.append(_fit(plain(cell), size if column.width is None else column.width))
        left -= (size if column.width is None else column.width) + 2
    return "  ".join(shown).rstrip()


def heading(columns: Sequence[Column], screen: int) -> str:
    """Return the line above a table."""
    return line(columns, [column.name for column in columns], screen)


def plain(text: object) -> str:
    """Return text on one line without what a terminal obeys: control characters, and signs that turn or hide text."""
    return "".join(" " if one in "\t\r\n" else "\ufffd" if _is_unseen(one) else one for one in str(text))


def _is_unseen(sign: str) -> bool:
    return unicodedata.category(sign) in {"Cc", "Cs", "Zl", "Zp"} or unicodedata.bidirectional(sign) in _TURNING


_TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def _fit(text: str, size: int) -> str:
    taken, kept = 0, ""
    for sign in text:
        wide = _wide(sign)
        if taken + wide > size:
            return _fit_end(kept, size)
        taken, kept = taken + wide, kept + sign
    return kept + " " * (size - taken)


def _fit_end(kept: str, size: int) -> str:
    while kept and sum(map(_wide, kept)) > size - 1:
        kept = kept[:-1]
    return kept + "…" + " " * (size - 1 - sum(map(_wide, kept)))


def _wide(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


# ------------------------------------------------------------------------------------------------------------------ time


def minute(said: str | None) -> str:
    """Return an instant of an answer as a table shows it."""
    return "-" if said is None else f"{said[:10]} {said[11:16]}Z"


def second(said: str | None) -> str:
    """Return an instant of an answer to the second."""
    return "-" if said is None else f"{said[:10]} {said[11:19]}Z"


def both(said: str, timezone: str | None) -> str:
    """Return an instant as it is on the spot, in this zone or in that of this machine, and in UTC."""
    at = instants.parse(said)
    there: tzinfo | None = None if timezone is None else zone(timezone)
    local = at.astimezone(there)
    name = timezone or local.tzname() or "local time"
    utc = f"{_clock(at)} UTC"
    return utc if name == "UTC" else f"{_clock(local)} {name} ({utc})"


def _clock(at: datetime) -> str:
    return at.replace(microsecond=0, tzinfo=None).isoformat(sep=" ")
