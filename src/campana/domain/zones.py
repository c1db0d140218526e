"""Time zones by IANA name, from one source of data alone, the same on every machine."""

import zoneinfo
from functools import lru_cache

# Debian's own data is often a year behind and would be preferred: only the tzdata package is read.
zoneinfo.reset_tzpath(to=())

# They load, but name no place: what `localtime` is differs by machine.
_REFUSED = frozenset({"localtime", "Factory", "posixrules"})


@lru_cache(maxsize=1024)
def zone(name: str) -> zoneinfo.ZoneInfo:
    """Return a zone by its exact IANA name; refuse what is not one."""
    if name in _REFUSED or name not in _names():
        message = f"expected an IANA time zone such as Europe/London, got {name[:60]!r}"
        raise ValueError(message)
    return zoneinfo.ZoneInfo(name)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())
