import json
from datetime import timedelta

from hypothesis import example, given

from campana.domain import policies
from campana.domain.ambiguity import OnAmbiguous
from campana.domain.deliveries import Policies
from campana.domain.retries import Backoff, Policy
from tests.domain import builders


@given(builders.policies())
@example(Policies(retry=Policy(base=timedelta(milliseconds=10**12 + 1)), on_ambiguous=OnAmbiguous.HOLD))
@example(Policies(retry=Policy(only=frozenset()), on_ambiguous=OnAmbiguous.RECONCILE))
def test_what_is_dumped_loads_to_an_equal_value(kept: Policies) -> None:
    text = policies.dump(kept)
    assert policies.load(text) == kept
    assert policies.dump(policies.load(text)) == text


@given(builders.policies())
def test_equal_policies_have_one_text(kept: Policies) -> None:
    turned = dict(reversed(list(kept.retry.delays.items())))
    retry = policies.retry_from({"delays": {name: f"{wait.total_seconds():.6f}s" for name, wait in turned.items()}}, kept.retry)
    assert policies.dump(Policies(retry=retry, on_ambiguous=kept.on_ambiguous)) == policies.dump(kept)


def test_the_text_is_compact_json_in_words_that_people_use() -> None:
    text = policies.dump(Policies(retry=Policy(only=frozenset({"busy", "no_answer"})), on_ambiguous=OnAmbiguous.RETRY))
    assert " " not in text
    assert json.loads(text) == {
        "retry": {
            "max_attempts": 3,
            "backoff": "exponential",
            "base": "1m",
            "cap": "1h",
            "jitter": 0.0,
            "delays": {},
            "only": ["busy", "no_answer"],
            "enabled": True,
        },
        "on_ambiguous": "retry",
    }


def test_the_same_text_is_read_once() -> None:
    text = policies.dump(Policies(retry=Policy(max_attempts=7), on_ambiguous=OnAmbiguous.RETRY))
    assert policies.load(text) is policies.load(text)


DEFAULT = Policy(
    max_attempts=9,
    backoff=Backoff.LINEAR,
    base=timedelta(seconds=5),
    cap=timedelta(minutes=5),
    jitter=0.5,
    delays={"busy": builders.MINUTE},
    only=frozenset({"busy"}),
    enabled=False,
)


def test_what_is_not_said_is_taken_from_the_default() -> None:
    assert policies.retry_from({}, DEFAULT) == DEFAULT
    assert policies.retry_from({}) == Policy()


def test_what_is_said_replaces_the_default_even_where_it_is_empty() -> None:
    said = {
        "max_attempts": 1,
        "backoff": "fixed",
        "base": "0s",
        "cap": "0s",
        "jitter": 0,
        "delays": {},
        "only": [],
        "enabled": True,
    }
    assert policies.retry_from(said, DEFAULT) == Policy(
        max_attempts=1,
        backoff=Backoff.FIXED,
        base=timedelta(0),
        cap=timedelta(0),
        jitter=0,
        delays={},
        only=frozenset(),
        enabled=True,
    )


def test_null_lifts_the_restriction_to_some_outcomes() -> None:
    assert policies.retry_from({"only": None}, DEFAULT).only is None
