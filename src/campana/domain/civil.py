"""Civil time: from wall times on a zone's clocks to instants, through gaps and folds.

A zone's time is cut into stretches of one offset each. Inside a stretch a wall time is an instant, by one subtraction; all that
is special happens at the cuts. Where clocks go forward some wall times are lost, where they go back some come twice, and a
policy says what becomes of them. Stretches come one after the other, so instants come in their order, each once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol

from campana.domain import zones
from campana.domain.instants import LAST

LONGEST_GAP = timedelta(hours=3)
"""A longer jump is a change of calendar, not of clocks: nothing is made up for it."""
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_FIRST_YEAR = 1901
_FAR = 3 * _DAY
"""Between a stretch's artificial end and a cut, so that no fold lies across it."""


class Gap(Enum):
    """What becomes of wall times that are lost where clocks go forward."""

    SHIFT = "shift"
    SKIP = "skip"


class Fold(Enum):
    """Which pass counts of a wall time that comes twice where clocks go back."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Walls(Protocol):
    """A rule about wall times."""

    def next_wall(self, start: datetime) -> datetime | None:
        """Return the first naive wall time of the rule from this one on, or None where there is none in reach."""


class _Remembered:
    """A rule that is not searched again where its last answer holds: from where it was asked up to what it named."""

    def __init__(self, rule: Walls) -> None:
        self._rule = rule
        self._holds: tuple[datetime, datetime] | None = None

    def next_wall(self, start: datetime) -> datetime | None:
        if self._holds is not None and self._holds[0] <= start <= self._holds[1]:
            return self._holds[1]
        found = self._rule.next_wall(start)
        self._holds = None if found is None else (start, found)
        return found


class Occurrence(NamedTuple):
    """An instant of a rule, and the wall time that it stands for."""

    at: datetime
    wall: datetime | None = None
    """What the rule says; not what clocks show where it is lost in a gap. None for a rule about elapsed time."""
    fold: int = 0
    """1 in the second pass of a wall time that comes twice."""
    note: str | None = None
    """What clocks did to it, in a sentence."""
    slot: str | None = None
    """The name of a daily slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a rule meets gaps and folds."""

    gap: Gap = Gap.SHIFT
    fold: Fold = Fold.FIRST


ELAPSED = Policy(gap=Gap.SKIP, fold=Fold.BOTH)
"""Of a rule that goes with the clock whatever it does: each wall time as often as it is shown."""


class _Cut(NamedTuple):
    """An instant at which a zone's offset changes."""

    at: datetime
    before: timedelta
    after: timedelta


def occurrences(rule: Walls, zone: str, policy: Policy, after: datetime) -> Iterator[Occurrence]:
    """Yield what the rule says after an instant, in order, for as long as the calendar goes."""
    rule = _Remembered(rule)
    for cut, begin, until in _stretches(zone, after):
        if cut.at == begin and begin > after:
            made_up = _lost(rule, cut, policy)
            if made_up is not None:
                yield made_up
        # Rules know whole seconds.
        first = begin if begin > after else after.replace(microsecond=0) + _SECOND
        yield from _within(rule, cut, first, until, policy)
        if rule.next_wall(_naive(until.at) + min(until.before, until.after)) is None:
            return


def _within(rule: Walls, cut: _Cut, begin: datetime, until: _Cut, policy: Policy) -> Iterator[Occurrence]:
    """Yield the instants from one on, up to the next cut."""
    offset, end = cut.after, _naive(until.at) + cut.after
    # Until then clocks show for a second time what they showed before the cut; from then on, for the first of two times.
    repeated_until, repeats_from = _naive(cut.at) + cut.before, _naive(until.at) + until.after
    wall = rule.next_wall(_naive(begin) + offset)
    while wall is not None and wall < end:
        fold, comes_twice = (1, True) if wall < repeated_until else (0, wall >= repeats_from)
        if fold == 1 and policy.fold is Fold.FIRST:
            wall = rule.next_wall(repeated_until)
            continue
        if not (comes_twice and fold == 0 and policy.fold is Fold.SECOND):
            note = _twice(wall, fold) if comes_twice else None
            yield Occurrence((wall - offset).replace(tzinfo=UTC), wall, fold, note)
        wall = rule.next_wall(wall + _SECOND)


def _lost(rule: Walls, cut: _Cut, policy: Policy) -> Occurrence | None:
    """Return what rings at the end of a gap for all that is lost in it, unless something rings there anyway."""
    size = cut.after - cut.before
    if policy.gap is Gap.SKIP or not timedelta(0) < size <= LONGEST_GAP:
        return None
    begin, end = _naive(cut.at) + cut.before, _naive(cut.at) + cut.after
    wall = rule.next_wall(begin)
    if wall is None or wall >= end or rule.next_wall(end) == end:
        return None
    return Occurrence(
        cut.at, wall, 0, f"{wall:%H:%M} does not exist on {wall:%Y-%m-%d}: clocks go from {begin:%H:%M} to {end:%H:%M}"
    )


def _twice(wall: datetime, fold: int) -> str:
    return f"{wall:%H:%M} comes twice on {wall:%Y-%m-%d}: this is the {'second' if fold else 'first'} time"


def _naive(at: datetime) -> datetime:
    return at.replace(tzinfo=None)


def _stretches(zone: str, after: datetime) -> Iterator[tuple[_Cut, datetime, _Cut]]:
    """Yield what lies between two cuts, from an instant on: the cut before it, where it begins, and the cut that ends it.

    A long one comes in parts, as a year ends, so that nobody looks through centuries for a cut that never comes.
    """
    year = max(after.year, _FIRST_YEAR)
    cut = next((one for one in reversed((*_cuts(zone, year - 1), *_cuts(zone, year))) if one.at <= after), None)
    cut = cut or _no_cut(zone, datetime(year - 1, 1, 1, tzinfo=UTC))
    begin = after
    while year <= LAST.year:
        for following in _cuts(zone, year):
            if following.at > begin:
                yield cut, begin, following
                cut, begin = following, following.at
        year += 1
        border, ahead = datetime(year, 1, 1, tzinfo=UTC), _cuts(zone, year)
        if begin < border and (not ahead or ahead[0].at - border > _FAR):
            yield cut, begin, _Cut(border, cut.after, cut.after)
            begin = border


def _no_cut(zone: str, at: datetime) -> _Cut:
    offset = _offset(zone, at)
    return _Cut(at, offset, offset)


def _offset(zone: str, at: datetime) -> timedelta:
    return at.astimezone(zones.zone(zone)).utcoffset() or timedelta(0)


@lru_cache(maxsize=8_192)
def _cuts(zone: str, year: int) -> Sequence[_Cut]:
    """Find the cuts of a year: a look at each day, and a search by halves where two days differ."""
    day, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found: list[_Cut] = []
    offset = _offset(zone, day)
    while day < end:
        following = min(day + _DAY, end)
        next_offset = _offset(zone, following)
        if next_offset != offset:
            found.append(_Cut(_search(zone, day, following), offset, next_offset))
        day, offset = following, next_offset
    return tuple(found)


def _search(zone: str, before: datetime, after: datetime) -> datetime:
    offset = _offset(zone, before)
    low, high = 0, int((after - before) / _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, before + middle * _SECOND) == offset else (low, middle)
    return before + high * _SECOND
