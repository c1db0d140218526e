from collections.abc import Mapping
from datetime import timedelta
from time import perf_counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campana.domain import retries
from campana.domain.retries import Backoff, Policy
from tests.domain import builders

MICROSECOND = timedelta(microseconds=1)
ATTEMPTS = st.integers(1, 10**6)
CALLS = Policy(
    delays={
        "no_answer": timedelta(minutes=30),
        "rescheduled": timedelta(minutes=60),
        "busy": timedelta(minutes=15),
        "failed": timedelta(minutes=10),
    },
    only=frozenset({"no_answer", "busy"}),
)


def _seconds(policy: Policy, attempts: int = 5) -> list[float]:
    return [retries.delay(policy, number).total_seconds() for number in range(1, attempts + 1)]


def test_the_default_doubles_from_a_minute_to_an_hour() -> None:
    assert _seconds(Policy(), 8) == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_linear_grows_by_the_base() -> None:
    assert _seconds(Policy(backoff=Backoff.LINEAR, cap=timedelta(seconds=200))) == [60, 120, 180, 200, 200]


def test_fixed_stays_the_same() -> None:
    assert _seconds(Policy(backoff=Backoff.FIXED)) == [60] * 5


def test_a_base_above_the_cap_is_the_cap() -> None:
    for backoff in Backoff:
        assert _seconds(Policy(backoff=backoff, base=timedelta(hours=2))) == [3600] * 5


@pytest.mark.parametrize("backoff", [Backoff.EXPONENTIAL, Backoff.LINEAR])
@pytest.mark.parametrize("attempt", [31, 63, 64, 1023, 1024, 10**6, 10**18])
def test_a_late_attempt_waits_for_the_cap_and_is_reckoned_at_once(attempt: int, backoff: Backoff) -> None:
    policy = Policy(backoff=backoff, cap=timedelta(minutes=30))
    took = []
    for _ in range(5):
        start = perf_counter()
        wait = retries.delay(policy, attempt)
        took.append(perf_counter() - start)
        assert wait == policy.cap
    assert min(took) < 0.001, "the cap must bound the power before it is taken"


@given(builders.LENGTHS, builders.LENGTHS, ATTEMPTS, st.sampled_from(Backoff))
@example(MICROSECOND, timedelta(days=36_525), 10**6, Backoff.EXPONENTIAL)
@example(MICROSECOND, timedelta(days=36_525), 10**6, Backoff.LINEAR)
@example(timedelta(0), timedelta(days=36_525), 10**6, Backoff.EXPONENTIAL)
def test_the_wait_never_falls_from_attempt_to_attempt(base: timedelta, cap: timedelta, attempt: int, backoff: Backoff) -> None:
    policy = Policy(base=base, cap=cap, backoff=backoff)
    wait, following = retries.delay(policy, attempt), retries.delay(policy, attempt + 1)
    assert MICROSECOND <= wait <= following <= max(cap, MICROSECOND)


@given(builders.LENGTHS.filter(bool), builders.LENGTHS, st.integers(1, 60))
def test_below_the_cap_the_wait_is_exactly_the_formula(base: timedelta, cap: timedelta, attempt: int) -> None:
    micros, most = base // MICROSECOND, max(cap // MICROSECOND, 1)
    doubled = retries.delay(Policy(base=base, cap=cap), attempt)
    assert doubled // MICROSECOND == min(micros * 2 ** (attempt - 1), most)
    linear = retries.delay(Policy(base=base, cap=cap, backoff=Backoff.LINEAR), attempt)
    assert linear // MICROSECOND == min(micros * attempt, most)


@given(builders.retry_policies(named=False), ATTEMPTS, builders.CHANCES, st.none() | builders.LENGTHS)
def test_the_wait_is_positive_and_at_most_the_cap_and_its_jitter(
    policy: Policy, attempt: int, chance: float, asked: timedelta | None
) -> None:
    wait = retries.delay(policy, attempt, chance=chance, retry_after=asked)
    assert MICROSECOND <= wait <= policy.cap * (1 + policy.jitter) + MICROSECOND


