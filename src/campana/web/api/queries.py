"""Query strings: read strictly, every fault at once."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from fastapi import Request

from campana.domain import durations, instants
from campana.errors import Fault, InvalidError, NotFoundError
from campana.operations.deliveries import NO_DELIVERY
from campana.operations.waiting import LONGEST
from campana.operations.wanted import UUID_SPELLED
from campana.web.bodies import escaped

T = TypeVar("T")
MOST = 500
DEFAULT = 50
_MOST_FAULTS = 100
_SECONDS = re.compile(r"[0-9]{1,3}")
_LIMIT = re.compile(r"[1-9][0-9]{0,2}")


class Query:
    """A request's query; ask for each name, then `check`."""

    def __init__(self, request: Request) -> None:
        self._said = request.query_params
        self._known: set[str] = set()
        self.faults: list[Fault] = []

    def every(self, name: str) -> list[str]:
        """Return all values of a repeatable name."""
        self._known.add(name)
        return self._said.getlist(name)

    def one(self, name: str, read: Callable[[str], T]) -> T | None:
        """Return one value, read; a second one is a fault."""
        said = self.every(name)
        if len(said) > 1:
            self.fail(name, "repeated", "expected this once")
        if not said:
            return None
        try:
            return read(said[0])
        except ValueError as error:
            self.fail(name, "invalid", str(error))
            return None

    def fail(self, name: str, code: str, detail: str) -> None:
        """Note a fault."""
        self.faults.append(Fault(pointer=f"/{escaped(name)}", code=code, detail=detail))

    def labels(self) -> Mapping[str, str]:
        """Return what `label.<name>` asks for."""
        names = [name for name in self._said if name.startswith("label.") and name != "label."]
        asked = {name.removeprefix("label."): self.one(name, label) for name in names}
        return {name: value for name, value in asked.items() if value is not None}

    def narrowing(self, *others: str) -> bytes:
        """Return what narrows the list, in one spelling: all that is asked but for these names."""
        return repr(sorted((name, value) for name, value in self._said.multi_items() if name not in others)).encode()

    def check(self) -> None:
        """Raise what was found, unknown names included."""
        for name in sorted(set(self._said) - self._known)[:_MOST_FAULTS]:
            self.fail(name, "unknown_field", "there is no such parameter")
        if self.faults:
            raise InvalidError(*self.faults)


def none(request: Request) -> None:
    """Refuse a query where nothing can be asked."""
    Query(request).check()


def text(said: str) -> str:
    """Read text that a database can hold."""
    if not said:
        message = "expected some text, got none"
        raise ValueError(message)
    return label(said)


def label(said: str) -> str:
    """Read text that a database can hold, or none."""
    if "\0" in said:
        message = "expected text without NUL"
        raise ValueError(message)
    return said


def limit(said: str) -> int:
    """Read a page's size."""
    if not (_LIMIT.fullmatch(said) and int(said) <= MOST):
        message = f"expected 1 to {MOST}, got {said[:20]!r}"
        raise ValueError(message)
    return int(said)


def instant(said: str) -> datetime:
    """Read an RFC 3339 instant; a plus that became a blank on the way is taken for what it was."""
    return instants.parse(said.replace(" ", "+") if "T" in said.upper() else said)


def schedule(said: str) -> UUID:
    """Read a schedule's id."""
    if not UUID_SPELLED.fullmatch(said):
        message = f"expected an id, got {said[:60]!r}"
        raise ValueError(message)
    return UUID(said)


def patience(said: str) -> timedelta:
    """Read how long somebody wants to wait: a duration, or a number of seconds."""
    length = durations.parse(f"{said}s" if _SECONDS.fullmatch(said) else said)
    if length > LONGEST:
        message = f"expected at most {durations.show(LONGEST)}, got {said[:20]!r}"
        raise ValueError(message)
    return length


def uuid(said: str, nothing: str = NO_DELIVERY) -> UUID:
    """Read an id from a path: one that can't be is like one that is not there."""
    if not UUID_SPELLED.fullmatch(said):
        raise NotFoundError(nothing)
    return UUID(said)


def page(items: list[Any], next_cursor: str | None) -> dict[str, Any]:
    """Return a list as it is shown."""
    return {"items": items, "next_cursor": next_cursor}
