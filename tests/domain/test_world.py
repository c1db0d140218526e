from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana import world
from campana.domain import instants
from tests.domain import builders

Trip = tuple[float, float]
"""How long the database took to answer, and how far ahead of steady time its clock was, in seconds."""
TICKS = st.integers(0, (1 << 60) - 1)
NOISE = st.integers(0, (1 << 64) - 1)


@given(TICKS, NOISE)
def test_an_id_has_the_bits_of_a_uuidv7(ticks: int, noise: int) -> None:
    made = world.uuid7(ticks, noise)
    assert made.version == 7
    assert made.variant == RFC_4122
    assert made.int >> 80 == ticks >> 12, "48 bits of milliseconds"
    assert made.int >> 64 & 0xFFF == ticks & 0xFFF, "12 bits of their fraction"
    assert made.int & (1 << 62) - 1 == noise & (1 << 62) - 1, "62 bits of chance"


@given(TICKS, TICKS, NOISE, NOISE)
def test_ids_sort_by_time_whatever_chance_says(one: int, other: int, noise: int, more: int) -> None:
    if one != other:
        assert (world.uuid7(one, noise) < world.uuid7(other, more)) == (one < other)


@given(builders.INSTANTS)
def test_an_id_tells_its_millisecond(at: datetime) -> None:
    made = world.SystemChance().uuid7(at)
    assert made.int >> 80 == instants.to_micros(at) // 1_000


def test_ids_of_one_instant_are_unique_and_rise() -> None:
    chance = world.SystemChance()
    made = [chance.uuid7(builders.NOW) for _ in range(20_000)]
    assert made == sorted(set(made))


@given(st.lists(builders.INSTANTS, min_size=2, max_size=50))
def test_ids_rise_even_when_the_clock_steps_back(times: list[datetime]) -> None:
    chance = world.SystemChance()
    made = [chance.uuid7(at) for at in times]
    assert made == sorted(set(made))


def test_dice_tokens_and_ids_of_two_processes_differ() -> None:
    one, other = world.SystemChance(), world.SystemChance()
    assert one.uuid7(builders.NOW) != other.uuid7(builders.NOW)
    assert one.token(32) != other.token(32)
    assert len(one.token(32)) == 32
    thrown = {one.fraction() for _ in range(1_000)}
    assert len(thrown) > 990
    assert all(0 <= fraction < 1 for fraction in thrown)


class Heeding:
    """A clock that is told of round trips; `ahead` is what it then believes to be the database's lead over steady time."""

    def __init__(self) -> None:
        self.clock = world.SystemClock()
        self._asked = self.clock.steady()

    def hear(self, *, trip: float, ahead: float, read: float = 1.0) -> float:
        """Be told the time that was read when so much of the trip was over."""
        self._asked += 1
        told = instants.EPOCH + timedelta(seconds=self._asked + trip * read + ahead)
        return self.clock.heed(told, self._asked, self._asked + trip)

    def believes(self, ahead: float) -> bool:
        before = self.clock.steady()
        shown = (self.clock.now() - instants.EPOCH).total_seconds() - ahead
        return before - 0.001 <= shown <= self.clock.steady() + 0.001


def test_a_clock_that_was_told_nothing_shows_this_machines_time() -> None:
    clock = world.SystemClock()
    before = datetime.now(UTC)
    assert before - timedelta(seconds=1) <= clock.now() <= datetime.now(UTC) + timedelta(seconds=1)
    assert abs(clock.offset) < 1
    assert clock.now().tzinfo is UTC
    assert clock.wall().tzinfo is UTC


def test_the_clock_follows_the_database_and_not_the_machine() -> None:
    heeding = Heeding()
    heeding.hear(trip=0.01, ahead=2e9)
    assert heeding.believes(2e9)
    assert heeding.clock.offset == pytest.approx(2e9 - (datetime.now(UTC).timestamp() - heeding.clock.steady()), abs=1)
    assert abs((heeding.clock.wall() - datetime.now(UTC)).total_seconds()) < 1


@given(st.lists(st.tuples(st.floats(0, 0.09), st.floats(1e9, 1e9 + 0.9)), min_size=1, max_size=30))
def test_the_shortest_of_the_last_eight_round_trips_is_believed(trips: list[Trip]) -> None:
    heeding = Heeding()
    for trip, ahead in trips:
        heeding.hear(trip=trip, ahead=ahead)
    shortest = min(trip for trip, _ in trips[-8:])
    # Seconds since boot carry rounding of their own: trips that differ by less than that count as equal.
    assert any(heeding.believes(ahead) for trip, ahead in trips[-8:] if trip <= shortest + 1e-6)


@given(st.lists(st.tuples(st.floats(0, 0.09), st.floats(0, 1)), min_size=1, max_size=10))
def test_the_clock_is_never_ahead_of_the_databases_whenever_in_a_trip_that_was_read(trips: list[Trip]) -> None:
    heeding, ahead = Heeding(), 1e9
    for trip, read in trips:
        heeding.hear(trip=trip, ahead=ahead, read=read)
    shown = (heeding.clock.now() - instants.EPOCH).total_seconds()
    # What floats of this size can't tell apart.
    assert shown <= heeding.clock.steady() + ahead + 2e-6


def test_a_shorter_round_trip_says_more_than_a_long_one_and_is_no_jump() -> None:
    heeding = Heeding()
    heeding.hear(trip=4, ahead=1e9, read=0)
    assert heeding.hear(trip=0.6, ahead=1e9) == 0
    assert heeding.believes(1e9)


def test_a_long_round_trip_is_believed_only_for_want_of_a_better() -> None:
    heeding = Heeding()
    heeding.hear(trip=5, ahead=1e9)
    assert heeding.believes(1e9)
    heeding.hear(trip=0.05, ahead=1.1e9)
    assert heeding.believes(1.1e9)
    for _ in range(20):
        heeding.hear(trip=0.2, ahead=1.2e9)
    assert heeding.believes(1.1e9), "long round trips don't even push the good ones out"


@pytest.mark.parametrize("by", [1.5, -1.5, 3_600, -3_600])
def test_a_jump_is_heeded_at_once_and_told_whatever_was_believed_before(by: float) -> None:
    heeding = Heeding()
    assert heeding.hear(trip=0, ahead=1e9) == 0, "the first time told is no jump"
    assert heeding.hear(trip=0.05, ahead=1e9 + 0.5) == 0
    assert heeding.hear(trip=0.05, ahead=1e9 + by) == pytest.approx(by, abs=0.01)
    assert heeding.believes(1e9 + by)
    assert heeding.hear(trip=0.05, ahead=1e9 + by) == 0


async def test_a_clock_sleeps() -> None:
    await world.SystemClock().sleep(0)


def test_the_world_names_things_in_the_order_of_their_making() -> None:
    real = world.real()
    made: list[UUID] = [real.new_id() for _ in range(1_000)]
    assert made == sorted(set(made))
    millis = instants.to_micros(real.clock.now()) // 1_000
    assert 0 <= millis - (made[0].int >> 80) < 60_000
