"""When something is wanted: an instant, or a local time and its zone."""

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from campana.domain import instants
from campana.domain.zones import zone
from campana.errors import Fault

NOW_MEANS = timedelta(seconds=60)
"""An `at` that is no longer ago than this means now."""
_HAS_OFFSET = re.compile(r"(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})$")


class Timed(Protocol):
    """Whatever says when."""

    @property
    def at(self) -> str | None:
        """An instant, or a local time; now if None."""

    @property
    def timezone(self) -> str | None:
        """The zone of a local time."""

    @property
    def late(self) -> str | None:
        """What to do if it is past."""


def due(wanted: Timed, unread: Collection[str], now: datetime, found: list[Fault]) -> datetime:
    """Return the instant that is meant, noting every fault; fields that could not be read are not blamed again."""
    place = _place(wanted, found)
    if wanted.at is None:
        return now
    try:
        if "T" not in wanted.at or _HAS_OFFSET.search(wanted.at):
            due_at = instants.parse(wanted.at)
        else:
            due_at = instants.parse_local(wanted.at, place or UTC)
            if place is None:
                if wanted.timezone is None and "timezone" not in unread:
                    found.append(_fault("/timezone", "required", "a local `at` needs a `timezone`, or give `at` an offset"))
                return due_at
    except ValueError as error:
        found.append(_fault("/at", "instant", str(error)))
        return now
    if due_at < now - NOW_MEANS and wanted.late is None and "late" not in unread:
        found.append(_fault("/at", "at_in_past", f"{wanted.at} is past: leave `at` out, or say with `late` what to do"))
    return due_at


def _place(wanted: Timed, found: list[Fault]) -> ZoneInfo | None:
    try:
        return None if wanted.timezone is None else zone(wanted.timezone)
    except ValueError as error:
        found.append(_fault("/timezone", "unknown_timezone", str(error)))
        return None


def _fault(pointer: str, code: str, detail: str) -> Fault:
    return Fault(pointer=pointer, code=code, detail=detail)
