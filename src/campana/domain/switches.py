"""Switches: emergency stops by scope. A scope is text; a delivery is stopped where any scope above it is off."""

from uuid import UUID

ALL = "all"


def everywhere(channel: str) -> str:
    """Return the scope of one channel in the whole installation."""
    return f"all/channel:{channel}"


def tenant(tenant_id: UUID) -> str:
    """Return the scope of one tenant."""
    return f"tenant:{tenant_id}"


def over(tenant_id: UUID) -> str:
    """Return the scope of one tenant as the installation's operators stop it: the tenant itself can't lift it."""
    return f"all/tenant:{tenant_id}"


def within(tenant_id: UUID, kind: str, name: object) -> str:
    """Return the scope of a project, a channel or a schedule of a tenant."""
    return f"tenant:{tenant_id}/{kind}:{name}"


SAFE_HOLD = "all/hold"
"""Calls and messages wait for a person: an engine found itself in a restored or long-stopped world."""
DISABLED_CALLS = "all/DISABLE_ALL_CALLS"
"""The environment's stop of all calls: no row, so nobody lifts it but who starts the engines."""
CHANNELS = frozenset({"webhook", "voice", "sms", "email", "slack", "python", "log"})
CALLS = frozenset({"voice"})
UNREPEATABLE = frozenset({"voice", "sms"})
"""Channels that reach a person and can't be taken back: a safe hold covers them, and only them."""


def above(*, tenant_id: UUID, project_id: UUID, channel: str, schedule_id: UUID | None = None) -> tuple[str, ...]:
    """Return every scope that a delivery stands under, widest first."""
    place = [
        ALL,
        everywhere(channel),
        over(tenant_id),
        tenant(tenant_id),
        within(tenant_id, "channel", channel),
        within(tenant_id, "project", project_id),
    ]
    if channel in UNREPEATABLE:
        place.append(SAFE_HOLD)
    if channel in CALLS:
        place.append(DISABLED_CALLS)
    if schedule_id is not None:
        place.append(within(tenant_id, "schedule", schedule_id))
    return tuple(place)


def spoken(scope: str, tenant_id: UUID) -> str:
    """Return a scope as people of this tenant, or operators, call it."""
    mine = tenant(tenant_id)
    if scope == mine:
        return "tenant"
    return scope.removeprefix(f"{mine}/") if scope.startswith(f"{mine}/") else scope.replace("all/tenant:", "tenant:", 1)
