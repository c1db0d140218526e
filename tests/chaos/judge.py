"""The judge: what must hold between what was acknowledged, what the database says and what the receiver has written down.

Pure: values in, breaches and figures out. It shares no code with the product, so no fault is on both sides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.ledger import Entry

STATES = (
    *("scheduled", "processing", "in_progress", "pending_retry", "completed", "dead_letter", "declined"),
    *("skipped", "cancelled"),
)
FINAL = frozenset(STATES[4:])
LOST = "the worker died or lost its lease"
_EARLY = 0.05
"""Seconds: the engine knows the database's clock to half a round trip."""


FEWEST_DEATHS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A row of deliveries."""

    id: str
    state: str
    dedupe_key: str
    reason: str | None
    due_at: float
    wake_at: float | None
    finished_at: float | None
    is_owned: bool
    attempt_count: int
    ambiguous_attempts: int
    max_attempts: int

    @property
    def key(self) -> str:
        return "dlv_" + self.id.replace("-", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A row of attempts."""

    delivery_id: str
    fence: int
    worker: str
    key_number: int
    started_at: float
    outcome: str
    ambiguous: bool
    late: bool
    reason: str | None
    error: str | None

    @property
    def is_loss(self) -> bool:
        """Say whether it was written for a worker that was lost; it is no try of the delivery's own."""
        return self.error == LOST and self.outcome == "ambiguous"

    @property
    def came_late(self) -> bool:
        """Say whether it was added after the fact and changed nothing."""
        return self.late and self.reason is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that there is to judge; `acknowledged` is dedupe key to id, `bodies` id to the hash of what was asked for."""

    acknowledged: Mapping[str, str]
    bodies: Mapping[str, str]
    deliveries: Sequence[Delivery]
    attempts: Sequence[Attempt]
    ledger: Sequence[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Every breach in a sentence, and the figures for the table."""

    breaches: Sequence[str]
    figures: Mapping[str, float]


def judge(evidence: Evidence) -> Verdict:
    """Everything is held against everything else."""
    attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in sorted(evidence.attempts, key=lambda attempt: attempt.fence):
        attempts[attempt.delivery_id].append(attempt)
    requests: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in evidence.ledger:
        requests[entry.key].append(entry)
    breaches = [*_intake(evidence), *_strangers(evidence)]
    for delivery in evidence.deliveries:
        tries, seen = attempts[delivery.id], requests[delivery.key]
        for rule in (_end, _effects, _keys, _books, _letter):
            breaches += [f"{delivery.id} ({delivery.state}): {fault}" for fault in rule(delivery, tries, seen)]
        if any(entry.body != evidence.bodies.get(delivery.id) for entry in seen):
            breaches.append(f"{delivery.id}: got other bytes than were asked for")
    return Verdict(breaches=breaches, figures=_figures(evidence, requests))


def _intake(evidence: Evidence) -> Iterator[str]:
    known = {delivery.id: delivery for delivery in evidence.deliveries}
    for dedupe_key, delivery_id in evidence.acknowledged.items():
        if delivery_id not in known:
            yield f"{dedupe_key} was acknowledged as {delivery_id} and is not in the database"
        elif known[delivery_id].dedupe_key != dedupe_key:
            yield f"{delivery_id} was acknowledged for {dedupe_key} and has {known[delivery_id].dedupe_key}"
    for dedupe_key, count in Counter(delivery.dedupe_key for delivery in evidence.deliveries).items():
        if count > 1:
            yield f"{dedupe_key} is in the database {count} times"
        if dedupe_key not in evidence.acknowledged:
            yield f"{dedupe_key} is in the database and nobody was told"


def _strangers(evidence: Evidence) -> Iterator[str]:
    known = {delivery.key for delivery in evidence.deliveries}
    for key in {entry.key for entry in evidence.ledger} - known:
        yield f"the receiver got {key}, of which the database knows nothing"


