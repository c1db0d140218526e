"""What a person or a program can do. The faces parse, call one of these, and shape the answer; nothing here is HTTP or SQL."""

from campana.operations import (
    acts,
    bulk,
    deliveries,
    explain,
    filters,
    idempotency,
    keys,
    previews,
    projects,
    secrets,
    switches,
    waiting,
)

__all__ = [
    "acts",
    "bulk",
    "deliveries",
    "explain",
    "filters",
    "idempotency",
    "keys",
    "previews",
    "projects",
    "secrets",
    "switches",
    "waiting",
]
