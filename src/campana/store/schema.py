"""The tables. One row is a delivery from its making to its end; see docs/decisions for why it is one table."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import SchemaItem

from campana.domain.tickets import SUSPICIOUS
from campana.store.columns import Id, Instant, Name, long_bytes, long_text

metadata = MetaData()
_WAITING = "state in (0, 3)"
WAITING_APART = "coalesce(state, -1) in (0, 3)"
_UNDER_WAY = "state in (1, 2)"
_SUSPICIOUS = f"crash_count >= {SUSPICIOUS}"


def _table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, metadata, *parts, mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin", mysql_engine="InnoDB")


tenants = _table(
    "tenants",
    Column("id", Id, primary_key=True),
    Column("name", Name(120), nullable=False, unique=True),
    Column("created_at", Instant, nullable=False),
    Column("suspended_at", Instant),
)

projects = _table(
    "projects",
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("name", Name(120), nullable=False),
    Column("created_at", Instant, nullable=False),
    Index("projects_name", "tenant_id", "name", unique=True),
)

keys = _table(
    "api_keys",
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("project_id", Id),
    Column("name", String(120), nullable=False),
    Column("prefix", String(24), nullable=False),
    Column("hash", LargeBinary(32).with_variant(mysql.BINARY(32), "mysql"), nullable=False, unique=True),
    Column("scopes", String(250), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("revoked_at", Instant),
    Column("last_used_at", Instant),
    Index("keys_tenant", "tenant_id", "id"),
)

# What a project's requests are signed with. It is sealed, bound to its project, and kept after its end: who made it, and when.
secrets = _table(
    "webhook_secrets",
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    Column("number", Integer, nullable=False),
    Column("sealed", LargeBinary(200).with_variant(mysql.VARBINARY(200), "mysql"), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("who", String(200), nullable=False),
    Index("webhook_secrets_number", "project_id", "number", unique=True),
)

deliveries = _table(
    "deliveries",
    Column("id", Id, primary_key=True),
    # Where it belongs and what it says: written once.
    Column("tenant_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    Column("queue", Name(100), nullable=False),
    Column("channel", String(20), nullable=False),
    Column("target", long_text(), nullable=False),
    Column("payload", long_bytes()),
    Column("policies", String(2000), nullable=False),
    Column("labels", long_text()),
    Column("recipient", Name(255)),
    Column("dedupe_key", Name(255)),
    Column("schedule_id", Id),
    Column("lane_key", Name(200)),
    Column("resource", Name(200)),
    Column("priority", SmallInteger, nullable=False),
    Column("scheduled_for", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("created_at", Instant, nullable=False),
    # What a claim and a settle change.
    Column("state", SmallInteger, nullable=False),
    Column("wake_at", Instant),
    Column("fence", Integer, nullable=False),
    Column("lease_owner", Id),
    Column("run_until", Instant),
    Column("held_by", Name(200)),
    Column("slot_at", Instant),
    Column("awaiting", String(20)),
    Column("awaiting_since", Instant),
    Column("cancel_requested", Boolean, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("attempt_count", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("key_number", Integer, nullable=False),
    Column("key_at", Instant),
    Column("ambiguous_attempts", Integer, nullable=False),
    Column("crash_count", Integer, nullable=False),
    Column("proven_crashes", Integer, nullable=False),
    Column("suspect_fence", Integer),
    Column("provider_call_id", String(200)),
    Column("reason", String(100)),
    Column("last_error", String(2000)),
    Column("finished_at", Instant),
    Index("deliveries_list", "tenant_id", "id"),
)

attempts = _table(
    "attempts",
    Column("delivery_id", Id, primary_key=True),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("tenant_id", Id, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("key_number", Integer, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("finished_at", Instant),
    Column("outcome", String(20)),
    Column("ambiguous", Boolean, nullable=False),
    Column("late", Boolean, nullable=False),
    Column("reason", String(100)),
    Column("error", String(2000)),
    Column("response_code", Integer),
    Column("response_headers", long_text()),
    Column("response_body", long_text()),
    Column("worker", Id, nullable=False),
    Column("provider", String(40)),
    Column("provider_call_id", String(200)),
    Column("cost", String(40)),
    Column("guards", String(500)),
)

# Claims that came to no attempt (which guard said what), look-ups, and what people did: each under a fence of its own. With
# the attempts they are the whole story of a delivery.
verdicts = _table(
    "verdicts",
    Column("delivery_id", Id, primary_key=True),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("tenant_id", Id, nullable=False),
    Column("at", Instant, nullable=False),
    Column("guards", String(500), nullable=False),
    Column("verdict", String(20), nullable=False),
    Column("reason", String(100), nullable=False),
    Column("until", Instant),
    Column("actor", String(200)),
    Column("note", String(500)),
)

switches = _table(
    "switches",
    Column("scope", Name(200), primary_key=True),
    Column("off", Boolean, nullable=False),
    Column("reason", String(500), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("changed_at", Instant, nullable=False),
)

# One row per thing that engines cache; it rises in the transaction that changes the thing.
versions = _table(
    "versions",
    Column("name", Name(40), primary_key=True),
    Column("number", Integer, nullable=False),
)

engines = _table(
    "engines",
    Column("id", Id, primary_key=True),
    Column("started_at", Instant, nullable=False),
    Column("seen_at", Instant, nullable=False),
    Column("free_slots", Integer, nullable=False),
    Column("version", String(40), nullable=False),
    Column("queues", long_text()),
    Column("left_at", Instant),
)

leases = _table(
    "leases",
    Column("name", Name(120), primary_key=True),
    Column("holder", Id),
    Column("fence", Integer, nullable=False),
    Column("until", Instant),
    Column("cursor", BigInteger),
)

# What a sweep did last, and when it is due again; who does it is a row of `leases`.
sweeps = _table(
    "sweeps",
    Column("name", Name(60), primary_key=True),
    Column("next_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("done", BigInteger),
    Column("past", Id),
    Column("error", String(500)),
)

# One row per lane that is taken: what must not happen to one person, or in one schedule, twice at once.
lanes = _table(
    "lanes",
    Column("lane_key", Name(200), primary_key=True),
    Column("delivery_id", Id, nullable=False),
    Column("until", Instant, nullable=False),
)

# A resource that bears only so much at once has a row for each place; the free ones have no delivery.
slots = _table(
    "slots",
    Column("resource", Name(200), primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("delivery_id", Id),
)

# Rates: a scope with a row here hands out future slots. `tat` is the instant at which its bucket is empty again.
limits = _table(
    "limits",
    Column("scope", Name(200), primary_key=True),
    Column("interval_us", BigInteger, nullable=False),
    Column("burst", Integer, nullable=False),
    Column("tat", Instant, nullable=False),
)

# What was sent to whom about what. The unique key makes 'never twice' a fact of the database.
ledger = _table(
    "ledger",
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("entity_type", Name(64), nullable=False),
    Column("entity_id", Name(255), nullable=False),
    Column("reminder_type", Name(64), nullable=False),
    Column("user_id", Name(255), nullable=False),
    Column("claimed_at", Instant, nullable=False),
    Column("held_until", Instant),
    Column("sent_at", Instant),
    Column("delivery_id", Id),
    Index("ledger_key", "tenant_id", "entity_type", "entity_id", "reminder_type", "user_id", unique=True),
)

# The outbox: written in the transaction of the change, numbered by the one relay after that transaction's commit.
events = _table(
    "events",
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("delivery_id", Id),
    Column("kind", String(60), nullable=False),
    Column("at", Instant, nullable=False),
    Column("data", long_text()),
    Column("number", BigInteger),
)

# What is done to many deliveries in the background.
operations = _table(
    "operations",
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("project_id", Id),
    Column("kind", String(40), nullable=False),
    Column("filter", long_text(), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("status", String(20), nullable=False),
    Column("total", Integer),
    Column("done", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("last_id", Id),
    Column("created_at", Instant, nullable=False),
    Column("finished_at", Instant),
    Column("error", String(500)),
    Index("operations_status", "status", "id"),
)

# Requests that carry an idempotency key, from before their work until their answer is no longer given again.
_DIGEST = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql")
idempotency_keys = _table(
    "idempotency_keys",
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("place", _DIGEST, nullable=False),
    Column("fingerprint", _DIGEST, nullable=False),
    Column("seed", _DIGEST, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("holder", Id, nullable=False),
    Column("held_until", Instant, nullable=False),
    Column("status", SmallInteger),
    Column("headers", long_text()),
    Column("body", long_bytes()),
    Index("idempotency_keys_place", "tenant_id", "place", unique=True),
)

# What of a long answer is past its first mebibyte.
idempotency_pieces = _table(
    "idempotency_pieces",
    Column("key_id", Id, primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("piece", long_bytes(), nullable=False),
)


def _partial(
    name: str, where: str, *columns: str, unique: bool = False, of: Table = deliveries, postgresql: str | None = None
) -> None:
    words: dict[str, Any] = {"postgresql_where": text(postgresql or where), "sqlite_where": text(where)}
    Index(name, *(of.c[column] for column in columns), unique=unique, **words)


# The live indexes: they hold only rows that can still be claimed or looked at, so finished ones cost nothing.
_partial("deliveries_sends", _WAITING, "queue", "wake_at")
# In words of its own on PostgreSQL: whoever asks in them can't be given the index of sends, which is read from its begin to
# its end where statistics don't know that a tenant has little.
_partial("deliveries_fair", _WAITING, "queue", "tenant_id", "priority", "wake_at", postgresql=WAITING_APART)
_partial("deliveries_suspects", f"{_SUSPICIOUS} and {_WAITING}", "wake_at")
_partial("deliveries_timers", _UNDER_WAY, "wake_at")
_partial("deliveries_parked", f"held_by is not null and {_WAITING}", "held_by", "due_at")
_partial("deliveries_dedupe", "dedupe_key is not null", "tenant_id", "dedupe_key", unique=True)
_partial("events_unnumbered", "number is null", "id", of=events)
_partial("events_stream", "number is not null", "tenant_id", "number", of=events)

# MySQL and MariaDB have no partial indexes: generated columns that are null wherever a partial index would have no entry.
MYSQL_GENERATED = {
    "send_at": f"case when {_WAITING} then wake_at end",
    "timer_at": f"case when {_UNDER_WAY} then wake_at end",
    "suspect_at": f"case when {_SUSPICIOUS} and {_WAITING} then wake_at end",
}
