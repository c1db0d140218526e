import re
from typing import get_args

import pytest

from campana.domain import outcomes
from tests.domain import builders


def test_every_outcome_has_one_word_of_its_own() -> None:
    kinds = set(get_args(outcomes.Outcome))
    assert set(outcomes.NAMES) == kinds
    assert len(set(outcomes.NAMES.values())) == len(kinds)
    assert all(re.fullmatch("[a-z_]+", word) for word in outcomes.NAMES.values())


def test_the_builders_hold_every_kind_of_outcome() -> None:
    assert {type(outcome) for outcome in builders.OUTCOMES} == set(get_args(outcomes.Outcome))


@pytest.mark.parametrize("outcome", builders.OUTCOMES, ids=outcomes.name)
def test_only_what_went_wrong_has_an_error(outcome: outcomes.Outcome) -> None:
    went_well = isinstance(outcome, outcomes.Delivered | outcomes.Accepted)
    assert (outcomes.error(outcome) is None) == went_well
    assert went_well or outcomes.error(outcome)


def test_an_unproven_effect_is_ambiguous_whether_an_answer_came_or_not() -> None:
    assert outcomes.is_ambiguous(outcomes.Ambiguous(error="reset"))
    assert outcomes.is_ambiguous(builders.failed(ambiguous=True))
    assert not outcomes.is_ambiguous(builders.failed())
    assert not outcomes.is_ambiguous(outcomes.TimedOut(error="no connection"))
    assert not outcomes.is_ambiguous(outcomes.Delivered())


def test_what_was_withheld_is_no_outcome() -> None:
    assert outcomes.Withheld not in get_args(outcomes.Outcome)


def test_an_outcome_does_not_change() -> None:
    with pytest.raises(AttributeError):
        outcomes.NoAnswer().error = "other"  # type: ignore[misc]  # frozen is what is tested
