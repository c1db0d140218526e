"""Claims: how exactly one worker comes to hold a delivery, and how long.

A claim takes only what can start: per queue as many rows as there are free slots, the longest due first. Two workers never
take one row: each statement locks its candidates and passes over those that another one has locked (SQLite has one writer).
The candidates are fixed before they are changed, so that no query plan can claim more rows than were asked for; therefore
never `IN (SELECT ... LIMIT ...)`.

Taking a row raises its fence. Whatever is written about the delivery later must name that fence, so a worker that was
frozen, cut off or merely slow can change nothing once somebody else has taken over. The lease is the row's `wake_at`: the
same column that says when a waiting row is due says when a claimed one is given up, and at that instant the reader of
timers finds it. Nothing else ever looks for lost work.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, bindparam, select, text, update

from campana.domain.tickets import Ticket
from campana.store import candidates, dialects, lanes, wakes
from campana.store.candidates import CLAIMED, COLUMNS, FIELDS, Room, Terms, Window
from campana.store.columns import Id, Instant
from campana.store.schema import deliveries

# In full, so that SQLite sees that it is inside the partial index.
_LEASED = "state in (1, 2) and state = 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an engine has room for, and how long it will hold what it gets."""

    slots: Room
    free: int
    suspects: int
    me: UUID
    now: datetime
    lease_until: datetime
    run_until: datetime
    floors: Mapping[str, datetime] = field(default_factory=dict)
    """By queue, an instant below which nothing waits: finished entries of the index are not read again and again."""
    window: Window | None = None
    """Whose turn it is in the queues that have a backlog."""
    backlog: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What it got, and when the next row that it has room for is due (None: nothing waits)."""

    tickets: Sequence[Ticket]
    following: datetime | None
    backlog: frozenset[str] = frozenset()
    """Queues that gave all that they were asked for, so that there may be more."""
    floors: Mapping[str, datetime] = field(default_factory=dict)
    cursor: UUID | None = None
    """The last tenant of the window that had its turn."""
    parked: int = 0
    """Rows that could not start, since another one holds their lane or slot."""


def claim(connection: Connection, wish: Wish) -> Claimed:
    """Take what is due and has room, each tenant of the window first, then the longest due; say when the next will be."""
    terms = Terms(me=wish.me, now=wish.now, lease_until=wish.lease_until, run_until=wish.run_until, floors=wish.floors)
    room = {queue: slots for queue, slots in wish.slots.items() if slots > 0}
    if not room or wish.free <= 0:
        return Claimed(tickets=[], following=wish.now if room else None)
    turns, cursor = _in_turn(connection, terms, wish, room)
    left = _left(room, turns)
    old = candidates.oldest(connection, terms, left, wish.free - len(turns)) if len(turns) < wish.free else []
    taken = [*turns, *old]
    is_full = len(taken) >= wish.free
    # One that is full anyway looks for suspects only when it looks from the very beginning, every few seconds.
    looks = wish.suspects and (not is_full or not wish.floors)
    suspects = candidates.suspects(connection, terms, list(room), _company(wish, room, taken)) if looks else []
    tickets = lanes.take(connection, [*taken, *suspects], now=wish.now, until=wish.lease_until)
    parked = len(taken) + len(suspects) - len(tickets)
    counts = Counter(ticket.queue for ticket in taken)
    roomy = [queue for queue, slots in room.items() if counts[queue] < slots]
    return Claimed(
        # An UPDATE returns its rows in any order.
        tickets=sorted(tickets, key=lambda ticket: ticket.wake_at),
        following=wish.now
        if is_full or parked
        else wakes.next_wake(connection, roomy, suspects=wish.suspects > len(suspects), floors=wish.floors),
        backlog=frozenset(counts if is_full else room.keys() - set(roomy)),
        floors=_floors(old, left, wish, is_full=is_full),
        cursor=cursor,
        parked=parked,
    )


def _in_turn(connection: Connection, terms: Terms, wish: Wish, room: Room) -> tuple[list[Ticket], UUID | None]:
    """Take what the window's tenants are to get, and say how far in it that went."""
    behind = {queue: slots for queue, slots in room.items() if queue in wish.backlog}
    if wish.window is None or not wish.window.tenants or not behind:
        return [], None
    tickets = candidates.fair(connection, terms, wish.window, behind, wish.free)
    place = {tenant: number for number, tenant in enumerate(wish.window.tenants)}
    counts = Counter(ticket.queue for ticket in tickets)
    is_cut = len(tickets) >= wish.free or any(counts[queue] >= slots for queue, slots in behind.items())
    reached = max((place[ticket.tenant_id] for ticket in tickets), default=0) if is_cut else len(place) - 1
    return tickets, wish.window.tenants[reached]


