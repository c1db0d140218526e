"""The keys that a delivery carries outside: one that stays the same in every attempt, one for the attempt."""

import hmac
from uuid import UUID


def delivery_key(delivery_id: UUID) -> str:
    """Return the stable key: the same in every attempt of every generation, so that a receiver can deduplicate."""
    return f"dlv_{delivery_id.hex}"


def idempotency_key(secret: bytes, delivery_id: UUID, generation: int, key_number: int) -> str:
    """Return the attempt's key, a function of durable values: it needs no write and no index, and nobody can guess it."""
    said = f"{delivery_id}|{generation}|{key_number}".encode()
    return f"{delivery_id}-{key_number}-{hmac.digest(secret, said, 'sha256').hex()[:8]}"
