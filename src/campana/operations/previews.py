"""Previews: when a rule would ring, in words that can be checked against a calendar. Nothing is written."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice, takewhile
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StringConstraints

from campana.domain import civil, instants, triggers, zones
from campana.domain.civil import Occurrence
from campana.domain.triggers import Rule
from campana.errors import Fault, InvalidError
from campana.operations.wanted import At, Strict, read

MOST = 1_000
UTC = "UTC"


class RuleWanted(Strict):
    """When a schedule rings."""

    trigger: dict[str, Any] = Field(description="One of `{cron}`, `{every, anchor}`, `{daily, weekdays}`, `{rrule}`, `{at}`")
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(None, description="IANA zone; UTC if left out")
    dst: Literal["shift", "skip"] = Field("shift", description="Wall times that are lost where clocks go forward")
    fold: Literal["first", "second", "both"] = Field("first", description="Wall times that come twice where clocks go back")
    starts_at: At | None = Field(None, description="Nothing before this instant")
    ends_at: At | None = Field(None, description="Nothing after this instant")


class PreviewWanted(RuleWanted):
    """Which instants of a rule are wanted."""

    from_: At | None = Field(None, alias="from", description="After this instant; now if left out")
    to: At | None = Field(None, description="Up to and with this instant")
    count: int = Field(10, ge=1, le=MOST, description="So many at the most")


class Preview(NamedTuple):
    """What a rule does after an instant."""

    zone: str
    items: Sequence[Occurrence]
    never: bool
    """It has no instant at all after that."""


def preview(said: Any, *, now: datetime) -> Preview:
    """Return the next instants of a rule."""
    reading = read(PreviewWanted, said, {"trigger": {}})
    wanted, found = reading.wanted, list(reading.faults)
    rule = rule_of(wanted, now, found, unread=reading.unread)
    if found or rule is None:
        raise InvalidError(*found)
    last = instants.LAST if wanted.to is None else instants.parse(wanted.to)
    coming = rule.after(now if wanted.from_ is None else instants.parse(wanted.from_))
    first = next(coming, None)
    if first is None:
        return Preview(rule.zone, [], never=True)
    rest = islice(takewhile(lambda one: one.at <= last, coming), wanted.count - 1)
    return Preview(rule.zone, [first, *rest] if first.at <= last else [], never=False)


def rule_of(wanted: RuleWanted, now: datetime, found: list[Fault], *, unread: frozenset[str]) -> Rule | None:
    """Return the rule that is meant, noting every fault."""
    zone = wanted.timezone
    if zone is not None:
        try:
            zones.zone(zone)
        except ValueError as error:
            found.append(Fault(pointer="/timezone", code="unknown_timezone", detail=str(error)))
            zone = UTC
    if "trigger" in unread:
        return None
    # A rule about wall times goes by UTC where nothing else is said; one local instant must say whose.
    named = zone if zone is not None or "at" in wanted.trigger else UTC
    faults: list[triggers.Fault] = []
    trigger = triggers.read(wanted.trigger, zone=named, now=now, faults=faults)
    found += [Fault(pointer=f"/trigger{pointer}", code=code, detail=detail) for pointer, code, detail in faults]
    starts, ends = (None if said is None else instants.parse(said) for said in (wanted.starts_at, wanted.ends_at))
    if starts is not None and ends is not None and ends < starts:
        found.append(Fault(pointer="/ends_at", code="invalid", detail="expected an end that is not before the start"))
    if trigger is None or found:
        return None
    gap, fold = civil.Gap(wanted.dst), civil.Fold(wanted.fold)
    return Rule(trigger=trigger, zone=zone or UTC, gap=gap, fold=fold, starts_at=starts, ends_at=ends)


def shown(preview: Preview) -> dict[str, Any]:
    """Return a preview as all faces show it."""
    return {"items": [_item(one, preview.zone) for one in preview.items], "never": preview.never}


def _item(one: Occurrence, zone: str) -> dict[str, Any]:
    local = triggers.shown_local(one.at, zone)
    return {
        "at": instants.show(one.at),
        "local": local,
        "nominal": local[:16] if one.wall is None else one.wall.isoformat(timespec="seconds" if one.wall.second else "minutes"),
        "fold": one.fold,
        "note": one.note,
    }
