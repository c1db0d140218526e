"""Values for the tests of the domain: each with defaults, so that a test names only what it is about."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import strategies as st

from campana.domain import breakers, deliveries, guards, instants, outcomes, retries
from campana.domain.ambiguity import Contract, OnAmbiguous

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TENANT = UUID(int=1)
PROJECT = UUID(int=2)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def contract(
    *, repeatable: bool = True, on_ambiguous: OnAmbiguous = OnAmbiguous.RETRY, lookup_after: timedelta | None = None
) -> Contract:
    return Contract(repeatable=repeatable, on_ambiguous=on_ambiguous, lookup_after=lookup_after)


def facts(
    *,
    attempt_count: int = 0,
    retry: retries.Policy | None = None,
    on_ambiguous: OnAmbiguous = OnAmbiguous.RETRY,
    promised: Contract | None = None,
) -> deliveries.Facts:
    return deliveries.Facts(
        attempt_count=attempt_count,
        policies=deliveries.Policies(retry=retry or retries.Policy(), on_ambiguous=on_ambiguous),
        contract=promised or contract(on_ambiguous=on_ambiguous),
    )


def guard_facts(
    *,
    now: datetime = NOW,
    channel: str = "webhook",
    expires_at: datetime | None = None,
    switched_off: frozenset[str] = frozenset(),
    suspended: frozenset[UUID] = frozenset(),
    slot_at: datetime | None = None,
    key_until: datetime | None = None,
    breaker: breakers.Breaker = breakers.CLOSED,
) -> guards.Facts:
    return guards.Facts(
        now=now,
        tenant_id=TENANT,
        project_id=PROJECT,
        channel=channel,
        expires_at=expires_at,
        switched_off=switched_off,
        suspended=suspended,
        slot_at=slot_at,
        key_until=key_until,
        breaker=breaker,
    )


def failed(*, permanent: bool = False, ambiguous: bool = False, retry_after: timedelta | None = None) -> outcomes.Failed:
    return outcomes.Failed(error="503", permanent=permanent, ambiguous=ambiguous, retry_after=retry_after)


OUTCOMES: tuple[outcomes.Outcome, ...] = (
    outcomes.Delivered(),
    outcomes.Accepted(until=NOW + HOUR),
    failed(),
    failed(permanent=True),
    failed(ambiguous=True),
    failed(permanent=True, ambiguous=True),
    failed(retry_after=timedelta(days=3650)),
    outcomes.TimedOut(error="no connection in time"),
    outcomes.Ambiguous(error="reset"),
    outcomes.NoAnswer(),
    outcomes.Busy(),
    outcomes.Voicemail(),
    outcomes.Declined(),
    outcomes.Rescheduled(),
    outcomes.Rescheduled(at=NOW + HOUR),
    outcomes.Rescheduled(at=NOW - HOUR),
)
"""One of every kind, and of every kind of failure."""

NO_FAILURE = (outcomes.Ambiguous, outcomes.Accepted, outcomes.Delivered)
"""After these no provider can have stored a failure under the key: what follows, if anything, goes out under the same one."""

CONTRACTS: tuple[Contract, ...] = tuple(
    contract(repeatable=repeatable, lookup_after=after) for repeatable in (True, False) for after in (None, MINUTE)
)

NAMES = tuple(outcomes.NAMES.values())
LENGTHS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_525))
INSTANTS = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis wants the bounds naive and adds the zone
    max_value=datetime(2199, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
)
MICROS = st.integers(min_value=0, max_value=instants.to_micros(instants.LAST) - 1)
CHANCES = st.floats(min_value=0, max_value=1, exclude_max=True)


def retry_policies(*, named: bool = True) -> st.SearchStrategy[retries.Policy]:
    """Every policy that a user can write; `named`: also with delays by outcome."""
    delays = st.dictionaries(st.sampled_from(NAMES), LENGTHS, max_size=4) if named else st.just({})
    return st.builds(
        retries.Policy,
        max_attempts=st.integers(1, 20),
        backoff=st.sampled_from(retries.Backoff),
        base=LENGTHS,
        cap=LENGTHS,
        jitter=st.floats(0, 1),
        delays=delays,
        only=st.none() | st.frozensets(st.sampled_from(NAMES)),
        enabled=st.booleans(),
    )


def policies() -> st.SearchStrategy[deliveries.Policies]:
    return st.builds(deliveries.Policies, retry=retry_policies(), on_ambiguous=st.sampled_from(OnAmbiguous))
