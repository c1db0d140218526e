"""Policies as text: what a delivery was made with, resolved and kept, so that no later edit changes it."""

import json
from datetime import timedelta
from functools import lru_cache
from typing import Any

from campana.domain import durations, retries
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import Policies


def dump(policies: Policies) -> str:
    """Return compact JSON that `load` reads back to an equal value."""
    retry = policies.retry
    said: dict[str, Any] = {
        "retry": {
            "max_attempts": retry.max_attempts,
            "backoff": retry.backoff.value,
            "base": durations.show(retry.base),
            "cap": durations.show(retry.cap),
            "jitter": retry.jitter,
            "delays": {outcome: durations.show(wait) for outcome, wait in sorted(retry.delays.items())},
            "only": sorted(retry.only) if retry.only is not None else None,
            "enabled": retry.enabled,
        },
        "on_ambiguous": policies.on_ambiguous.value,
    }
    return json.dumps(said, separators=(",", ":"))


@lru_cache(maxsize=1024)
def load(text: str) -> Policies:
    """Read what `dump` wrote; most deliveries share a few texts, so the values are kept."""
    said = json.loads(text)
    return Policies(retry=retry_from(said["retry"]), on_ambiguous=OnAmbiguous(said["on_ambiguous"]))


def retry_from(said: dict[str, Any], default: retries.Policy | None = None) -> retries.Policy:
    """Read a retry policy; what is not said is taken from the default."""
    plain = default or retries.Policy()

    def length(name: str, otherwise: timedelta) -> timedelta:
        return durations.parse(said[name]) if said.get(name) is not None else otherwise

    only, delays = said.get("only", plain.only), said.get("delays")
    return retries.Policy(
        max_attempts=said.get("max_attempts", plain.max_attempts),
        backoff=retries.Backoff(said.get("backoff", plain.backoff)),
        base=length("base", plain.base),
        cap=length("cap", plain.cap),
        jitter=said.get("jitter", plain.jitter),
        delays={outcome: durations.parse(wait) for outcome, wait in delays.items()} if delays is not None else plain.delays,
        only=frozenset(only) if only is not None else None,
        enabled=said.get("enabled", plain.enabled),
    )
