"""Look-ups as rows: what is in progress and waits to be asked about.

A look-up takes a fence and moves `wake_at`, not the state.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, text, update

from campana.domain.deliveries import LOOKUP
from campana.store import attempts, dialects
from campana.store.columns import Instant
from campana.store.schema import deliveries

_c = deliveries.c
_EVERY = ", ".join(column.name for column in _c)
Taken = tuple[Row[Any], Row[Any] | None]
"""A delivery, under its new fence, and its last attempt."""


def take(connection: Connection, channels: Sequence[str], *, now: datetime, until: datetime, limit: int) -> list[Taken]:
    """Take what is to be looked up through these channels now, each under a new fence; if this worker dies, again at `until`.

    Run again after a lost COMMIT it takes others; the first ones come back at `until` too.
    """
    dialect = dialects.of(connection)
    query = (
        text(
            f"select {_EVERY} from {dialect.timers_index} where state in (1, 2) and state = 2 and awaiting = '{LOOKUP}'"
            f" and {dialect.timer_at} <= :now and channel in :channels order by {dialect.timer_at}"
            f" limit :limit {dialect.skip_locked}"
        )
        .bindparams(bindparam("now", type_=Instant), bindparam("channels", expanding=True))
        .columns(*_c)
    )
    ids = [row.id for row in connection.execute(query, {"now": now, "channels": list(channels), "limit": limit})]
    if not ids:
        return []
    theirs = dialect.among(_c.id, "ids")
    connection.execute(update(deliveries).where(theirs).values(fence=_c.fence + 1, wake_at=until), {"ids": ids})
    rows = connection.execute(select(deliveries).where(theirs).order_by(_c.id), {"ids": ids}).all()
    last = attempts.newest(connection, ids)
    return [(row, last.get(row.id)) for row in rows]
