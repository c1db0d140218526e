"""What the whole engine needs: lanes, slots, limits, the ledger, events, sweeps, operations in the background."""

import sqlalchemy as sa

from campana.store.columns import Id, Instant, Name, long_text
from campana.store.migrations import steps

revision = "0002"
down_revision = "0001"

_UTF8 = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    """Add the columns and tables, then the indexes that each database can have."""
    _columns()
    _sweeps()
    _lanes()
    _slots()
    _limits()
    _ledger()
    _events()
    _operations()
    if steps.dialect() == "mysql":
        _mysql_indexes()
    else:
        _partial_indexes()
    if steps.dialect() == "postgresql":
        # In words of its own, so that no statistics can make the planner take another index for a fair claim.
        steps.drop_index("deliveries_fair", "deliveries")
        apart = ["queue", "tenant_id", "priority", "wake_at"]
        _partial("deliveries_fair", "deliveries", "coalesce(state, -1) in (0, 3)", apart)


def _columns() -> None:
    for column in (
        sa.Column("schedule_id", Id),
        sa.Column("lane_key", Name(200)),
        sa.Column("resource", Name(200)),
        sa.Column("slot_at", Instant),
        sa.Column("key_at", Instant),
        sa.Column("awaiting_since", Instant),
    ):
        steps.add_column("deliveries", column)
    steps.add_column("leases", sa.Column("cursor", sa.BigInteger()))
    steps.add_column("engines", sa.Column("queues", long_text()))
    steps.add_column("engines", sa.Column("left_at", Instant))
    steps.add_column("verdicts", sa.Column("actor", sa.String(200)))
    steps.add_column("verdicts", sa.Column("note", sa.String(500)))


def _sweeps() -> None:
    steps.create_table(
        "sweeps",
        sa.Column("name", Name(60), primary_key=True),
        sa.Column("next_at", Instant, nullable=False),
        sa.Column("started_at", Instant),
        sa.Column("finished_at", Instant),
        sa.Column("done", sa.BigInteger()),
        sa.Column("past", Id),
        sa.Column("error", sa.String(500)),
        **_UTF8,
    )


def _lanes() -> None:
    steps.create_table(
        "lanes",
        sa.Column("lane_key", Name(200), primary_key=True),
        sa.Column("delivery_id", Id, nullable=False),
        sa.Column("until", Instant, nullable=False),
        **_UTF8,
    )


def _slots() -> None:
    steps.create_table(
        "slots",
        sa.Column("resource", Name(200), primary_key=True),
        sa.Column("n", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("delivery_id", Id),
        **_UTF8,
    )


def _limits() -> None:
    steps.create_table(
        "limits",
        sa.Column("scope", Name(200), primary_key=True),
        sa.Column("interval_us", sa.BigInteger(), nullable=False),
        sa.Column("burst", sa.Integer(), nullable=False),
        sa.Column("tat", Instant, nullable=False),
        **_UTF8,
    )


def _ledger() -> None:
    steps.create_table(
        "ledger",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("entity_type", Name(64), nullable=False),
        sa.Column("entity_id", Name(255), nullable=False),
        sa.Column("reminder_type", Name(64), nullable=False),
        sa.Column("user_id", Name(255), nullable=False),
        sa.Column("claimed_at", Instant, nullable=False),
        sa.Column("held_until", Instant),
        sa.Column("sent_at", Instant),
        sa.Column("delivery_id", Id),
        **_UTF8,
    )
    key = ["tenant_id", "entity_type", "entity_id", "reminder_type", "user_id"]
    steps.create_index("ledger_key", "ledger", key, unique=True)


def _events() -> None:
    steps.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("delivery_id", Id),
        sa.Column("kind", sa.String(60), nullable=False),
        sa.Column("at", Instant, nullable=False),
        sa.Column("data", long_text()),
        sa.Column("number", sa.BigInteger()),
        **_UTF8,
    )


def _operations() -> None:
    steps.create_table(
        "operations",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("project_id", Id),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("filter", long_text(), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("total", sa.Integer()),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("last_id", Id),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("finished_at", Instant),
        sa.Column("error", sa.String(500)),
        **_UTF8,
    )
    steps.create_index("operations_status", "operations", ["status", "id"])


def _partial_indexes() -> None:
    steps.drop_index("deliveries_held", "deliveries")
    _partial("deliveries_parked", "deliveries", "held_by is not null and state in (0, 3)", ["held_by", "due_at"])
    _partial("events_unnumbered", "events", "number is null", ["id"])
    _partial("events_stream", "events", "number is not null", ["tenant_id", "number"])


def _partial(name: str, table: str, where: str, columns: list[str]) -> None:
    steps.create_index(name, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


def _mysql_indexes() -> None:
    steps.drop_index("deliveries_held", "deliveries")
    steps.create_index("deliveries_parked", "deliveries", ["held_by", "due_at"])
    steps.create_index("events_unnumbered", "events", ["number"])
    steps.create_index("events_stream", "events", ["tenant_id", "number"])
