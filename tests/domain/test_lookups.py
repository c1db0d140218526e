"""Look-ups: what is found is adopted, only absence is repeated, and what stays open for a day is a person's."""

from dataclasses import replace
from datetime import timedelta

import pytest

from campana.domain import deliveries, lookups, outcomes
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import Awaiting, Buried, Completed, Retried, Transition
from campana.domain.lookups import Absent, Answer, Found, Going, Unsure
from campana.domain.retries import Policy
from tests.domain.builders import HOUR, MINUTE, NOW, contract, facts, failed

DAY = timedelta(hours=24)
PROMISED = contract(repeatable=False, on_ambiguous=OnAmbiguous.RECONCILE, lookup_after=MINUTE)
FACTS = facts(promised=PROMISED, on_ambiguous=OnAmbiguous.RECONCILE)


def _judge(answer: Answer, *, since: timedelta = timedelta(0), asked: deliveries.Facts = FACTS) -> Transition:
    return lookups.judge(asked, answer, since=NOW - since, now=NOW)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Found(outcome=outcomes.Delivered()), Completed()),
        (Found(outcome=outcomes.Accepted(until=NOW + HOUR)), Awaiting(what="callback", until=NOW + HOUR)),
        (Found(outcome=failed()), Retried(at=NOW + MINUTE)),
        (Found(outcome=failed(permanent=True)), Buried(reason="permanent")),
        (Absent(), Retried(at=NOW)),
        (Going(until=NOW + HOUR), Awaiting(what="lookup", until=NOW + HOUR, since=NOW)),
    ],
)
def test_what_is_known_decides(answer: Answer, expected: Transition) -> None:
    assert _judge(answer) == expected


@pytest.mark.parametrize(
    "answer", [Unsure(error="503"), Found(outcome=outcomes.Ambiguous(error="?")), Found(outcome=failed(ambiguous=True))]
)
def test_what_decides_nothing_is_asked_again_and_never_repeated(answer: Answer) -> None:
    assert _judge(answer) == Awaiting(what="lookup", until=NOW + timedelta(seconds=30), since=NOW)
    assert _judge(answer, since=10 * MINUTE) == Awaiting(what="lookup", until=NOW + 5 * MINUTE, since=NOW - 10 * MINUTE)
    assert _judge(answer, since=DAY - MINUTE) == Awaiting(what="lookup", until=NOW + 15 * MINUTE, since=NOW - DAY + MINUTE)
    assert _judge(answer, since=DAY) == Buried(reason="ambiguous")


@pytest.mark.parametrize("retry", [Policy(max_attempts=1), Policy(enabled=False)])
def test_absence_is_repeated_no_further_than_the_policy_allows(retry: Policy) -> None:
    assert _judge(Absent(), asked=facts(promised=PROMISED, retry=retry)) == Buried(reason="exhausted")


def test_absence_is_repeated_though_the_policy_names_other_outcomes() -> None:
    assert _judge(Absent(), asked=facts(promised=PROMISED, retry=Policy(only=frozenset({"busy"})))) == Retried(at=NOW)


def test_nobody_is_asked_before_the_request_is_over() -> None:
    asked = replace(FACTS, request_until=NOW + HOUR)
    word = deliveries.judge(asked, outcomes.Ambiguous(error="reset"), now=NOW)
    assert word == Awaiting(what="lookup", until=NOW + HOUR + MINUTE, since=NOW)


def test_a_key_that_is_not_honoured_any_more_is_not_sent_again() -> None:
    lives = replace(contract(repeatable=False), key_lifetime=timedelta(minutes=10))
    young = replace(facts(promised=lives), key_since=NOW - 8 * MINUTE)
    old = replace(young, key_since=NOW - 9 * MINUTE)
    reset = outcomes.Ambiguous(error="reset")
    assert deliveries.judge(young, reset, now=NOW) == Retried(at=NOW + MINUTE)
    assert deliveries.judge(old, reset, now=NOW) == Buried(reason="ambiguous")
    assert deliveries.judge(replace(old, contract=replace(lives, lookup_after=MINUTE)), reset, now=NOW) == Awaiting(
        what="lookup", until=NOW + MINUTE, since=NOW
    )
    assert deliveries.judge(old, failed(), now=NOW) == Retried(at=NOW + MINUTE), "a known failure gets a new key"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Found(outcome=outcomes.NoAnswer()), "found: no_answer"),
        (Absent(), "absent"),
        (Going(until=NOW), "still going on"),
        (Unsure(error="x" * 200), "unsure: " + "x" * 92),
    ],
)
def test_a_look_up_is_told_in_words(answer: Answer, words: str) -> None:
    assert lookups.words(answer) == words
