"""States and the judge: what may become of a delivery, and what does."""

from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.domain import deliveries, outcomes
from campana.domain.ambiguity import Contract, OnAmbiguous
from campana.domain.deliveries import (
    Awaiting,
    Buried,
    Cancelled,
    Completed,
    Deaths,
    Declined,
    Facts,
    Move,
    Policies,
    Retried,
    Returned,
    Skipped,
    State,
    Transition,
)
from campana.domain.retries import Policy
from campana.errors import IllegalTransitionError
from tests.domain import builders, diagram
from tests.domain.builders import HOUR, MINUTE, NOW, contract, facts, failed

TRANSITIONS: tuple[Transition, ...] = (
    Completed(),
    Awaiting(what="callback", until=NOW + HOUR),
    Retried(at=NOW + HOUR),
    Buried(reason="exhausted"),
    Declined(),
    Skipped(reason="expired"),
    Cancelled(reason="cancelled"),
    Returned(at=NOW + HOUR, reason="quiet_hours"),
)
LOOKUP = contract(repeatable=False, on_ambiguous=OnAmbiguous.RECONCILE, lookup_after=timedelta(seconds=30))
AMBIGUOUS = outcomes.Ambiguous(error="reset")
CALLS = Policy(only=frozenset({"no_answer", "busy"}), delays={"rescheduled": HOUR, "no_answer": 30 * MINUTE})


def _facts() -> st.SearchStrategy[Facts]:
    return st.builds(
        Facts, attempt_count=st.integers(0, 30), policies=builders.policies(), contract=st.sampled_from(builders.CONTRACTS)
    )


# ------------------------------------------------------------------------------------------------- the table


def test_the_states_are_those_of_the_model_and_keep_their_numbers() -> None:
    assert {state.word: int(state) for state in State} == diagram.STATES
    assert {state.word for state in deliveries.LIVE} == diagram.LIVE
    assert {state.word for state in deliveries.FINAL} == set(diagram.STATES) - diagram.LIVE
    assert deliveries.WORDS["dead_letter"] is State.DEAD_LETTER


@pytest.mark.parametrize(("state", "move"), list(product(State, Move)), ids=lambda value: value.name)
def test_the_table_is_the_diagram_and_what_is_not_in_it_is_refused(state: State, move: Move) -> None:
    expected = diagram.ARROWS.get((state.word, move.value))
    if expected is not None:
        assert deliveries.after(state, move).word == expected
        return
    with pytest.raises(IllegalTransitionError, match=f"legal in {state.word}, got '{move.value}'"):
        deliveries.after(state, move)


def test_the_diagram_names_only_what_there_is() -> None:
    assert {move for _, move in diagram.ARROWS} == {move.value for move in Move}
    assert {state for state, _ in diagram.ARROWS} | set(diagram.ARROWS.values()) == set(diagram.STATES)


def test_final_states_absorb_but_a_person_may_reopen_a_dead_letter() -> None:
    ways_out = {(state, move) for state, move in deliveries.TRANSITIONS if state in deliveries.FINAL}
    assert ways_out == {(State.DEAD_LETTER, move) for move in (Move.REDRIVE, Move.COMPLETE, Move.DISCARD)}


def test_every_live_state_can_be_claimed_or_ends_and_every_state_is_reached() -> None:
    for state in deliveries.LIVE:
        assert any(target in deliveries.FINAL for (source, _), target in deliveries.TRANSITIONS.items() if source is state)
    assert set(deliveries.TRANSITIONS.values()) == set(State)
    assert {state for state, move in deliveries.TRANSITIONS if move is Move.CLAIM} == deliveries.WAITING


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("tried", [False, True])
def test_every_live_state_has_an_instant_and_every_final_one_has_none(transition: Transition, tried: bool) -> None:
    state = deliveries.after(State.PROCESSING, deliveries.move_of(transition, tried=tried))
    assert (deliveries.wake_at(transition) is None) == (state in deliveries.FINAL)


def test_what_is_returned_goes_back_to_where_it_waited() -> None:
    back = Returned(at=NOW, reason="released")
    assert deliveries.after(State.PROCESSING, deliveries.move_of(back, tried=False)) is State.SCHEDULED
    assert deliveries.after(State.PROCESSING, deliveries.move_of(back, tried=True)) is State.PENDING_RETRY


