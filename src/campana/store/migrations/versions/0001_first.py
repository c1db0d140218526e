"""The first schema."""

import sqlalchemy as sa
import sqlalchemy.dialects.mysql
from alembic import op

from campana.store.columns import Id, Instant, Name, long_bytes, long_text
from campana.store.migrations import steps

revision = "0001"
down_revision = None

_UTF8 = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    """Make the tables, then the indexes that each database can have."""
    _tenants()
    _projects()
    _api_keys()
    _deliveries()
    _attempts()
    _verdicts()
    _switches()
    _versions()
    _engines()
    _leases()
    if steps.dialect() == "mysql":
        _mysql_indexes()
    else:
        _partial_indexes()
    if steps.dialect() == "postgresql":
        # Queue-like tables need an eager vacuum: every claim and settle leaves a dead row behind.
        op.execute(
            "alter table deliveries set"
            " (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0)"
        )


def _tenants() -> None:
    steps.create_table(
        "tenants",
        sa.Column("id", Id, primary_key=True),
        sa.Column("name", Name(120), nullable=False, unique=True),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("suspended_at", Instant),
        **_UTF8,
    )


def _projects() -> None:
    steps.create_table(
        "projects",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("name", Name(120), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        **_UTF8,
    )
    steps.create_index("projects_name", "projects", ["tenant_id", "name"], unique=True)


def _api_keys() -> None:
    steps.create_table(
        "api_keys",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("project_id", Id),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("prefix", sa.String(24), nullable=False),
        sa.Column("hash", sa.LargeBinary(32).with_variant(sa.dialects.mysql.BINARY(32), "mysql"), nullable=False, unique=True),
        sa.Column("scopes", sa.String(250), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant),
        sa.Column("revoked_at", Instant),
        sa.Column("last_used_at", Instant),
        **_UTF8,
    )
    steps.create_index("keys_tenant", "api_keys", ["tenant_id", "id"])


def _deliveries() -> None:
    steps.create_table(
        "deliveries",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("queue", Name(100), nullable=False),
        sa.Column("channel", sa.String(20), nullable=False),
        sa.Column("target", long_text(), nullable=False),
        sa.Column("payload", long_bytes()),
        sa.Column("policies", sa.String(2000), nullable=False),
        sa.Column("labels", long_text()),
        sa.Column("recipient", Name(255)),
        sa.Column("dedupe_key", Name(255)),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("scheduled_for", Instant, nullable=False),
        sa.Column("due_at", Instant, nullable=False),
        sa.Column("expires_at", Instant),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("wake_at", Instant),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_owner", Id),
        sa.Column("run_until", Instant),
        sa.Column("held_by", Name(200)),
        sa.Column("awaiting", sa.String(20)),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("key_number", sa.Integer(), nullable=False),
        sa.Column("ambiguous_attempts", sa.Integer(), nullable=False),
        sa.Column("crash_count", sa.Integer(), nullable=False),
        sa.Column("proven_crashes", sa.Integer(), nullable=False),
        sa.Column("suspect_fence", sa.Integer()),
        sa.Column("provider_call_id", sa.String(200)),
        sa.Column("reason", sa.String(100)),
        sa.Column("last_error", sa.String(2000)),
        sa.Column("finished_at", Instant),
        **_UTF8,
    )
    steps.create_index("deliveries_list", "deliveries", ["tenant_id", "id"])


def _attempts() -> None:
    steps.create_table(
        "attempts",
        sa.Column("delivery_id", Id, primary_key=True),
        sa.Column("fence", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("key_number", sa.Integer(), nullable=False),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("finished_at", Instant),
        sa.Column("outcome", sa.String(20)),
        sa.Column("ambiguous", sa.Boolean(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(100)),
        sa.Column("error", sa.String(2000)),
        sa.Column("response_code", sa.Integer()),
        sa.Column("response_headers", long_text()),
        sa.Column("response_body", long_text()),
        sa.Column("worker", Id, nullable=False),
        sa.Column("provider", sa.String(40)),
        sa.Column("provider_call_id", sa.String(200)),
        sa.Column("cost", sa.String(40)),
        sa.Column("guards", sa.String(500)),
        **_UTF8,
    )


def _verdicts() -> None:
    steps.create_table(
        "verdicts",
        sa.Column("delivery_id", Id, primary_key=True),
        sa.Column("fence", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("at", Instant, nullable=False),
        sa.Column("guards", sa.String(500), nullable=False),
        sa.Column("verdict", sa.String(20), nullable=False),
        sa.Column("reason", sa.String(100), nullable=False),
        sa.Column("until", Instant),
        **_UTF8,
    )


def _switches() -> None:
    steps.create_table(
        "switches",
        sa.Column("scope", Name(200), primary_key=True),
        sa.Column("off", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("changed_at", Instant, nullable=False),
        **_UTF8,
    )


def _versions() -> None:
    steps.create_table(
        "versions",
        sa.Column("name", Name(40), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        **_UTF8,
    )


def _engines() -> None:
    steps.create_table(
        "engines",
        sa.Column("id", Id, primary_key=True),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("seen_at", Instant, nullable=False),
        sa.Column("free_slots", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        **_UTF8,
    )


def _leases() -> None:
    steps.create_table(
        "leases",
        sa.Column("name", Name(120), primary_key=True),
        sa.Column("holder", Id),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("until", Instant),
        **_UTF8,
    )


def _partial_indexes() -> None:
    _partial("deliveries_dedupe", "dedupe_key is not null", ["tenant_id", "dedupe_key"], unique=True)
    _partial("deliveries_fair", "state in (0, 3)", ["queue", "tenant_id", "priority", "wake_at"])
    _partial("deliveries_held", "held_by is not null and state in (0, 3)", ["held_by"])
    _partial("deliveries_sends", "state in (0, 3)", ["queue", "wake_at"])
    _partial("deliveries_suspects", "crash_count >= 2 and state in (0, 3)", ["wake_at"])
    _partial("deliveries_timers", "state in (1, 2)", ["wake_at"])


def _partial(name: str, where: str, columns: list[str], *, unique: bool = False) -> None:
    wheres = {"postgresql_where": sa.text(where), "sqlite_where": sa.text(where)}
    steps.create_index(name, "deliveries", columns, unique=unique, **wheres)


def _mysql_indexes() -> None:
    steps.add_generated("deliveries", "send_at", "case when state in (0, 3) then wake_at end")
    steps.add_generated("deliveries", "timer_at", "case when state in (1, 2) then wake_at end")
    steps.add_generated("deliveries", "suspect_at", "case when crash_count >= 2 and state in (0, 3) then wake_at end")
    steps.create_index("deliveries_sends", "deliveries", ["queue", "send_at"])
    steps.create_index("deliveries_fair", "deliveries", ["queue", "tenant_id", "priority", "send_at"])
    steps.create_index("deliveries_timers", "deliveries", ["timer_at"])
    steps.create_index("deliveries_suspects", "deliveries", ["suspect_at"])
    steps.create_index("deliveries_held", "deliveries", ["held_by"])
    steps.create_index("deliveries_dedupe", "deliveries", ["tenant_id", "dedupe_key"], unique=True)
