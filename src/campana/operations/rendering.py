"""What a delivery's `body_template` comes to: filled in when it is made, so that every attempt sends the same bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from campana.domain import instants, keys, templates
from campana.domain.templates import Template
from campana.domain.zones import zone
from campana.errors import Fault, InvalidError
from campana.operations.wanted import DeliveryWanted

ROOTS: templates.Roots = {
    "delivery": (
        *("id", "delivery_key", "channel", "scheduled_for", "due_at", "expires_at", "created_at"),
        *("dedupe_key", "labels", "priority"),
    ),
    "nominal": ("utc", "local", "timezone"),
    "recipient": ("key",),
    "payload": None,
    "variables": None,
}
"""What a path may begin with, and go on with."""
SAYS: Mapping[str, str] = {
    "delivery": "the delivery as it is made",
    "nominal": "the instant that was asked for, in UTC and in the delivery's `timezone` (UTC where it has none)",
    "recipient": "whom it is for; `key` is null where nobody is named",
    "payload": "the delivery's `payload`: data for the template, sent only where the template says so",
    "variables": "a schedule's `variables`; empty for a delivery that is posted by itself",
}
POINTER = "/target/body_template"
MOST_AT_ONCE = 33_554_432
"""Bytes that the templates of one batch may come to: a small request must not become a large house."""


@dataclass(slots=True, kw_only=True)
class Room:
    """How many bytes the templates of one request may still come to."""

    left: int = MOST_AT_ONCE

    def take(self, size: int) -> None:
        """Take from what is left; raise where that is not enough."""
        self.left -= size
        if self.left < 0:
            detail = f"expected templates that come to at most {MOST_AT_ONCE} bytes in one batch: post fewer at once"
            raise InvalidError(Fault(pointer=POINTER, code="too_large", detail=detail))


def read(target: Mapping[str, Any], found: list[Fault]) -> Template | None:
    """Return a webhook's template, noting every fault of it."""
    if "body_template" not in target:
        return None
    said = target["body_template"]
    if said is None:
        found.append(Fault(pointer=POINTER, code="required", detail="expected JSON that is not null: leave it out for none"))
        return None
    try:
        return templates.parse(said, ROOTS)
    except InvalidError as error:
        found += _placed(error)
        return None


def fill(template: Template, wanted: DeliveryWanted, times: Mapping[str, datetime | None], delivery_id: UUID) -> bytes:
    """Return the body; raise InvalidError with every place that can't be filled in."""
    try:
        return templates.render(template, _data(wanted, times, delivery_id))
    except InvalidError as error:
        raise InvalidError(*_placed(error)) from None


def _placed(error: InvalidError) -> list[Fault]:
    return [Fault(pointer=POINTER + fault.pointer, code=fault.code, detail=fault.detail) for fault in error.faults]


def _data(wanted: DeliveryWanted, times: Mapping[str, datetime | None], delivery_id: UUID) -> dict[str, Any]:
    at = times["scheduled_for"] or instants.EPOCH
    local = instants.show(at) if wanted.timezone is None else at.astimezone(zone(wanted.timezone)).isoformat()
    return {
        "delivery": {
            "id": str(delivery_id),
            "delivery_key": keys.delivery_key(delivery_id),
            "channel": wanted.channel,
            "dedupe_key": wanted.dedupe_key,
            "labels": wanted.labels,
            "priority": wanted.priority,
            **{name: None if one is None else instants.show(one) for name, one in times.items()},
        },
        "nominal": {"utc": instants.show(at), "local": local, "timezone": wanted.timezone or "UTC"},
        "recipient": {"key": wanted.recipient},
        "payload": wanted.payload,
        "variables": {},
    }