def _company(wish: Wish, room: Room, taken: Sequence[Ticket]) -> int:
    """Return how many suspects there is room for in whichever queue they are; one at least, or a backlog would starve them."""
    left = _left(room, taken)
    return max(1, min(wish.suspects, wish.free - len(taken), *(left.get(queue, 0) for queue in room)))


def _left(room: Room, taken: Sequence[Ticket]) -> dict[str, int]:
    counts = Counter(ticket.queue for ticket in taken)
    return {queue: slots - counts[queue] for queue, slots in room.items() if slots > counts[queue]}


def _floors(old: Sequence[Ticket], left: Room, wish: Wish, *, is_full: bool) -> dict[str, datetime]:
    """Return for each queue that was asked what the first row still waiting can't be below."""
    floors: dict[str, datetime] = {}
    counts = Counter(ticket.queue for ticket in old)
    for ticket in old:
        floors[ticket.queue] = min(ticket.wake_at, floors.get(ticket.queue, ticket.wake_at))
    if not is_full:
        floors |= {queue: wish.now for queue, slots in left.items() if counts[queue] < slots}
    return floors


def landed(connection: Connection, wish: Wish) -> Claimed | None:
    """Return what a claim took whose COMMIT was not answered, or None if it took nothing: no two claims share a lease's end."""
    dialect = dialects.of(connection)
    mine = (
        text(
            f"select {FIELDS} from {dialect.timers_index}"
            f" where {_LEASED} and lease_owner = :me and {dialect.timer_at} = :lease_until"
        )
        .bindparams(bindparam("me", type_=Id), bindparam("lease_until", type_=Instant))
        .columns(*COLUMNS)
    )
    rows = connection.execute(mine, {"me": wish.me, "lease_until": wish.lease_until})
    tickets = [Ticket._make(row) for row in rows]
    return Claimed(tickets=tickets, following=wish.now) if tickets else None


def renew(connection: Connection, *, me: UUID, held: Sequence[UUID], now: datetime, lease: timedelta) -> None:
    """Prolong the leases that this engine still holds and that have less than two thirds left, none beyond `run_until`.

    What it claimed and does not hold (a claim whose answer never came, a bug over one delivery) is left to its end.
    """
    # A row that somebody else has locked, for however long, must not cost the others their leases.
    dialect = dialects.of(connection)
    mine = text(
        f"select id from {dialect.timers_index}"
        f" where {_LEASED} and lease_owner = :me and {dialect.timer_at} > :now and {dialect.timer_at} < :soon"
        " and id in :held"
        f" {dialect.skip_locked}"
    ).bindparams(
        bindparam("me", type_=Id),
        bindparam("held", type_=Id, expanding=True),
        bindparam("now", type_=Instant),
        bindparam("soon", type_=Instant),
    )
    words = {"me": me, "held": held, "now": now, "soon": now + lease * 2 / 3}
    ids = connection.execute(mine.columns(id=Id), words).scalars().all()
    if ids:
        longer = text(
            "update deliveries set wake_at = case when run_until < :until then run_until else :until end where id in :ids"
        ).bindparams(bindparam("until", type_=Instant), bindparam("ids", type_=Id, expanding=True))
        connection.execute(longer, {"until": now + lease, "ids": ids})


def regain(connection: Connection, *, me: UUID, until: datetime) -> None:
    """Make the leases of this engine last until then at least: the clock has jumped, and they look over."""
    dialect = dialects.of(connection)
    words = {"me": me, "until": until}
    mine = text(
        f"update {dialect.timers_index} set run_until = case when run_until < :until then :until else run_until end,"
        f" wake_at = :until where {_LEASED} and lease_owner = :me and {dialect.timer_at} < :until"
    ).bindparams(bindparam("me", type_=Id), bindparam("until", type_=Instant))
    connection.execute(mine, words)


def start_suspect(connection: Connection, delivery_id: UUID, fence: int) -> bool:
    """Write that just this suspect starts now, so that a death from here on is its own; False if the claim is lost."""
    c = deliveries.c
    # By its id alone: told of a state, PostgreSQL may look it up in the index of timers, among all its dead entries.
    mine = c.id == delivery_id
    row = connection.execute(dialects.of(connection).locked(select(c.fence, c.state).where(mine))).first()
    if row is None or row.fence != fence or row.state != CLAIMED:
        return False
    connection.execute(update(deliveries).where(mine).values(suspect_fence=fence))
    return True


def expire_others(connection: Connection, *, me: UUID, now: datetime) -> int:
    """End the leases of every other engine; only for one who knows that they are all dead."""
    dialect = dialects.of(connection)
    dead = text(
        f"update {dialect.timers_index} set wake_at = :now where {_LEASED} and lease_owner <> :me and {dialect.timer_at} > :now"
    ).bindparams(bindparam("me", type_=Id), bindparam("now", type_=Instant))
    return connection.execute(dead, {"me": me, "now": now}).rowcount
