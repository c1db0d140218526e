"""Migrations: Alembic's versions, run under a lock, and the readable views that are made anew after each."""
