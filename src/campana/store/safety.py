"""The safe hold: a backup never dials last week's calls.

An engine asks here before its heartbeat, whenever it does not know what the last hour was like: at its start, after a long
silence, after a jump of the clock. Where nobody lived for an hour while calls came due, what was done meanwhile is unknown,
and whatever can't be taken back waits for a person.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, bindparam, text

from campana.domain import instants
from campana.domain.switches import CHANNELS, SAFE_HOLD, UNREPEATABLE
from campana.store import dialects, engines, switches, wakes
from campana.store.columns import Instant

LONG = timedelta(hours=1)


def survey(connection: Connection, me: UUID, *, now: datetime, asked: bool = False) -> str | None:
    """Engage the safe hold where the world was restored or long stopped, or where it is asked for; return why, or None."""
    told = dialects.database_now(connection)
    present = now if told is None else instants.from_micros(told)
    switch = switches.get(connection, SAFE_HOLD)
    if switch is not None and switch.off:
        return None
    why = "asked for at the start" if asked else _stopped(connection, present, None if switch is None else switch.changed_at)
    if why is not None:
        switches.throw(connection, SAFE_HOLD, off=True, reason=why, actor=f"engine:{me}", now=now)
    return why


def _stopped(connection: Connection, now: datetime, released_at: datetime | None) -> str | None:
    seen_at = engines.newest(connection)
    if seen_at is None:
        return None
    # Who released it has looked: only a silence that began afterwards counts again.
    last = seen_at if released_at is None else max(seen_at, released_at)
    if now - last <= LONG or not _is_overdue(connection, now):
        return None
    return f"no engine was there since {instants.show(last)}, and calls or messages are overdue"


def _is_overdue(connection: Connection, now: datetime) -> bool:
    """Say whether a call or message waits past its instant, or was under way."""
    queues = [queue for queue in wakes.queues(connection) if _may_carry(queue)]
    first = wakes.next_wake(connection, queues, suspects=True)
    if first is not None and first <= now:
        return True
    dialect = dialects.of(connection)
    lost = text(
        f"select 1 from {dialect.timers_index} where state in (1, 2) and {dialect.timer_at} <= :now"
        " and channel in :channels limit 1"
    ).bindparams(bindparam("now", type_=Instant), bindparam("channels", expanding=True))
    return connection.execute(lost, {"now": now, "channels": sorted(UNREPEATABLE)}).first() is not None


def _may_carry(queue: str) -> bool:
    """Say whether calls may wait here: in a queue of their own, or in one with a name of the user's."""
    return queue in UNREPEATABLE or not (queue in CHANNELS or queue.startswith("python:"))
