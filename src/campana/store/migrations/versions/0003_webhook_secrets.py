"""What the requests of a project are signed with."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from campana.store.columns import Id, Instant
from campana.store.migrations import steps

revision = "0003"
down_revision = "0002"

_UTF8 = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    """Add the table; projects get their secrets when somebody needs one."""
    steps.create_table(
        "webhook_secrets",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(200).with_variant(mysql.VARBINARY(200), "mysql"), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant),
        sa.Column("who", sa.String(200), nullable=False),
        **_UTF8,
    )
    steps.create_index("webhook_secrets_number", "webhook_secrets", ["project_id", "number"], unique=True)
