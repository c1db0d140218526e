"""Whole lives of deliveries: driven at random, and compared at each step with the hand-written diagram."""

from datetime import datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from campana.domain import deliveries, outcomes
from campana.domain.ambiguity import Contract
from campana.domain.deliveries import Deaths, Facts, Move, Policies, State, Transition
from campana.errors import IllegalTransitionError
from tests.domain import builders, diagram

WAITS = st.timedeltas(timedelta(0), timedelta(days=2))


class Life(RuleBasedStateMachine):
    """One delivery, kept as the store keeps it; `word` is where the diagram says that it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.now = builders.NOW
        self.word = "scheduled"
        self.state = State.SCHEDULED
        self.wake_at: datetime | None = self.now
        self.attempts: list[bool] = []  # of this generation: whether it is known to have failed
        self.key_number = 1
        self.deaths = Deaths()
        self.cancel_requested = False
        self.expires_at: datetime | None = None

    @initialize(policies=builders.policies(), promised=st.sampled_from(builders.CONTRACTS), expires_in=st.none() | WAITS)
    def make(self, policies: Policies, promised: Contract, expires_in: timedelta | None) -> None:
        self.policies, self.contract = policies, promised
        self.expires_at = None if expires_in is None else self.now + expires_in

    @rule(state=st.sampled_from(State), move=st.sampled_from(Move))
    def ask_the_table(self, state: State, move: Move) -> None:
        """Nothing that the diagram does not show is ever legal, wherever the delivery stands."""
        assert_like_diagram(self.state, move)
        assert_like_diagram(state, move)

    @precondition(lambda self: self.word in {"scheduled", "pending_retry"})
    @rule()
    def claim(self) -> None:
        assert self.wake_at is not None
        self.now = max(self.now, self.wake_at)
        self._move(Move.CLAIM, wake_at=self.now + timedelta(minutes=1))

    @precondition(lambda self: self.word == "processing")
    @rule(outcome=st.sampled_from(builders.OUTCOMES), chance=builders.CHANCES)
    def settle(self, outcome: outcomes.Outcome, chance: float) -> None:
        asked = self._facts(len(self.attempts))
        transition = deliveries.judge(asked, outcome, now=self.now, chance=chance)
        self.key_number = deliveries.next_key_number(asked, self.key_number, outcome)
        self.attempts.append(not isinstance(outcome, builders.NO_FAILURE))
        self._become(transition)

    @precondition(lambda self: self.word == "in_progress")
    @rule(outcome=st.sampled_from(builders.OUTCOMES), chance=builders.CHANCES)
    def call_back(self, outcome: outcomes.Outcome, chance: float) -> None:
        asked = self._facts(len(self.attempts) - 1)
        transition = deliveries.judge(asked, outcome, now=self.now, chance=chance)
        self.key_number = deliveries.next_key_number(asked, self.key_number, outcome)
        self.attempts[-1] = not isinstance(outcome, builders.NO_FAILURE)
        self._become(transition)

    @precondition(lambda self: self.word == "processing")
    @rule(proven=st.booleans())
    def lose_the_worker(self, proven: bool) -> None:
        self.deaths = Deaths(all=self.deaths.all + 1, proven=self.deaths.proven + proven)
        transition = deliveries.judge_lost(self._facts(len(self.attempts)), self.deaths, now=self.now)
        if isinstance(transition, deliveries.Awaiting):
            self.attempts.append(False)
        self._become(transition)

    @precondition(lambda self: self.word == "processing")
    @rule(wait=WAITS, scope=st.none() | st.just("all"))
    def defer(self, wait: timedelta, scope: str | None) -> None:
        self._become(deliveries.Returned(at=self.now + wait, reason="held", held_by=scope))

    @precondition(lambda self: self.word in {"scheduled", "pending_retry", "processing"})
    @rule()
    def skip(self) -> None:
        self._become(deliveries.Skipped(reason="expired"))

    @precondition(lambda self: self.word in diagram.LIVE)
    @rule()
    def cancel(self) -> None:
        self.cancel_requested = True
        if self.word in {"scheduled", "pending_retry"}:
            self._become(deliveries.Cancelled(reason="cancelled"))

    @precondition(lambda self: self.word == "pending_retry")
    @rule()
    def hear_a_late_success(self) -> None:
        self._become(deliveries.Completed())

    @precondition(lambda self: self.word == "dead_letter")
    @rule(move=st.sampled_from([Move.REDRIVE, Move.COMPLETE, Move.DISCARD]))
    def decide(self, move: Move) -> None:
        self._move(move, wake_at=self.now if move is Move.REDRIVE else None)
        self.attempts, self.key_number, self.deaths, self.cancel_requested = [], 1, Deaths(), False

    @invariant()
    def live_has_a_wake_up_and_final_has_none(self) -> None:
        assert (self.wake_at is not None) == (self.word in diagram.LIVE) == (self.state in deliveries.LIVE)

    @invariant()
    def the_code_stands_where_the_diagram_does(self) -> None:
        assert self.state.word == self.word

    @invariant()
    def the_key_is_that_of_the_first_attempt_since_the_last_known_failure(self) -> None:
        known = max((number for number, is_known in enumerate(self.attempts, 1) if is_known), default=0)
        assert self.key_number == known + 1

    @invariant()
    def a_cancelled_wish_is_never_tried_again(self) -> None:
        assert not (self.cancel_requested and self.word in {"scheduled", "pending_retry"})

    @invariant()
    def attempts_are_bounded(self) -> None:
        if self.word in {"scheduled", "pending_retry"} and self.attempts:
            assert len(self.attempts) < self.policies.retry.max_attempts

    def _facts(self, count: int) -> Facts:
        return Facts(attempt_count=count, policies=self.policies, contract=self.contract)

    def _become(self, transition: Transition) -> None:
        if self.cancel_requested:
            transition = deliveries.heed_cancel(transition)
        transition = deliveries.expire(transition, self.expires_at)
        self._move(deliveries.move_of(transition, tried=bool(self.attempts)), wake_at=deliveries.wake_at(transition))

    def _move(self, move: Move, *, wake_at: datetime | None) -> None:
        self.word = diagram.ARROWS[self.word, move.value]
        self.state = deliveries.after(self.state, move)
        self.wake_at = wake_at


def assert_like_diagram(state: State, move: Move) -> None:
    target = diagram.ARROWS.get((state.word, move.value))
    if target is None:
        with pytest.raises(IllegalTransitionError):
            deliveries.after(state, move)
    else:
        assert deliveries.after(state, move).word == target


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
