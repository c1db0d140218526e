"""Evidence: each try at a delivery as an attempt, each claim that came to none as a verdict, and what came too late.

Both are rows under the claim's fence, so that a settlement that is written again finds its own, and one that lost its claim
never overwrites another's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Insert, Row, and_, delete, insert, or_, select, update

from campana.domain import deliveries as model
from campana.domain import outcomes
from campana.domain.tickets import Attempt, Settlement
from campana.store import dialects
from campana.store.schema import attempts, verdicts

_INTO_ATTEMPTS, _INTO_VERDICTS = insert(attempts), insert(verdicts)


def keep(connection: Connection, settlements: Sequence[Settlement]) -> None:
    """Write the attempts and verdicts of settlements that were just written."""
    _insert(
        connection, _INTO_ATTEMPTS, [_attempt_row(one, one.attempt) for one in settlements if one.attempt and not one.intended]
    )
    _insert(connection, _INTO_VERDICTS, [_verdict_row(one) for one in settlements if one.withheld is not None])
    for one in settlements:
        _amend(connection, one)


def _insert(connection: Connection, into: Insert, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    # What is null in all of them need not be said: a column costs as much as the next one.
    said = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    dialects.of(connection).insert_all(connection, into, [{name: row[name] for name in said} for row in rows])


def _attempt_row(settlement: Settlement, attempt: Attempt, *, late: bool = False) -> dict[str, Any]:
    outcome, answer = attempt.outcome, attempt.outcome.answer
    return {
        "delivery_id": settlement.delivery_id,
        "fence": settlement.fence,
        "tenant_id": settlement.tenant_id,
        "generation": settlement.generation,
        "number": attempt.number,
        "key_number": attempt.key_number,
        "started_at": attempt.started_at,
        "finished_at": attempt.finished_at,
        "outcome": outcomes.name(outcome),
        "ambiguous": outcomes.is_ambiguous(outcome),
        "late": late,
        "reason": None,
        "error": (outcomes.error(outcome) or "")[:2000] or None,
        "response_code": answer.code,
        "response_headers": dialects.json_text(answer.headers) if answer.headers else None,
        "response_body": answer.body,
        "worker": attempt.worker,
        "provider": answer.provider,
        "provider_call_id": answer.provider_call_id,
        "cost": None if answer.cost is None else str(answer.cost),
        "guards": attempt.guards or None,
    }


def _verdict_row(settlement: Settlement) -> dict[str, Any]:
    withheld, transition = settlement.withheld, settlement.transition
    return {
        "delivery_id": settlement.delivery_id,
        "fence": settlement.fence,
        "tenant_id": settlement.tenant_id,
        "at": withheld.at if withheld else None,
        "guards": withheld.guards if withheld else "",
        "verdict": withheld.verdict if withheld else "",
        "reason": ((withheld.reason if withheld else None) or getattr(transition, "reason", None) or "")[:100],
        "until": model.wake_at(transition),
    }


def _amend(connection: Connection, settlement: Settlement) -> None:
    """Complete the row of an attempt that was written before: with what came of it, with silence, or not at all."""
    c = attempts.c
    if settlement.silent_fence is not None:
        silent = (c.delivery_id == settlement.delivery_id, c.fence == settlement.silent_fence)
        connection.execute(update(attempts).where(*silent).values(ambiguous=True, reason="no callback in time"))
    if not settlement.intended:
        return
    its = (c.delivery_id == settlement.delivery_id, c.fence == settlement.fence)
    connection.execute(delete(attempts).where(*its, c.outcome.is_(None)))
    if settlement.attempt is not None:
        # Anew rather than changed: a COMMIT of the intent that was not answered may have left no row.
        connection.execute(_INTO_ATTEMPTS, _attempt_row(settlement, settlement.attempt))


def recorded(connection: Connection, stale: Iterable[Settlement]) -> Mapping[tuple[UUID, int], Row[Any]]:
    """Return what is on record under the claims of these settlements."""
    found: dict[tuple[UUID, int], Row[Any]] = {}
    for table in (verdicts, attempts):
        c = table.c
        claims = or_(*(and_(c.delivery_id == s.delivery_id, c.fence == s.fence) for s in stale))
        for row in connection.execute(select(table).where(claims)):
            found[row.delivery_id, row.fence] = row
    return found


def is_ours(settlement: Settlement, record: Row[Any] | None) -> bool:
    """Say whether this very settlement wrote it."""
    if record is None:
        return False
    if settlement.attempt is None:
        return hasattr(record, "verdict")
    if hasattr(record, "verdict") or record.late:
        return False
    attempt = settlement.attempt
    said = (attempt.worker, outcomes.name(attempt.outcome), attempt.started_at, attempt.finished_at)
    return said == (record.worker, record.outcome, record.started_at, record.finished_at)


def keep_late(connection: Connection, settlement: Settlement, attempt: Attempt, *, is_recorded: bool) -> None:
    """Keep an attempt that lost its claim: beside the verdict of whoever ended the lease, else as a row of its own."""
    row = _attempt_row(settlement, attempt, late=True)
    if not is_recorded:
        connection.execute(insert(attempts), row)
        return
    # Whoever ended the lease has already recorded this attempt as lost: its verdict stands, what came in is shown beside it.
    evidence = {name: row[name] for name in ("late", "response_code", "response_headers", "response_body")}
    c = attempts.c
    connection.execute(
        update(attempts)
        .where(c.delivery_id == settlement.delivery_id, c.fence == settlement.fence, c.late.is_(False))
        .values(reason=f"late: {row['outcome']}", **evidence)
    )