def _end(delivery: Delivery, tries: Sequence[Attempt], seen: Sequence[Entry]) -> Iterator[str]:
    if delivery.state not in FINAL:
        yield "never came to an end"
    elif delivery.wake_at is not None or delivery.is_owned or delivery.finished_at is None:
        yield f"has ended, but wake_at={delivery.wake_at}, owned={delivery.is_owned}, finished_at={delivery.finished_at}"
    if any(entry.at < delivery.due_at - _EARLY for entry in seen):
        yield "was sent before it was due"
    if delivery.state in FINAL - {"completed", "dead_letter"}:
        yield "ended in a way that nobody asked for"


def _effects(delivery: Delivery, tries: Sequence[Attempt], seen: Sequence[Entry]) -> Iterator[str]:
    effects, ambiguous = sum(entry.applied for entry in seen), sum(attempt.ambiguous for attempt in tries)
    if delivery.state == "completed" and not effects:
        yield "had no effect"
    if effects > 1 + ambiguous:
        yield f"had {effects} effects with {ambiguous} ambiguous attempts"
    if len(seen) > len(tries) + _open(delivery):
        yield f"was sent {len(seen)} times in {len(tries)} attempts"


def _open(delivery: Delivery) -> int:
    """How many attempts may be under way without a row."""
    return int(delivery.state == "processing")


def _left(attempt: Attempt) -> bool:
    """Whether anything of it left: what did not tells nothing of an ambiguous attempt before it."""
    unsent = ("the connection was refused or lost before the request", "the name did not resolve", "TLS failed before")
    return attempt.outcome != "timed_out" and not (attempt.error or "").startswith(unsent)


def _keys(delivery: Delivery, tries: Sequence[Attempt], seen: Sequence[Entry]) -> Iterator[str]:
    sent = Counter(_key_number(entry) for entry in seen)
    if len({entry.idempotency_key for entry in seen}) != len(sent):
        yield "had two idempotency keys of one number"
    for number, count in sent.items():
        same = [attempt for attempt in tries if attempt.key_number == number]
        if count > len(same) + _open(delivery):
            yield f"key {number} was sent {count} times in {len(same)} attempts"
        if any(not attempt.ambiguous and _left(attempt) for attempt in same[:-1]):
            yield f"key {number} was used again after an attempt whose end was known"


def _key_number(entry: Entry) -> int:
    return int(entry.idempotency_key.rsplit("-", 2)[1])


def _books(delivery: Delivery, tries: Sequence[Attempt], seen: Sequence[Entry]) -> Iterator[str]:
    ambiguous = sum(attempt.ambiguous and not attempt.came_late for attempt in tries)
    if delivery.ambiguous_attempts != ambiguous:
        yield f"counts {delivery.ambiguous_attempts} ambiguous attempts and has {ambiguous}"
    counted = sum(not attempt.is_loss and not attempt.came_late for attempt in tries)
    if delivery.attempt_count != counted:
        yield f"counts {delivery.attempt_count} attempts and has {counted}"


def _letter(delivery: Delivery, tries: Sequence[Attempt], seen: Sequence[Entry]) -> Iterator[str]:
    if delivery.state != "dead_letter":
        return
    if delivery.reason == "permanent" and any(entry.did == "answer 404" for entry in seen):
        return
    if delivery.reason == "exhausted" and delivery.attempt_count >= delivery.max_attempts:
        return
    # Three workers that died while this one went alone look like poison, however random the kills were. Before that, one
    # died with it among others at least twice.
    if delivery.reason == "crash_loop" and sum(attempt.is_loss for attempt in tries) >= FEWEST_DEATHS:
        return
    yield f"is a dead letter for no good reason: {delivery.reason}"


def _figures(evidence: Evidence, requests: Mapping[str, Sequence[Entry]]) -> dict[str, float]:
    known = {delivery.id for delivery in evidence.deliveries}
    effects = {key: sum(entry.applied for entry in seen) for key, seen in requests.items()}
    return {
        "deliveries": len(evidence.deliveries),
        "effects": sum(effects.values()),
        "doubles": sum(count - 1 for count in effects.values() if count > 1),
        "ambiguous": sum(attempt.ambiguous for attempt in evidence.attempts),
        "interrupted": sum(attempt.is_loss for attempt in evidence.attempts),
        "dead": sum(delivery.state == "dead_letter" for delivery in evidence.deliveries),
        "lost": sum(delivery_id not in known for delivery_id in evidence.acknowledged.values()),
    }
