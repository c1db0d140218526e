"""The guide on verifying: its receivers as real processes behind a real Campana, and every command that it names."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from tests import programs
from tests.cli import program
from tests.programs import ROOT

GUIDE = ROOT / "docs" / "guides" / "verify-webhooks.md"
PATIENCE = 60


@pytest.fixture(params=["receiver_verify.py", "receiver_verify.mjs"], ids=["python", "node"])
def command(request: pytest.FixtureRequest) -> list[str]:
    """How a receiver is started; one whose language is not installed fails."""
    if request.param.endswith(".py"):
        return [sys.executable, "examples/receiver_verify.py"]
    programs.provide(programs.NODE)
    return [programs.program("node", "nodejs"), "examples/receiver_verify.mjs"]


@dataclass
class Receiver:
    """A receiver that runs: where it listens and what it keeps."""

    url: str
    data: Path

    def effects(self) -> list[str]:
        """The ids that it acted on."""
        if self.data.suffix == ".jsonl":
            return [json.loads(line)["id"] for line in self.data.read_text().splitlines()] if self.data.exists() else []
        import sqlite3

        with contextlib.closing(sqlite3.connect(self.data)) as database:
            return [one for (one,) in database.execute("select id from effects")]


@contextlib.contextmanager
def receiving(command: list[str], folder: Path, *secrets: str, port: int = 0) -> Iterator[Receiver]:
    """Run a receiver with these secrets; what it kept stays for the next one."""
    data = folder / ("received.db" if command[1].endswith(".py") else "received.jsonl")
    environment = program.environment(WEBHOOK_SECRETS=" ".join(secrets), RECEIVER_DATA=str(data))
    options: dict[str, Any] = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([*command, str(port)], **options) as process:
        try:
            yield Receiver(program.Program(process).wait_for(r"Listening on (http://\S+)\n")[1], data)
        finally:
            process.kill()


@dataclass
class Between:
    """Stands between Campana and a receiver, hands on what comes, and remembers it."""

    port: int = 0
    to: str = ""
    heard: Queue[tuple[dict[str, str], bytes, int]] = field(default_factory=Queue)


@pytest.fixture
def between() -> Iterator[Between]:
    said = Between()

    class Hand(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = post(said.to, headers, body)
            self.send_response(answer.status_code)
            self.send_header("content-length", "0")
            self.end_headers()
            said.heard.put((headers, body, answer.status_code))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class named it
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hand) as server:
        said.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield said
        server.shutdown()
        thread.join()


def post(url: str, headers: Mapping[str, str], body: bytes) -> httpx2.Response:
    kept = {name: value for name, value in headers.items() if name.startswith("webhook-")}
    return httpx2.post(f"{url}/hook", headers=kept, content=body, timeout=PATIENCE)


def secret_of(running: program.Program) -> str:
    return running.wait_for(r"signed with this secret, shown this once: (whsec_\S+)\n")[1]


def deliver(client: httpx2.Client, port: int) -> str:
    """The key of a delivery that was accepted."""
    target = {"url": f"http://127.0.0.1:{port}/hook"}
    answer = client.post("/v1/deliveries", json={"channel": "webhook", "target": target, "payload": {"hello": "wörld"}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["delivery_key"])


def signed(secret: str, key: str, body: bytes, at: datetime) -> dict[str, str]:
    signature = Webhook(secret).sign(key, at, body.decode())
    return {"webhook-id": key, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def test_what_campana_sends_is_taken_once_and_what_anybody_else_makes_of_it_is_refused(
    tmp_path: Path, between: Between, command: list[str]
) -> None:
    with program.start(tmp_path, "up", "--port", "0") as running, running.client() as client:
        secret = secret_of(running)
        with receiving(command, tmp_path, secret) as receiver:
            between.to = receiver.url
            key = deliver(client, between.port)
            headers, body, status = between.heard.get(timeout=PATIENCE)
            assert (status, headers["webhook-id"], json.loads(body)) == (200, key, {"hello": "wörld"})
            assert Webhook(secret).verify(body, headers) == {"hello": "wörld"}, "the reference library takes it too"

            assert post(receiver.url, headers, body).status_code == 200, "known already"
            now = datetime.now(UTC)
            other = base64.b64encode(b"x" * 32).decode()
            for refused in (
                {**headers, "webhook-signature": "v1," + base64.b64encode(b"x" * 32).decode()},
                {**headers, "webhook-signature": headers["webhook-signature"][:-2]},
                {**headers, "webhook-signature": headers["webhook-signature"].removeprefix("v1,")},
                {**headers, "webhook-signature": "v2" + headers["webhook-signature"][2:]},
                {**headers, "webhook-signature": ""},
                {**headers, "webhook-id": "dlv_another"},
                {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)},
                {**headers, "webhook-timestamp": "yesterday"},
                {name: value for name, value in headers.items() if name != "webhook-timestamp"},
                signed(secret, "dlv_stale", body, now - timedelta(minutes=6)),
                signed(secret, "dlv_early", body, now + timedelta(minutes=6)),
                signed(other, "dlv_other", body, now),
            ):
                assert post(receiver.url, refused, body).status_code == 401, refused
            assert post(receiver.url, headers, body + b" ").status_code == 401
            for fits in (now - timedelta(minutes=4), now + timedelta(minutes=4)):
                assert post(receiver.url, signed(secret, f"dlv_{fits.minute}", body, fits), body).status_code == 200
            assert receiver.effects()[0] == key
            assert len(receiver.effects()) == 3
        with receiving(command, tmp_path, secret) as again:
            assert post(again.url, headers, body).status_code == 200
            assert len(again.effects()) == 3, "a restart forgets nothing"


def test_a_receiver_with_the_wrong_secret_refuses_and_the_delivery_wants_a_person(
    tmp_path: Path, between: Between, command: list[str]
) -> None:
    wrong = "whsec_" + base64.b64encode(b"w" * 32).decode()
    with program.start(tmp_path, "up", "--port", "0") as running, running.client() as client:
        with receiving(command, tmp_path, wrong) as receiver:
            between.to = receiver.url
            deliver(client, between.port)
            assert between.heard.get(timeout=PATIENCE)[2] == 401
            assert receiver.effects() == []
        running.wait_for(r"delivery\.dead_letter")
        (letter,) = client.get("/v1/deliveries?status=dead_letter").json()["items"]
        attempts = client.get(f"/v1/deliveries/{letter['id']}/attempts").json()["items"]
        assert [one["response_code"] for one in attempts] == [401]


def test_during_a_rotation_receivers_with_either_secret_and_with_both_take_what_comes(
    tmp_path: Path, between: Between, command: list[str]
) -> None:
    with program.start(tmp_path, "up", "--port", "0") as running, running.client() as client:
        old = secret_of(running)
        new = client.post("/v1/projects/default/webhook-secrets/rotate", json={"overlap": "1h"}).json()["secret"]
        until_signed_by(client, between, command, tmp_path, new)
        for secrets in ([old], [new], [new, old]):
            assert answered(client, between, command, tmp_path, *secrets) == 200
        last = client.post("/v1/projects/default/webhook-secrets/rotate", json={"overlap": "0s"}).json()["secret"]
        until_signed_by(client, between, command, tmp_path, last)
        assert [answered(client, between, command, tmp_path, secret) for secret in (old, new, last)] == [401, 401, 200]


def answered(client: httpx2.Client, between: Between, command: list[str], folder: Path, *secrets: str) -> int:
    """What a receiver with these secrets answers to a new delivery."""
    with receiving(command, folder, *secrets) as receiver:
        between.to = receiver.url
        deliver(client, between.port)
        return between.heard.get(timeout=PATIENCE)[2]


def until_signed_by(client: httpx2.Client, between: Between, command: list[str], folder: Path, secret: str) -> None:
    """Deliveries are signed with this secret, among others perhaps: two seconds after a rotation at the latest."""
    until = datetime.now(UTC) + timedelta(seconds=PATIENCE)
    with receiving(command, folder, secret) as receiver:
        between.to = receiver.url
        while datetime.now(UTC) < until:
            deliver(client, between.port)
            if between.heard.get(timeout=PATIENCE)[2] == 200:
                return
    pytest.fail("no delivery was signed with the new secret")


def test_a_receiver_without_a_secret_does_not_start(tmp_path: Path, command: list[str]) -> None:
    environment = program.environment(RECEIVER_DATA=str(tmp_path / "x.db"))
    done = subprocess.run(
        [*command, "0"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1
    assert "WEBHOOK_SECRETS" in done.stderr


def test_a_body_that_is_too_large_is_refused(tmp_path: Path, command: list[str]) -> None:
    with receiving(command, tmp_path, "whsec_" + base64.b64encode(b"w" * 32).decode()) as receiver:
        host, _, port = receiver.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1048577\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


# --- the guide


def commands() -> list[str]:
    blocks = re.findall(r"^ *```console\n(.*?)^ *```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found = [one for block in blocks for one in re.split(r"^ *\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]]
    return [" ".join(one.split()) for one in found]


def test_the_guides_commands_do_what_it_says(tmp_path: Path, root: Path) -> None:
    programs.provide(programs.NODE)
    assert len(commands()) == 10
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with program.start(tmp_path, "up", "--port", "0", "--data", str(tmp_path)) as running, contextlib.ExitStack() as receivers:
        address, known = running.ready(), {"cmp_live_…": running.key(), "whsec_…": secret_of(running)}
        environment = program.environment(CAMPANA_DATA=str(tmp_path), RECEIVER_DATA=str(tmp_path / "received"))
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        said: dict[str, str] = {}
        for one in commands():
            line = one.replace("http://127.0.0.1:8000", address).replace(":9000", f":{port}").replace(" 9000", f" {port}")
            for shown, real in known.items():
                line = line.replace(shown, real)
            if "examples/receiver" in line:
                receivers.close()
                receivers.enter_context(running_in_shell(line, environment | {"RECEIVER_DATA": str(tmp_path / f"r{len(said)}")}))
                said[one] = ""
                continue
            done = subprocess.run(
                ["bash", "-c", line], cwd=root, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            assert '"status":4' not in done.stdout, (line, done.stdout)
            said[one] = done.stdout
        running.wait_for(r"delivery\.completed")
    rotated = [text for one, text in said.items() if "rotate" in one]
    assert all("whsec_" in text for text in rotated)
    assert len(rotated) == 3
    assert "expired" in said["campana project secrets default"]
    assert said["campana reseal"].startswith("Sealed anew: 0;")
    assert not [one for one in ("list", "secrets default") if "whsec_" in said[f"campana project {one}"]]


@contextlib.contextmanager
def running_in_shell(line: str, environment: dict[str, str]) -> Iterator[None]:
    options: dict[str, Any] = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(["bash", "-c", line], start_new_session=True, **options) as process:
        try:
            program.Program(process).wait_for(r"Listening on ")
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_the_guides_vector_is_that_of_the_reference_library() -> None:
    said = dict(re.findall(r"^\| (?:`)?([a-z-]+)(?:`)? \| `(.+)` \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    at = datetime.fromtimestamp(int(said["webhook-timestamp"]), UTC)
    assert Webhook(said["secret"]).sign(said["webhook-id"], at, said["body"]) == said["webhook-signature"]
