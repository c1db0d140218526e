"""Triggers: what makes a schedule ring. Each is a value that was read once, and knows its instants after any other, in order."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import takewhile
from typing import Any, assert_never
from uuid import UUID

from campana.domain import civil, cron, durations, instants, rrules, zones
from campana.domain.civil import Occurrence
from campana.domain.recurrences import Daily, Days, Elapsed, slots

SHORTEST = timedelta(seconds=2)
"""Between two instants of a rule."""
MOST_SLOTS = 24
MOST_BEFORE = 20
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)
_SLOT = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}", re.ASCII)
_DAYS = re.compile(r"P?[0-9]{1,5}[dwDW]", re.ASCII)

Fault = tuple[str, str, str]
"""A JSON pointer within the trigger, a code, and a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """One instant."""

    at: datetime
    wall: datetime | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Another schedule's outcome: it has no instants of its own."""

    schedules: tuple[str, ...]
    on: str
    delay: timedelta


Trigger = Once | cron.Cron | Elapsed | Days | rrules.Recurrence | Daily | After
KINDS = ("at", "cron", "every", "rrule", "daily", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A trigger where it stands: its zone, what is done about gaps and folds, and its bounds."""

    trigger: Trigger
    zone: str = "UTC"
    gap: civil.Gap = civil.Gap.SHIFT
    fold: civil.Fold = civil.Fold.FIRST
    starts_at: datetime | None = None
    """The first instant that counts."""
    ends_at: datetime | None = None
    """The last instant that counts."""

    def after(self, at: datetime) -> Iterator[Occurrence]:
        """Yield the occurrences after an instant, in order."""
        if self.starts_at is not None and at < self.starts_at:
            at = self.starts_at - instants.MICROSECOND
        last = instants.LAST if self.ends_at is None else min(self.ends_at, instants.LAST)
        return takewhile(lambda one: one.at <= last, self._all(at))

    def _all(self, at: datetime) -> Iterator[Occurrence]:
        policy = civil.Policy(gap=self.gap, fold=self.fold)
        match self.trigger:
            case Once(at=when, wall=wall, note=note):
                return iter([Occurrence(when, wall, 0, note)] if when > at else [])
            case Elapsed() as grid:
                return _grid(grid, at)
            case cron.Cron() as expression:
                return civil.occurrences(expression, self.zone, civil.ELAPSED if expression.is_elapsed else policy, at)
            case Days() | rrules.Recurrence() as rule:
                return civil.occurrences(rule, self.zone, policy, at)
            case Daily() as daily:
                found = civil.occurrences(daily, self.zone, policy, at)
                return (one._replace(slot=daily.slot_of(one.wall)) for one in found if one.wall is not None)
            case After():
                return iter(())
            case other:
                assert_never(other)


def _grid(grid: Elapsed, at: datetime) -> Iterator[Occurrence]:
    following = grid.next_after(at)
    while following < instants.LAST:
        yield Occurrence(following)
        following += grid.period


def name_of(one: Occurrence) -> str:
    """Return what an occurrence is called: stable under edits, zones and new zone data, and unique within a schedule.

    A rule about wall times names the wall time that it says, so that a changed zone does not ring twice for one local day.
    """
    if one.wall is None:
        return instants.show(one.at)
    if one.slot is not None:
        return f"{one.wall:%Y-%m-%d}/{one.slot}" + ("/2" if one.fold else "")
    return one.wall.isoformat() + ("/2" if one.fold else "")


def jittered(one: Occurrence, schedule_id: UUID, jitter: timedelta) -> datetime:
    """Return when it rings: its instant and a share of the jitter that depends on schedule and nominal time alone."""
    if not jitter:
        return one.at
    seed = schedule_id.int ^ hash_of(name_of(one))
    return one.at + jitter * ((seed * 0x9E3779B97F4A7C15 >> 16) % 1_000_003) / 1_000_003


def hash_of(text: str) -> int:
    """Return a number for a text that is the same in every process."""
    found = 0xCBF29CE484222325
    for byte in text.encode():
        found = (found ^ byte) * 0x100000001B3 & 0xFFFF_FFFF_FFFF_FFFF
    return found


# --- reading


def read(said: Any, *, zone: str | None, now: datetime, faults: list[Fault]) -> Trigger | None:
    """Return the trigger that is meant, noting every fault; None where there is one.

    `zone` is the schedule's, None where it has none: then rules about wall times are refused.
    """
    if not isinstance(said, Mapping):
        faults.append(("", "wrong_type", f"expected an object such as {{'cron': '0 9 * * *'}}, got {type(said).__name__}"))
        return None
    kinds = [kind for kind in KINDS if kind in said]
    if len(kinds) != 1:
        faults.append(("", "invalid", f"expected exactly one of {', '.join(KINDS)}, got {' and '.join(kinds) or 'none of them'}"))
        return None
    kind, before = kinds[0], len(faults)
    faults += [
        (f"/{_escaped(name)}", "unknown_field", f"expected {', '.join((kind, *_BESIDE[kind]))}")
        for name in said
        if name not in {kind, *_BESIDE[kind]}
    ]
    trigger = _READERS[kind](_Reading(said=said, zone=zone, now=now, faults=faults))
    return None if len(faults) > before else trigger


def _escaped(name: object) -> str:
    return str(name)[:60].replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    said: Mapping[str, Any]
    zone: str | None
    now: datetime
    faults: list[Fault]

    def text(self, name: str) -> str | None:
        value = self.said[name]
        if isinstance(value, str):
            return value
        self.fault(f"/{name}", "wrong_type", f"expected a string, got {type(value).__name__}")
        return None

    def fault(self, pointer: str, code: str, detail: str) -> None:
        self.faults.append((pointer, code, detail))


def _at(it: _Reading) -> Trigger | None:
    text = it.text("at")
    if text is None:
        return None
    try:
        if "T" not in text or text[-1:] in {"Z", "z"} or re.search(r"[+-][0-9]{2}:[0-9]{2}$", text):
            return Once(at=instants.parse(text))
        if it.zone is None:
            it.fault("/at", "instant", "a local time needs the schedule's `timezone`, or give it an offset")
            return None
        at = instants.parse_local(text, zones.zone(it.zone))
    except ValueError as error:
        it.fault("/at", "instant", str(error))
        return None
    wall = datetime.fromisoformat(text)
    shown = at.astimezone(zones.zone(it.zone)).replace(tzinfo=None)
    note = None if shown == wall else f"{wall:%H:%M} does not exist on {wall:%Y-%m-%d}: it rings at {shown:%H:%M}"
    if (
        note is None
        and at.astimezone(zones.zone(it.zone)).utcoffset() != wall.replace(tzinfo=zones.zone(it.zone), fold=1).utcoffset()
    ):
        note = f"{wall:%H:%M} comes twice on {wall:%Y-%m-%d}: this is the first time"
    return Once(at=at, wall=wall, note=note)


def _cron(it: _Reading) -> Trigger | None:
    text = it.text("cron")
    if text is None:
        return None
    try:
        expression = cron.parse(text)
    except ValueError as error:
        it.fault("/cron", "cron", str(error))
        return None
    if cron.least_distance(expression) < SHORTEST:
        it.fault("/cron", "too_often", f"expected at least {durations.show(SHORTEST)} between two instants")
    return expression


def _every(it: _Reading) -> Trigger | None:
    text = it.text("every")
    anchor = _anchor(it)
    if text is None:
        return None
    try:
        period = durations.parse(text)
    except ValueError as error:
        it.fault("/every", "duration", str(error))
        return None
    if period < SHORTEST:
        it.fault("/every", "too_often", f"expected {durations.show(SHORTEST)} or more, got {text!r}")
        return None
    if not _DAYS.fullmatch(text):
        return Elapsed(anchor=anchor, period=period)
    wall = anchor.astimezone(zones.zone(it.zone or "UTC")).replace(tzinfo=None, microsecond=0)
    return Days(anchor=wall, days=period.days)


def _anchor(it: _Reading) -> datetime:
    if "anchor" not in it.said:
        return it.now.replace(microsecond=0)
    text = it.text("anchor")
    try:
        return it.now if text is None else instants.parse(text)
    except ValueError as error:
        it.fault("/anchor", "instant", str(error))
        return it.now


def _rrule(it: _Reading) -> Trigger | None:
    text = it.text("rrule")
    if text is None:
        return None
    try:
        rule = rrules.parse(text, it.zone or "UTC")
    except ValueError as error:
        it.fault("/rrule", "rrule", str(error))
        return None
    if rrules.least_distance(rule) < SHORTEST:
        it.fault("/rrule", "too_often", f"expected at least {durations.show(SHORTEST)} between two instants")
    return rule


def _daily(it: _Reading) -> Trigger | None:
    said = it.said["daily"]
    named = said if isinstance(said, Mapping) else None
    if named is None:
        if not isinstance(said, list | tuple):
            it.fault("/daily", "wrong_type", f"expected times such as ['08:30'] or named ones, got {type(said).__name__}")
            return None
        named = {str(at): at for at in said}
    if not 1 <= len(said) <= MOST_SLOTS:
        it.fault("/daily", "invalid", f"expected 1 to {MOST_SLOTS} times, got {len(said)}")
        return None
    times: dict[str, time] = {}
    for place, (name, at) in enumerate(named.items()):
        pointer = f"/daily/{_escaped(name) if isinstance(said, Mapping) else place}"
        found = _CLOCK.fullmatch(at) if isinstance(at, str) else None
        if found is None:
            it.fault(pointer, "time", f"expected a time of day such as 08:30, got {str(at)[:40]!r}")
        elif isinstance(said, Mapping) and not _SLOT.fullmatch(str(name)):
            it.fault(pointer, "invalid", f"expected a name of small letters, digits, - and _, got {str(name)[:40]!r}")
        else:
            times[str(name)] = time(int(found[1]), int(found[2]), int(found[3] or 0))
    if len(set(times.values())) < len(said) and not it.faults:
        it.fault("/daily", "duplicate", "expected each time of day once")
    return Daily(slots=slots(times), weekdays=_weekdays(it))


def _weekdays(it: _Reading) -> frozenset[int]:
    said = it.said.get("weekdays", list(WEEKDAYS))
    if not isinstance(said, list | tuple) or not said:
        it.fault("/weekdays", "wrong_type", "expected a list of weekdays such as ['mon', 'tue']")
        return frozenset()
    for place, name in enumerate(said):
        if name not in WEEKDAYS:
            it.fault(f"/weekdays/{place}", "invalid", f"expected one of {', '.join(WEEKDAYS)}, got {str(name)[:20]!r}")
    return frozenset(WEEKDAYS.index(name) for name in said if name in WEEKDAYS)


def _after(it: _Reading) -> Trigger | None:
    said = it.said["after"]
    if not isinstance(said, list | tuple) or not 1 <= len(said) <= MOST_BEFORE:
        it.fault("/after", "invalid", f"expected a list of 1 to {MOST_BEFORE} schedules, by key or id")
        return None
    for place, name in enumerate(said):
        if not isinstance(name, str) or not 1 <= len(name) <= 255:  # noqa: PLR2004 - as keys
            it.fault(f"/after/{place}", "invalid", "expected a schedule's key or id")
    on = it.said.get("on", "completed")
    if on not in OUTCOMES:
        it.fault("/on", "invalid", f"expected one of {', '.join(OUTCOMES)}, got {str(on)[:20]!r}")
    try:
        delay = durations.parse(it.said.get("delay", "0s")) if isinstance(it.said.get("delay", ""), str) else None
    except ValueError as error:
        it.fault("/delay", "duration", str(error))
        return None
    if delay is None:
        it.fault("/delay", "wrong_type", "expected a duration such as 5m")
        return None
    return After(schedules=tuple(str(name) for name in said), on=str(on), delay=delay)


OUTCOMES = ("completed", "dead_letter", "any")
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "at": (),
    "cron": (),
    "every": ("anchor",),
    "rrule": (),
    "daily": ("weekdays",),
    "after": ("on", "delay"),
}
_READERS = {"at": _at, "cron": _cron, "every": _every, "rrule": _rrule, "daily": _daily, "after": _after}


def local_date(one: Occurrence, zone: str) -> date:
    """Return the local day that an occurrence stands for."""
    return one.wall.date() if one.wall is not None else one.at.astimezone(zones.zone(zone)).date()


def shown_local(at: datetime, zone: str) -> str:
    """Return an instant as clocks in a zone show it, with their offset."""
    return at.astimezone(UTC).astimezone(zones.zone(zone)).isoformat()
