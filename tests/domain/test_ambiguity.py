import pytest

from campana.domain import ambiguity, outcomes
from campana.domain.ambiguity import Certainty, OnAmbiguous, Trouble
from tests.domain import builders

# By hand from docs/model.md: what is not sent may be repeated; of the rest nobody knows.
NOT_SENT = {"UNRESOLVED", "REFUSED_ADDRESS", "NO_CONNECTION", "CONNECT_TIMEOUT", "TLS", "NOT_TAKEN"}
UNKNOWN = {"WRITE_TIMEOUT", "RESET", "READ_TIMEOUT", "TRUNCATED", "UNREADABLE", "WORKER_LOST"}


def test_every_trouble_stands_in_the_table_once() -> None:
    assert {trouble.name for trouble in Trouble} == NOT_SENT | UNKNOWN
    assert set(ambiguity.CERTAINTY) == set(Trouble)


@pytest.mark.parametrize("name", sorted(NOT_SENT))
def test_what_never_left_is_a_known_failure(name: str) -> None:
    trouble = Trouble[name]
    outcome = ambiguity.outcome_of(trouble, "details")
    assert ambiguity.CERTAINTY[trouble] is Certainty.NOT_SENT
    assert not outcomes.is_ambiguous(outcome)
    assert isinstance(outcome, outcomes.TimedOut if name == "CONNECT_TIMEOUT" else outcomes.Failed)


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_what_may_have_been_acted_on_is_ambiguous(name: str) -> None:
    trouble = Trouble[name]
    assert ambiguity.CERTAINTY[trouble] is Certainty.UNKNOWN
    assert isinstance(ambiguity.outcome_of(trouble, "details"), outcomes.Ambiguous)


@pytest.mark.parametrize("trouble", Trouble)
def test_only_an_address_that_is_not_allowed_is_permanent(trouble: Trouble) -> None:
    outcome = ambiguity.outcome_of(trouble, "")
    permanent = isinstance(outcome, outcomes.Failed) and outcome.permanent
    assert permanent == (trouble is Trouble.REFUSED_ADDRESS)


@pytest.mark.parametrize("trouble", Trouble)
def test_the_error_names_the_trouble_and_its_details(trouble: Trouble) -> None:
    assert outcomes.error(ambiguity.outcome_of(trouble, "host example.com")) == f"{trouble.value}: host example.com"
    assert outcomes.error(ambiguity.outcome_of(trouble, "")) == trouble.value


def test_what_came_back_is_kept_as_evidence() -> None:
    answer = outcomes.Answer(code=200, body="{")
    for trouble in Trouble:
        assert ambiguity.outcome_of(trouble, "", answer).answer is answer


@pytest.mark.parametrize(
    ("status", "unknown"),
    [(200, False), (400, False), (404, False), (408, True), (409, False), (410, False), (425, False), (429, False)]
    + [(status, True) for status in (500, 501, 502, 503, 504, 529, 599)]
    + [(499, False), (600, False)],
)
def test_after_408_and_5xx_the_receiver_may_have_acted(status: int, unknown: bool) -> None:
    assert builders.contract().is_unknown(status) is unknown


def test_a_provider_may_promise_more() -> None:
    assert not ambiguity.CONTRACTS["log"].is_unknown(500)


@pytest.mark.parametrize("channel", ["webhook", "python", "log"])
def test_channels_whose_receivers_can_deduplicate_are_repeated(channel: str) -> None:
    promised = ambiguity.CONTRACTS[channel]
    assert promised.repeatable
    assert promised.on_ambiguous is OnAmbiguous.RETRY


def test_only_who_can_be_asked_is_reconciled_by_default() -> None:
    for channel, promised in ambiguity.CONTRACTS.items():
        assert promised.on_ambiguous is not OnAmbiguous.RECONCILE or promised.lookup_after is not None, channel