# ------------------------------------------------------------------------------------------------- the judge


@pytest.mark.parametrize("outcome", builders.OUTCOMES, ids=outcomes.name)
@given(asked=_facts(), chance=builders.CHANCES)
def test_the_judge_has_a_legal_word_on_every_outcome(outcome: outcomes.Outcome, asked: Facts, chance: float) -> None:
    transition = deliveries.judge(asked, outcome, now=NOW, chance=chance)
    for state in deliveries.UNDER_WAY:
        after = deliveries.after(state, deliveries.move_of(transition, tried=True))
        assert (deliveries.wake_at(transition) is None) == (after in deliveries.FINAL)
    if isinstance(transition, Retried):
        assert transition.at >= NOW
        assert asked.attempt_count + 1 < asked.policies.retry.max_attempts
        assert asked.policies.retry.enabled
    heeded = deliveries.heed_cancel(transition)
    assert not isinstance(heeded, Retried | Returned)
    deliveries.after(State.PROCESSING, deliveries.move_of(heeded, tried=True))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (outcomes.Delivered(), Completed()),
        (outcomes.Accepted(until=NOW + HOUR), Awaiting(what="callback", until=NOW + HOUR)),
        (outcomes.Declined(), Declined()),
        (failed(), Retried(at=NOW + MINUTE)),
        (failed(ambiguous=True), Retried(at=NOW + MINUTE)),
        (failed(permanent=True), Buried(reason="permanent")),
        (failed(permanent=True, ambiguous=True), Buried(reason="permanent")),
        (failed(retry_after=timedelta(minutes=5)), Retried(at=NOW + timedelta(minutes=5))),
        (failed(retry_after=timedelta(days=3650)), Retried(at=NOW + HOUR)),
        (outcomes.TimedOut(error="no connection"), Retried(at=NOW + MINUTE)),
        (AMBIGUOUS, Retried(at=NOW + MINUTE)),
        (outcomes.NoAnswer(), Retried(at=NOW + MINUTE)),
        (outcomes.Busy(), Retried(at=NOW + MINUTE)),
        (outcomes.Voicemail(), Retried(at=NOW + MINUTE)),
        (outcomes.Rescheduled(), Retried(at=NOW + MINUTE)),
        (outcomes.Rescheduled(at=NOW + 2 * HOUR), Retried(at=NOW + 2 * HOUR)),
        (outcomes.Rescheduled(at=NOW - HOUR), Retried(at=NOW)),
    ],
)
def test_the_first_attempt_under_the_default_policy(outcome: outcomes.Outcome, expected: Transition) -> None:
    assert deliveries.judge(facts(), outcome, now=NOW) == expected


def test_the_wait_grows_and_the_last_attempt_is_buried() -> None:
    words = [deliveries.judge(facts(attempt_count=count), failed(), now=NOW) for count in range(3)]
    assert words == [Retried(at=NOW + MINUTE), Retried(at=NOW + 2 * MINUTE), Buried(reason="exhausted")]


@pytest.mark.parametrize("outcome", builders.OUTCOMES, ids=outcomes.name)
def test_max_attempts_bounds_every_outcome(outcome: outcomes.Outcome) -> None:
    word = deliveries.judge(facts(attempt_count=2), outcome, now=NOW)
    assert not isinstance(word, Retried)


def test_ambiguous_attempts_use_up_the_budget_too() -> None:
    assert deliveries.judge(facts(attempt_count=2), AMBIGUOUS, now=NOW) == Buried(reason="exhausted")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (outcomes.NoAnswer(), Retried(at=NOW + 30 * MINUTE)),
        (outcomes.Voicemail(), Retried(at=NOW + 30 * MINUTE)),
        (outcomes.Busy(), Retried(at=NOW + MINUTE)),
        (outcomes.Rescheduled(), Retried(at=NOW + HOUR)),
        (outcomes.Rescheduled(at=NOW + MINUTE), Retried(at=NOW + MINUTE)),
        (failed(), Buried(reason="not_retried")),
        (outcomes.TimedOut(error="no connection"), Buried(reason="not_retried")),
    ],
)
def test_only_names_what_is_retried_and_the_persons_wish_is_not_bound(outcome: outcomes.Outcome, expected: Transition) -> None:
    assert deliveries.judge(facts(retry=CALLS), outcome, now=NOW) == expected


