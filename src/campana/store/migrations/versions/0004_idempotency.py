"""Requests with an idempotency key: who carries one out, and what it was answered."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from campana.store.columns import Id, Instant, long_bytes, long_text
from campana.store.migrations import steps

revision = "0004"
down_revision = "0003"

_UTF8 = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}
_DIGEST = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql")


def upgrade() -> None:
    """Add the two tables."""
    steps.create_table(
        "idempotency_keys",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("place", _DIGEST, nullable=False),
        sa.Column("fingerprint", _DIGEST, nullable=False),
        sa.Column("seed", _DIGEST, nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("holder", Id, nullable=False),
        sa.Column("held_until", Instant, nullable=False),
        sa.Column("status", sa.SmallInteger()),
        sa.Column("headers", long_text()),
        sa.Column("body", long_bytes()),
        **_UTF8,
    )
    steps.create_index("idempotency_keys_place", "idempotency_keys", ["tenant_id", "place"], unique=True)
    steps.create_table(
        "idempotency_pieces",
        sa.Column("key_id", Id, primary_key=True),
        sa.Column("n", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("piece", long_bytes(), nullable=False),
        **_UTF8,
    )