@given(builders.retry_policies(), st.sampled_from(builders.NAMES), st.integers(-5, 10**9), builders.CHANCES)
def test_no_policy_waits_for_nothing(policy: Policy, outcome: str, attempt: int, chance: float) -> None:
    assert retries.delay(policy, attempt, outcome=outcome, chance=chance) >= MICROSECOND


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 45.0), (0.25, 52.5), (0.5, 60.0), (0.75, 67.5)])
def test_chance_places_the_wait_within_the_jitter(chance: float, seconds: float) -> None:
    assert retries.delay(Policy(jitter=0.25), 1, chance=chance) == timedelta(seconds=seconds)


def test_without_jitter_chance_changes_nothing() -> None:
    assert retries.delay(Policy(), 1, chance=0.99) == builders.MINUTE


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (timedelta(seconds=90), timedelta(seconds=90)),
        (timedelta(seconds=1), timedelta(seconds=60)),
        (timedelta(0), timedelta(seconds=60)),
        (timedelta(seconds=-5), timedelta(seconds=60)),
        (timedelta(days=3650), timedelta(hours=1)),
        (timedelta.max, timedelta(hours=1)),
        (timedelta.min, timedelta(seconds=60)),
    ],
)
def test_a_receiver_can_lengthen_the_wait_up_to_the_cap(asked: timedelta, expected: timedelta) -> None:
    assert retries.delay(Policy(), 1, retry_after=asked) == expected


@pytest.mark.parametrize(
    ("outcome", "minutes"), [("no_answer", 30), ("voicemail", 30), ("rescheduled", 60), ("busy", 15), ("failed", 10)]
)
def test_a_delay_by_outcome_stands_for_every_attempt(outcome: str, minutes: int) -> None:
    for attempt in (1, 2, 1000):
        assert retries.delay(CALLS, attempt, outcome=outcome) == timedelta(minutes=minutes)


def test_an_outcome_without_a_delay_of_its_own_backs_off() -> None:
    assert retries.delay(CALLS, 2, outcome="timed_out") == timedelta(minutes=2)


def test_voicemail_may_have_a_delay_of_its_own() -> None:
    own: Mapping[str, timedelta] = {"no_answer": builders.HOUR, "voicemail": builders.MINUTE}
    assert retries.delay(Policy(delays=own), 1, outcome="voicemail") == builders.MINUTE


@pytest.mark.parametrize(
    ("outcome", "allowed"),
    [("no_answer", True), ("busy", True), ("voicemail", True), ("rescheduled", True), ("failed", False), ("timed_out", False)],
)
def test_only_names_what_is_retried_and_does_not_bind_what_the_person_asked_for(outcome: str, allowed: bool) -> None:
    assert retries.allows(CALLS, outcome, 1) is allowed


def test_voicemail_goes_as_no_answer() -> None:
    assert not retries.allows(Policy(only=frozenset({"voicemail"})), "voicemail", 1)
    assert retries.allows(Policy(only=frozenset({"no_answer"})), "voicemail", 1)


@given(builders.retry_policies(), st.sampled_from(builders.NAMES), st.integers(1, 30))
def test_nothing_is_allowed_beyond_max_attempts_or_when_retries_are_off(policy: Policy, outcome: str, attempts: int) -> None:
    if attempts >= policy.max_attempts or not policy.enabled:
        assert not retries.allows(policy, outcome, attempts)
    elif outcome == "rescheduled" or policy.only is None:
        assert retries.allows(policy, outcome, attempts)


def test_with_one_attempt_there_is_no_second() -> None:
    assert not retries.allows(Policy(max_attempts=1), "failed", 1)
    assert retries.allows(Policy(max_attempts=2), "failed", 1)
    assert not retries.allows(Policy(max_attempts=2), "failed", 2)