def test_what_the_person_asked_for_counts_as_an_attempt() -> None:
    word = deliveries.judge(facts(retry=CALLS, attempt_count=2), outcomes.Rescheduled(at=NOW + HOUR), now=NOW)
    assert word == Buried(reason="exhausted")


def test_a_policy_that_is_off_retries_nothing() -> None:
    off = facts(retry=Policy(enabled=False))
    assert deliveries.judge(off, failed(), now=NOW) == Buried(reason="not_retried")
    assert deliveries.judge(off, outcomes.Rescheduled(at=NOW + HOUR), now=NOW) == Buried(reason="not_retried")


@pytest.mark.parametrize(
    ("policy", "promised", "expected"),
    [
        (OnAmbiguous.RETRY, LOOKUP, Retried(at=NOW + MINUTE)),
        (OnAmbiguous.HOLD, LOOKUP, Buried(reason="ambiguous")),
        (OnAmbiguous.RECONCILE, LOOKUP, Awaiting(what="lookup", until=NOW + timedelta(seconds=30), since=NOW)),
        (OnAmbiguous.RECONCILE, contract(repeatable=False), Buried(reason="ambiguous")),
    ],
)
def test_what_is_ambiguous_goes_as_the_policy_says(policy: OnAmbiguous, promised: Contract, expected: Transition) -> None:
    asked = facts(on_ambiguous=policy, promised=promised)
    assert deliveries.judge(asked, AMBIGUOUS, now=NOW) == expected
    assert deliveries.judge(asked, failed(ambiguous=True), now=NOW) == expected, "a 5xx of what can't be repeated"


def test_a_repeatable_channels_5xx_is_a_known_failure_whatever_the_policy() -> None:
    asked = facts(on_ambiguous=OnAmbiguous.HOLD, promised=contract())
    assert deliveries.judge(asked, failed(ambiguous=True), now=NOW) == Retried(at=NOW + MINUTE)
    assert deliveries.judge(asked, AMBIGUOUS, now=NOW) == Buried(reason="ambiguous")


# ------------------------------------------------------------------------------------------ lost workers, cancels, keys


@pytest.mark.parametrize(
    ("deaths", "expected"),
    [
        (Deaths(all=1, proven=0), Returned(at=NOW, reason="worker_lost")),
        (Deaths(all=1, proven=1), Returned(at=NOW, reason="worker_lost")),
        (Deaths(all=2, proven=1), Returned(at=NOW + MINUTE, reason="worker_lost")),
        (Deaths(all=3, proven=2), Returned(at=NOW + 2 * MINUTE, reason="worker_lost")),
        (Deaths(all=50, proven=2), Returned(at=NOW + 60 * MINUTE, reason="worker_lost")),
        (Deaths(all=3, proven=3), Buried(reason="crash_loop")),
        (Deaths(all=9, proven=4), Buried(reason="crash_loop")),
    ],
)
def test_a_lost_worker_is_forgiven_and_three_proven_deaths_are_not(deaths: Deaths, expected: Transition) -> None:
    assert deliveries.judge_lost(facts(), deaths, now=NOW) == expected


def test_after_a_second_death_no_policy_waits_longer_than_its_cap() -> None:
    asked = facts(retry=Policy(base=2 * HOUR, cap=HOUR))
    assert deliveries.judge_lost(asked, Deaths(all=2), now=NOW) == Returned(at=NOW + HOUR, reason="worker_lost")


@pytest.mark.parametrize("retry", [Policy(max_attempts=1), Policy(enabled=False), Policy(only=frozenset())])
def test_a_workers_death_never_burns_the_retry_budget(retry: Policy) -> None:
    asked = facts(retry=retry, attempt_count=0)
    assert deliveries.judge_lost(asked, Deaths(all=1), now=NOW) == Returned(at=NOW, reason="worker_lost")
    assert asked.attempt_count == 0


