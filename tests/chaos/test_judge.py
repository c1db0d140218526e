"""The judge finds what it is there to find: each breach is planted once in a story that is otherwise sound."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tests.chaos.judge import LOST, Attempt, Delivery, Evidence, judge
from tests.chaos.ledger import Entry

ID = str(UUID(int=7))
KEY = "dlv_" + UUID(int=7).hex


def a_delivery(**changes: object) -> Delivery:
    plain = Delivery(
        id=ID,
        state="completed",
        dedupe_key="one",
        reason=None,
        due_at=100.0,
        wake_at=None,
        finished_at=101.0,
        is_owned=False,
        attempt_count=1,
        ambiguous_attempts=0,
        max_attempts=20,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # a builder takes any field


def an_attempt(**changes: object) -> Attempt:
    plain = Attempt(
        delivery_id=ID,
        fence=1,
        worker="w",
        key_number=1,
        started_at=100.5,
        outcome="delivered",
        ambiguous=False,
        late=False,
        reason=None,
        error=None,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # a builder takes any field


def a_loss(**changes: object) -> Attempt:
    return replace(an_attempt(outcome="ambiguous", ambiguous=True, error=LOST), **changes)  # type: ignore[arg-type]  # a builder


def a_request(**changes: object) -> Entry:
    plain = Entry(
        key=KEY, idempotency_key=f"{ID}-1-abcd", attempt=1, body="hash", at=100.6, did="apply, answer 200", applied=True
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # a builder takes any field


def evidence(
    *,
    delivery: Delivery | None = None,
    attempts: tuple[Attempt, ...] = (an_attempt(),),
    ledger: tuple[Entry, ...] = (a_request(),),
    acknowledged: dict[str, str] | None = None,
) -> Evidence:
    return Evidence(
        acknowledged={"one": ID} if acknowledged is None else acknowledged,
        bodies={ID: "hash"},
        deliveries=[delivery or a_delivery()],
        attempts=attempts,
        ledger=ledger,
    )


def test_a_sound_story_has_no_breach() -> None:
    assert judge(evidence()).breaches == []


def test_a_second_effect_after_a_lost_worker_is_counted_and_no_breach() -> None:
    told = evidence(
        delivery=a_delivery(ambiguous_attempts=1),
        attempts=(a_loss(), an_attempt(fence=2)),
        ledger=(a_request(), a_request(at=104.0)),
    )
    verdict = judge(told)
    assert verdict.breaches == []
    assert (verdict.figures["doubles"], verdict.figures["interrupted"]) == (1, 1)


@pytest.mark.parametrize(
    ("told", "breach"),
    [
        (evidence(acknowledged={"one": ID, "two": str(UUID(int=8))}), "is not in the database"),
        (evidence(acknowledged={"two": ID}), "was acknowledged for two and has one"),
        (evidence(acknowledged={}), "nobody was told"),
        (evidence(ledger=(a_request(), a_request(key="dlv_other"))), "of which the database knows nothing"),
        (evidence(delivery=a_delivery(state="processing")), "never came to an end"),
        (evidence(delivery=a_delivery(wake_at=200.0)), "has ended, but wake_at=200.0"),
        (evidence(delivery=a_delivery(state="skipped")), "ended in a way that nobody asked for"),
        (evidence(ledger=(a_request(at=99.0),)), "was sent before it was due"),
        (evidence(ledger=(a_request(applied=False),)), "had no effect"),
        (evidence(ledger=(a_request(), a_request())), "had 2 effects with 0 ambiguous attempts"),
        (evidence(ledger=(a_request(), a_request(applied=False))), "was sent 2 times in 1 attempts"),
        (evidence(ledger=(a_request(body="other"),)), "got other bytes"),
        (evidence(attempts=(an_attempt(key_number=2),)), "key 1 was sent 1 times in 0 attempts"),
        (
            evidence(
                delivery=a_delivery(attempt_count=2),
                attempts=(an_attempt(outcome="failed"), an_attempt(fence=2)),
                ledger=(a_request(applied=False), a_request()),
            ),
            "key 1 was used again after an attempt whose end was known",
        ),
        (
            evidence(
                delivery=a_delivery(ambiguous_attempts=1),
                attempts=(a_loss(), an_attempt(fence=2)),
                ledger=(a_request(), a_request(idempotency_key=f"{ID}-1-ffff")),
            ),
            "had two idempotency keys of one number",
        ),
        (evidence(delivery=a_delivery(ambiguous_attempts=1)), "counts 1 ambiguous attempts and has 0"),
        (evidence(delivery=a_delivery(attempt_count=2)), "counts 2 attempts and has 1"),
        (evidence(delivery=a_delivery(state="dead_letter", reason="crash_loop")), "for no good reason: crash_loop"),
        (evidence(delivery=a_delivery(state="dead_letter", reason="exhausted")), "for no good reason: exhausted"),
    ],
)
def test_the_judge_finds_a_planted_breach(told: Evidence, breach: str) -> None:
    assert any(breach in found for found in judge(told).breaches), judge(told).breaches
