"""Ends that nobody wishes for: told to stop while something hangs, and a file that is none any more."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from campana.cli import database, serve
from campana.settings import Settings
from tests.cli import program


def test_a_signal_while_the_schema_waits_for_another_process_ends_it_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def waits(settings: Settings) -> None:
        del settings
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("given back")

    monkeypatch.setattr(database, "upgrade", waits)
    monkeypatch.setattr(serve, "GOODBYE", 3600.0)
    settings = Settings.load({}, data=str(tmp_path), port=0)

    async def up() -> None:
        async with asyncio.timeout(program.SECONDS):
            await serve._serve(settings, with_engine=True, with_api=True, migrates=True)

    asyncio.run(up())
    assert ended == ["given back"]


def test_where_nothing_can_be_written_it_leaves_soon_after_its_grace_all_the_same(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0", CAMPANA_SHUTDOWN_GRACE_SECONDS="0.2") as running:
        running.ready()
        running.wait_for(r"engine\.started")
        holder = sqlite3.connect(tmp_path / "campana-data" / "campana.db", isolation_level=None, timeout=program.SECONDS)
        holder.execute("begin immediate")
        began = time.monotonic()
        assert running.end(signal.SIGTERM) == 1
        assert time.monotonic() - began < 15
        holder.close()
    with program.start(tmp_path, "up", "--port", "0") as again:
        again.ready()
        assert again.end(signal.SIGTERM) == 0


def test_a_file_that_is_overwritten_while_it_runs_ends_it_loudly_and_at_once(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0") as running:
        running.ready()
        running.wait_for(r"engine\.started")
        for name in ("campana.db", "campana.db-wal"):
            path = tmp_path / "campana-data" / name
            path.write_bytes(b"\x5a" * path.stat().st_size)
        running.wait_for(r"file is not a database|malformed")
        assert running.process.wait(program.SECONDS) == 1
