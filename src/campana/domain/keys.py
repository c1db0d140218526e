"""The keys that a delivery carries outside: one that stays the same in every attempt, one for the attempt."""

import hmac
from functools import lru_cache
from uuid import UUID


def delivery_key(delivery_id: UUID) -> str:
    """Return the stable key: the same in every attempt of every generation, so that a receiver can deduplicate."""
    return f"dlv_{delivery_id.hex}"


def idempotency_key(secret: bytes, delivery_id: UUID, generation: int, key_number: int) -> str:
    """Return the attempt's key, a function of durable values: it needs no write and no index, and nobody can guess it."""
    identity = str(delivery_id)
    digest = keyed(secret).copy()
    digest.update(f"{identity}|{generation}|{key_number}".encode())
    return f"{identity}-{key_number}-{digest.hexdigest()[:8]}"


@lru_cache(maxsize=4_096)
def keyed(secret: bytes) -> hmac.HMAC:
    """Return an HMAC-SHA256 that has taken in the secret: a copy of it costs a third of beginning anew."""
    return hmac.new(secret, digestmod="sha256")
