"""When to look next: one probe of an index each for what waits, by queue, and for what is under way."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, text

from campana.domain import instants
from campana.domain.tickets import SUSPICIOUS
from campana.store import dialects
from campana.store.columns import Instant, Name

DUE = "state in (0, 3)"
INNOCENT = f"crash_count < {SUSPICIOUS}"
SUSPECT = f"crash_count >= {SUSPICIOUS}"
# No index helps here: PostgreSQL without statistics would else take that of sends, and look for suspects among all that is due.
QUEUE = "coalesce(queue, '')"


def next_wake(
    connection: Connection, queues: Sequence[str], *, suspects: bool, floors: Mapping[str, datetime] | None = None
) -> datetime | None:
    """Return when the first row of these queues wants to be claimed, or None if none waits."""
    if not queues:
        return None
    dialect = dialects.of(connection)
    words: dict[str, object] = {f"queue{number}": queue for number, queue in enumerate(queues)}
    named: list[BindParameter[Any]] = [bindparam(word, type_=Name(100)) for word in words]
    waiting = f"{DUE} and {INNOCENT}"
    # A row of its own for each queue: one probe of the index each.
    probes = []
    for number, queue in enumerate(queues):
        above = f"{dialect.send_at} >= :floor{number}"
        probes.append(
            _first(dialect.send_at, dialect.sends_index, f"queue = :queue{number} and {waiting} and {above}", f"q{number}")
        )
        words[f"floor{number}"] = (floors or {}).get(queue, instants.EPOCH)
        named.append(bindparam(f"floor{number}", type_=Instant))
    if suspects:
        # Only of these queues: what this engine has no room for must not keep it awake.
        ours = f"{QUEUE} in ({', '.join(f':queue{number}' for number in range(len(queues)))})"
        probes.append(_first(dialect.suspect_at, dialect.suspects_index, f"{DUE} and {SUSPECT} and {ours}", "suspect"))
    every = text(f"select min(due) from ({' union all '.join(probes)}) as probes")
    return _instant(connection.execute(every.bindparams(*named), words).scalar())


def queues(connection: Connection) -> list[str]:
    """Return the queues in which anything waits, or on MySQL ever did."""
    dialect = dialects.of(connection)
    # From one to the next by a probe each, of whatever the index holds: those that wait may be a million.
    only = f" and {DUE}" if dialect.has_partial else ""
    following = text(f"select queue from {dialect.sends_index} where queue > :last{only} order by queue limit 1")
    typed = following.bindparams(bindparam("last", type_=Name(100))).columns(queue=Name(100))
    found: list[str] = []
    while (queue := connection.execute(typed, {"last": found[-1] if found else ""}).scalar()) is not None:
        found.append(queue)
    return found


def next_timer(connection: Connection) -> datetime | None:
    """Return when the first lease, callback or look-up comes to its end, or None if none is open."""
    dialect = dialects.of(connection)
    return _instant(connection.execute(text(_first(dialect.timer_at, dialect.timers_index, "state in (1, 2)", "timer"))).scalar())


def _first(column: str, table: str, where: str, name: str) -> str:
    # Not min(): MySQL, and PostgreSQL without statistics, would read every row for it.
    found = f"select {column} as due from {table} where {where} and {column} is not null order by {column} limit 1"
    return f"select due from ({found}) as {name}"


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else instants.from_micros(int(micros))
