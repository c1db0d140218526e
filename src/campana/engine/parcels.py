"""Parcels: one attempt as a channel sees it, made of durable values alone, so that a repeat is the same to the byte."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from campana.channels.base import Parcel
from campana.domain import durations, keys
from campana.domain.ambiguity import Contract
from campana.domain.tickets import Ticket
from campana.engine.options import Options
from campana.store.settlements import Locked


def make(
    delivery: Ticket | Locked,
    contract: Contract,
    *,
    number: int,
    key_number: int,
    secret: bytes,
    options: Options,
    call_id: str | None = None,
) -> Parcel:
    """Return the attempt of this number, under the key of that number."""
    target: dict[str, Any] = json.loads(delivery.target)
    identity: UUID = delivery.id
    return Parcel(
        delivery_id=identity,
        tenant_id=delivery.tenant_id,
        project_id=delivery.project_id,
        delivery_key=keys.delivery_key(identity),
        idempotency_key=keys.idempotency_key(secret, identity, delivery.generation, key_number),
        number=number,
        target=target,
        payload=delivery.payload,
        due_at=delivery.due_at,
        timeout=_timeout(target.get("timeout"), contract, options) / timedelta(seconds=1),
        provider_call_id=call_id,
    )


def _timeout(said: str | None, contract: Contract, options: Options) -> timedelta:
    limit = min(options.send_timeout if said is None else durations.parse(said), options.run_limit)
    # What can't be repeated must be over while the lease surely lasts: then its end is the request's end too.
    return limit if contract.repeatable else min(limit, options.lease / 2)
