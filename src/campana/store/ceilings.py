"""How much of a tenant's waits: counted on the index of what waits, no further than asked."""

from uuid import UUID

from sqlalchemy import Connection, bindparam, text

from campana.domain.instants import EPOCH
from campana.store import dialects, wakes
from campana.store.columns import Id, Instant, Name


def waiting(connection: Connection, tenant_id: UUID, *, at_most: int) -> int:
    """Return how many of the tenant's deliveries wait, counted no further than `at_most`; the few under way are left out."""
    dialect = dialects.of(connection)
    # On MySQL what has ended stands in the index too, before the epoch so to speak: each priority is a range without it.
    where = "queue = :queue and tenant_id = :tenant and priority in (0, 1, 2)"
    live = wakes.DUE if dialect.has_partial else f"{dialect.send_at} >= :epoch"
    counting = text(
        f"select count(*) from (select 1 from {dialect.fair_index} where {where} and {live} limit :most) as found"
    ).bindparams(bindparam("queue", type_=Name(100)), bindparam("tenant", type_=Id))
    if not dialect.has_partial:
        counting = counting.bindparams(bindparam("epoch", EPOCH, type_=Instant))
    count = 0
    for queue in wakes.queues(connection):
        words = {"queue": queue, "tenant": tenant_id, "most": at_most - count}
        count += connection.execute(counting, words).scalar_one()
        if count >= at_most:
            break
    return count