@pytest.mark.parametrize(
    ("policy", "promised", "expected"),
    [
        (OnAmbiguous.HOLD, contract(), Buried(reason="ambiguous")),
        (OnAmbiguous.RECONCILE, contract(), Buried(reason="ambiguous")),
        (OnAmbiguous.RECONCILE, LOOKUP, Awaiting(what="lookup", until=NOW + timedelta(seconds=30), since=NOW)),
    ],
)
def test_a_lost_attempt_is_ambiguous_and_goes_as_the_policy_says(
    policy: OnAmbiguous, promised: Contract, expected: Transition
) -> None:
    asked = facts(on_ambiguous=policy, promised=promised)
    assert deliveries.judge_lost(asked, Deaths(all=1), now=NOW) == expected
    assert deliveries.judge_lost(asked, Deaths(all=3, proven=3), now=NOW) == Buried(reason="crash_loop")


@given(_facts(), st.integers(1, 50), st.integers(0, 50))
def test_the_word_on_a_lost_worker_is_always_legal(asked: Facts, every: int, proven: int) -> None:
    transition = deliveries.judge_lost(asked, Deaths(all=every, proven=min(proven, every)), now=NOW)
    for tried in (False, True):
        after = deliveries.after(State.PROCESSING, deliveries.move_of(transition, tried=tried))
        assert (deliveries.wake_at(transition) is None) == (after in deliveries.FINAL)
    woken = deliveries.wake_at(transition)
    assert woken is None or woken >= NOW


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda value: type(value).__name__)
def test_after_a_requested_cancel_the_outcome_stands_and_no_retry_follows(transition: Transition) -> None:
    heeded = deliveries.heed_cancel(transition)
    if isinstance(transition, Retried | Returned):
        assert heeded == Cancelled(reason="cancelled")
    else:
        assert heeded is transition


@pytest.mark.parametrize("outcome", builders.OUTCOMES, ids=outcomes.name)
def test_the_key_stays_until_a_failure_is_known(outcome: outcomes.Outcome) -> None:
    following = deliveries.next_key_number(facts(attempt_count=4), 2, outcome)
    assert following == (2 if isinstance(outcome, builders.NO_FAILURE) else 6), "attempt 5 came to this: a new key has number 6"


@pytest.mark.parametrize("outcome", [outcomes.TimedOut(error="late"), outcomes.Failed(error="refused", sent=False)])
def test_what_was_never_sent_does_not_end_the_key_of_an_ambiguous_attempt(outcome: outcomes.Outcome) -> None:
    assert deliveries.next_key_number(facts(attempt_count=1), 1, outcome, unknown=1) == 1
    assert deliveries.next_key_number(facts(attempt_count=1), 1, outcome, unknown=0) == 3
    assert deliveries.next_key_number(facts(attempt_count=1), 1, outcomes.Failed(error="404"), unknown=1) == 3


@given(st.lists(st.sampled_from(builders.OUTCOMES), max_size=30))
def test_the_key_number_is_that_of_the_first_attempt_since_the_last_known_failure(tries: list[outcomes.Outcome]) -> None:
    key_number = 1
    for count, outcome in enumerate(tries):
        key_number = deliveries.next_key_number(facts(attempt_count=count), key_number, outcome)
        silent = 0
        for earlier in reversed(tries[: count + 1]):
            if not isinstance(earlier, builders.NO_FAILURE):
                break
            silent += 1
        assert key_number == count + 2 - silent


def test_what_is_parked_wakes_no_later_than_its_expiry() -> None:
    parked = Returned(at=NOW + deliveries.PARKED, reason="switched_off", held_by="all")
    assert deliveries.expire(parked, NOW + HOUR) == Returned(at=NOW + HOUR, reason="switched_off", held_by="all")
    assert deliveries.expire(parked, NOW + 2 * deliveries.PARKED) is parked
    assert deliveries.expire(parked, None) is parked


@pytest.mark.parametrize("transition", TRANSITIONS[:-1], ids=lambda value: type(value).__name__)
def test_expiry_moves_nothing_but_what_is_deferred(transition: Transition) -> None:
    assert deliveries.expire(transition, NOW) is transition


def test_policies_are_part_of_the_delivery_and_do_not_change() -> None:
    kept = Policies(retry=Policy(), on_ambiguous=OnAmbiguous.RETRY)
    with pytest.raises(AttributeError):
        kept.on_ambiguous = OnAmbiguous.HOLD  # type: ignore[misc]  # frozen is what is tested
