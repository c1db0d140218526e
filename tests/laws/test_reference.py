"""The generated reference: `make docs-check` compares it; here the comparison is seen to fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.programs import ROOT


def _docs(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "docs.py"), "--folder", str(folder), *options]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_stale_page_is_shown_and_fails(tmp_path: Path) -> None:
    assert _docs(tmp_path).returncode == 0
    assert _docs(tmp_path, "--check").returncode == 0
    page = tmp_path / "states.md"
    page.write_text(page.read_text().replace("scheduled --> processing: claim", "scheduled --> processing: take"))
    said = _docs(tmp_path, "--check")
    assert said.returncode == 1
    assert "-    scheduled --> processing: take\n+    scheduled --> processing: claim\n" in said.stdout


def test_a_page_that_is_missing_fails(tmp_path: Path) -> None:
    said = _docs(tmp_path, "--check")
    assert said.returncode == 1
    assert "+# Errors" in said.stdout
