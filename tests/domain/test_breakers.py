from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.domain import ambiguity, breakers, outcomes
from campana.domain.ambiguity import Trouble
from campana.domain.breakers import CLOSED, Breaker, Policy, Sign
from tests.domain.builders import NOW

SECOND = timedelta(seconds=1)
POLICY = Policy(trip_after=3, first=10 * SECOND, longest=60 * SECOND)


def answered(code: int, *, retry_after: timedelta | None = None) -> outcomes.Outcome:
    return outcomes.Failed(error=str(code), retry_after=retry_after, answer=outcomes.Answer(code=code))


DOWN = answered(503)


def after(*heard: outcomes.Outcome | None, breaker: Breaker = CLOSED, was_probe: bool = False) -> Breaker:
    for outcome in heard:
        breaker = breakers.heard(breaker, outcome, POLICY, now=NOW, was_probe=was_probe)
    return breaker


SIGNS = [
    (outcomes.Delivered(), Sign.ALIVE),
    (outcomes.Accepted(until=NOW), Sign.ALIVE),
    *((answered(code), Sign.ALIVE) for code in (200, 301, 400, 401, 404, 410, 422, 425)),
    *((answered(code), Sign.FAILING) for code in (408, 429, 500, 502, 503, 504, 599)),
    (answered(503, retry_after=SECOND), Sign.FAILING),
    (answered(429, retry_after=SECOND), Sign.NOTHING),
    (outcomes.Failed(error="the target can't be used", permanent=True), Sign.NOTHING),
    *(
        (ambiguity.outcome_of(trouble, ""), Sign.NOTHING if trouble is Trouble.REFUSED_ADDRESS else Sign.FAILING)
        for trouble in Trouble
        if trouble is not Trouble.WORKER_LOST
    ),
]


@pytest.mark.parametrize(("outcome", "sign"), SIGNS)
def test_an_outcome_says_of_its_receiver_that_it_lives_that_it_fails_or_nothing(outcome: outcomes.Outcome, sign: Sign) -> None:
    assert breakers.sign(outcome) is sign


def test_it_opens_after_so_many_failures_in_a_row_and_no_sooner() -> None:
    assert after(DOWN, DOWN) == Breaker(failures=2)
    assert after(DOWN, DOWN, outcomes.Delivered(), DOWN, DOWN) == Breaker(failures=2)
    assert after(DOWN, DOWN, answered(404), DOWN, DOWN) == Breaker(failures=2)
    assert after(DOWN, DOWN, DOWN) == Breaker(failures=3, period=10 * SECOND, until=NOW + 10 * SECOND)


def test_with_nothing_to_trip_after_it_never_opens() -> None:
    breaker = CLOSED
    for _ in range(1_000):
        breaker = breakers.heard(breaker, DOWN, Policy(trip_after=0), now=NOW)
    assert breakers.stands(breaker, NOW) is None


def test_while_it_is_open_nothing_goes_until_the_period_is_over() -> None:
    breaker = after(DOWN, DOWN, DOWN)
    assert breakers.stands(breaker, NOW) == NOW + 10 * SECOND
    assert breakers.stands(breaker, NOW + 10 * SECOND) is None


def test_one_probe_goes_and_no_other_for_as_long_as_a_period() -> None:
    later = NOW + 10 * SECOND
    probing = breakers.probe(after(DOWN, DOWN, DOWN), later)
    assert breakers.stands(probing, later) == later + 10 * SECOND
    assert breakers.probe(CLOSED, NOW) is CLOSED


def test_each_probe_that_fails_doubles_the_period_to_the_longest() -> None:
    breaker = after(DOWN, DOWN, DOWN)
    periods = []
    for _ in range(5):
        breaker = after(DOWN, breaker=breaker, was_probe=True)
        assert breaker.period is not None
        assert breaker.until == NOW + breaker.period
        periods.append(breaker.period / SECOND)
    assert periods == [20, 40, 60, 60, 60]


@pytest.mark.parametrize("outcome", [outcomes.Delivered(), answered(404), answered(410)])
def test_an_answer_closes_it_whatever_was_answered(outcome: outcomes.Outcome) -> None:
    assert after(DOWN, DOWN, DOWN, outcome) == CLOSED


def test_what_was_under_way_when_it_tripped_makes_nothing_worse() -> None:
    breaker = after(DOWN, DOWN, DOWN)
    assert breakers.stands(after(DOWN, DOWN, DOWN, DOWN, breaker=breaker), NOW) == breaker.until
    assert after(DOWN, breaker=breaker).period == breaker.period


def test_a_probe_that_came_to_nothing_lets_another_one_go() -> None:
    probing = breakers.probe(after(DOWN, DOWN, DOWN), NOW)
    assert breakers.stands(after(None, breaker=probing, was_probe=True), NOW) is None
    assert after(None, breaker=probing) == probing
    nothing = outcomes.Failed(error="the target can't be used", permanent=True)
    assert breakers.stands(after(nothing, breaker=probing, was_probe=True), NOW) is None


@pytest.mark.parametrize("code", [429, 503])
def test_a_receiver_that_names_an_instant_is_left_alone_until_then_and_not_for_ever(code: int) -> None:
    held = after(answered(code, retry_after=7 * SECOND))
    assert (breakers.stands(held, NOW), held.is_open) == (NOW + 7 * SECOND, False)
    assert breakers.stands(after(answered(code, retry_after=timedelta(days=3650))), NOW) == NOW + 60 * SECOND
    assert breakers.stands(after(answered(code, retry_after=SECOND), breaker=held), NOW) == NOW + 7 * SECOND
    # A delivery that got through meanwhile does not take the wish back.
    assert breakers.stands(after(outcomes.Delivered(), breaker=held), NOW) == NOW + 7 * SECOND


def test_a_receiver_that_only_ever_asks_for_patience_is_heard_and_never_counted_as_failing() -> None:
    assert not after(*[answered(429, retry_after=SECOND)] * 100).is_open
    assert after(*[answered(503, retry_after=SECOND)] * 3).is_open


EVERY = st.sampled_from([outcome for outcome, _ in SIGNS] + [answered(503, retry_after=timedelta(days=1)), None])


@given(st.lists(st.tuples(EVERY, st.booleans(), st.integers(0, 200)), max_size=60))
def test_whatever_happens_something_may_go_within_the_longest_period(
    life: list[tuple[outcomes.Outcome | None, bool, int]],
) -> None:
    breaker, now = CLOSED, NOW
    for outcome, wants_to_probe, seconds in life:
        now += seconds * SECOND
        was_probe = wants_to_probe and breakers.stands(breaker, now) is None
        if was_probe:
            breaker = breakers.probe(breaker, now)
        breaker = breakers.heard(breaker, outcome, POLICY, now=now, was_probe=was_probe)
        until = breakers.stands(breaker, now)
        assert until is None or now < until <= now + POLICY.longest
