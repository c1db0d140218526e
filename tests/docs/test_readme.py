"""The README's first screen, done as a newcomer would: what it says to type is typed, and what it promises happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import pytest

PATIENCE = 60


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.heard.put((self.headers["webhook-id"], json.loads(body)))  # type: ignore[attr-defined]  # ours, below
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class named it
        """Say nothing."""


@pytest.fixture
def heard() -> Iterator[tuple[int, Queue[tuple[str, object]]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    server.heard = Queue()  # type: ignore[attr-defined]  # read by the handler above
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1], server.heard  # type: ignore[attr-defined]  # as above
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def running(tmp_path: Path, root: Path) -> Iterator[list[str]]:
    """What `make run` prints until it is ready, key and example included."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CAMPANA_")}
    process = subprocess.Popen(
        ["make", "--no-print-directory", "run", f"ARGS=--port 0 --data {tmp_path}"],
        cwd=root, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "/v1/deliveries" in line:
            break
    yield lines
    os.killpg(process.pid, signal.SIGTERM)
    process.stdout.close()
    assert process.wait(PATIENCE) in (0, -signal.SIGTERM, 2)


def test_make_run_prints_a_command_that_delivers_the_readmes_webhook(
    running: list[str], heard: tuple[int, Queue[tuple[str, object]]], root: Path
) -> None:
    printed = "".join(running)
    address = re.search(r"http://127\.0\.0\.1:\d+", printed)
    key = re.search(r"cmp_live_[a-z0-9]+", printed)
    assert address
    assert key
    port, deliveries = heard
    said = (root / "README.md").read_text(encoding="utf-8")
    example = re.search(r"\$ (curl -H .*?/v1/deliveries)\n", said, re.DOTALL)
    assert example
    command = example[1].replace("\\\n", " ").replace("cmp_live_…", key[0]).replace("http://127.0.0.1:8000", address[0])
    command = command.replace("http://127.0.0.1:9000", f"http://127.0.0.1:{port}")
    done = subprocess.run([*shlex.split(command), "-s"], capture_output=True, text=True, check=True, timeout=PATIENCE)
    accepted = json.loads(done.stdout)
    assert deliveries.get(timeout=PATIENCE) == (accepted["delivery_key"], {"hello": "world"})


def test_the_command_that_make_run_prints_works_as_it_stands(running: list[str]) -> None:
    printed = "".join(running)
    command = printed[printed.index("curl") :].replace("\\\n", " ")
    done = subprocess.run([*shlex.split(command), "-s"], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert json.loads(done.stdout)["status"] == "scheduled"


def test_the_readmes_commands_exist(root: Path) -> None:
    said = (root / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`campana ([a-z]+(?: [a-z]+)?)`", said))
    assert {"up", "api", "engine", "migrate", "doctor", "key create"} <= named
    for command in named:
        subprocess.run(
            [sys.executable, "-m", "campana", *command.split(), "--help"], check=True, capture_output=True, timeout=PATIENCE
        )


def test_every_link_in_the_docs_leads_somewhere(root: Path) -> None:
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8"))]
    assert [f"{page.name}: {link}" for page, link in links if "://" not in link and not (page.parent / link).exists()] == []
