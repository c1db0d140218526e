"""What an engine asks for in a claim: how much, from where, and whose turn it is.

While there is no backlog a claim takes what is oldest. After one that came back full, the next is fair: a window of
tenants gets at most a share each, and the window moves on past the last one that was served.
"""

from bisect import bisect_right
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from campana.domain.instants import EPOCH, MICROSECOND
from campana.engine.options import Options
from campana.store.candidates import Window
from campana.store.claims import Claimed, Wish
from campana.store.engines import Board
from campana.world import World

PRIORITIES = (0, 1, 2)
REVERSED = 8
"""Every so many fair claims the priorities take their turns the other way round, so that none waits for ever."""
SHARE = 8
MARGIN = timedelta(seconds=1)
"""How far below what was last seen a floor stays: what was written then may only be durable now."""
FLOORLESS = 5.0
"""Seconds after which a claim looks from the very beginning again."""


class Claimer:
    """Remembers between claims: the cursor among tenants, the floors, and the last lease."""

    def __init__(self, *, me: UUID, world: World, options: Options, window: int) -> None:
        """Begin anywhere among the tenants, so that engines that start together don't serve the same ones."""
        self._me = me
        self._world = world
        self._options = options
        self._window = window
        self._cursor = UUID(bytes=world.chance.token(16))
        self._backlog: frozenset[str] = frozenset()
        self._fair_claims = 0
        self._floors: dict[str, datetime] = {}
        self._floorless = -FLOORLESS
        # Not this machine's present: before the first tick that may be minutes off, and every lease would be as much too long.
        self._last_lease = EPOCH

    @property
    def floors(self) -> Mapping[str, datetime]:
        """By queue the instant below which nothing waits; nothing every few seconds, as a net."""
        is_due = self._world.clock.steady() - self._floorless >= FLOORLESS
        return {} if is_due else {queue: at - MARGIN for queue, at in self._floors.items()}

    def wish(self, slots: Mapping[str, int], *, free: int, suspects: int, board: Board) -> Wish:
        """Return what to claim now."""
        now, options = self._world.clock.now(), self._options
        # Two claims of one engine never share a lease's end, so a claim whose COMMIT was not answered can be found.
        # One far ahead is from before the clock was put back.
        last = self._last_lease if self._last_lease < now + 2 * options.lease else EPOCH
        self._last_lease = max(now + options.lease, last + MICROSECOND)
        floors = self.floors
        if not floors:
            self._floorless = self._world.clock.steady()
        return Wish(
            slots=slots,
            free=free,
            suspects=suspects,
            me=self._me,
            now=now,
            lease_until=self._last_lease,
            run_until=now + options.run_limit,
            floors=floors,
            window=self._next_window(board, free) if self._backlog else None,
            backlog=self._backlog,
        )

    def learn(self, claimed: Claimed) -> None:
        """Take from a claim what the next one must know."""
        self._backlog = claimed.backlog
        self._floors |= claimed.floors
        if claimed.cursor is not None:
            self._cursor = claimed.cursor

    def _next_window(self, board: Board, free: int) -> Window:
        self._fair_claims += 1
        tenants = board.tenants
        start = bisect_right(tenants, self._cursor)
        turn = (*tenants[start : start + self._window], *tenants[: max(0, start + self._window - len(tenants))])[: len(tenants)]
        is_reversed = self._fair_claims % REVERSED == 0
        return Window(
            tenants=turn,
            share=max(SHARE, -(-free // max(len(turn), 1))),
            priorities=PRIORITIES[::-1] if is_reversed else PRIORITIES,
        )
