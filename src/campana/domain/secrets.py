"""Signing secrets: how one is written, how long an older one lives on, and what can be said of each."""

import base64
from datetime import datetime, timedelta

SIZE = 32
"""Bytes; Standard Webhooks asks for 24 to 64."""
PREFIX = "whsec_"
OVERLAP = "24h"
LONGEST_OVERLAP = timedelta(days=30)
MOST_IN_FORCE = 5
"""Each is one more signature in a header of every request."""


def text(secret: bytes) -> str:
    """Return a secret as receivers are given it."""
    return PREFIX + base64.b64encode(secret).decode("ascii")


def is_in_force(expires_at: datetime | None, now: datetime) -> bool:
    """Say whether requests are signed with a secret that ends then, if it does."""
    return expires_at is None or now < expires_at


def state(expires_at: datetime | None, now: datetime) -> str:
    """Return the word for where a secret stands: `current`, `retiring` or `expired`."""
    if expires_at is None:
        return "current"
    return "retiring" if is_in_force(expires_at, now) else "expired"
