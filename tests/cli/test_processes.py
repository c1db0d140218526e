"""Processes that run until they are told to stop: their first start, their second, and their end."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import program


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """Somebody who takes calls and answers when the test says so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(program.SECONDS)
        yield listener


def take(listener: socket.socket) -> socket.socket:
    """A request that has arrived whole, not answered yet."""
    connection, _ = listener.accept()
    connection.settimeout(program.SECONDS)
    said = b""
    while not said.endswith(b"{}"):
        said += connection.recv(65_536)
    return connection


def post(running: program.Program, listener: socket.socket) -> str:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
    with running.client() as client:
        answer = client.post("/v1/deliveries", json={"channel": "webhook", "target": {"url": url}, "payload": {}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def status(running: program.Program, key: str, delivery_id: str) -> str:
    import httpx2

    answer = httpx2.get(f"{running.ready()}/v1/deliveries/{delivery_id}", headers={"authorization": f"Bearer {key}"})
    return str(answer.json()["status"])


def test_the_first_start_shows_a_key_and_a_command_that_works(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0") as running:
        address, key = running.ready(), running.key()
        running.wait_for(r"Development mode: ")
        command = running.wait_for(r"  curl (-H (?:.|\n)*?/v1/deliveries)\n")[1]
        assert f"Bearer {key}" in command
        assert command.endswith(f"{address}/v1/deliveries")
        with running.client() as client:
            body = re.search(r"-d '(.*)'", command)
            assert body
            answer = client.post("/v1/deliveries", content=body[1], headers={"content-type": "application/json"})
            assert answer.status_code == 201
        running.wait_for(r"delivery\.completed")
        assert running.end(signal.SIGTERM) == 0


def test_a_second_start_keeps_the_data_and_says_where_keys_come_from(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0") as first:
        key = first.key()
        with first.client() as client:
            made = client.post("/v1/deliveries", json={"channel": "log", "target": {}, "at": "2199-01-01T00:00:00Z"}).json()
        assert first.end(signal.SIGINT) == 0
    with program.start(tmp_path, "up", "--port", "0") as second:
        second.wait_for("`campana key create` makes another")
        assert "cmp_" not in second.said
        assert status(second, key, made["id"]) == "scheduled"
        assert second.end(signal.SIGTERM) == 0


def test_a_second_engine_on_the_same_file_is_refused_while_the_first_works_on(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0") as first:
        first.ready()
        for words in (["up", "--port", "0"], ["engine"]):
            refused = program.run(tmp_path, *words)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert refused.stderr.startswith(f"campana: another engine (process {first.process.pid}) already runs on campana.db")
            assert refused.stderr.count("\n") == 1
        with program.start(tmp_path, "api", "--port", "0") as beside:
            beside.ready()
            assert beside.end(signal.SIGTERM) == 0
        with first.client() as client:
            assert client.get("/health").status_code == 200
        assert first.end(signal.SIGTERM) == 0


def test_a_bootstrap_key_is_taken_and_never_printed(tmp_path: Path) -> None:
    key = "cmp_" + "b!~" * 20
    for _ in range(2):
        with program.start(tmp_path, "up", "--port", "0", CAMPANA_BOOTSTRAP_KEY=key) as running:
            running.ready()
            running.wait_for(r"engine\.started")
            assert status(running, key, "x") == "404"
            assert running.end(signal.SIGTERM) == 0
            assert key not in running.said


def test_what_is_under_way_is_finished_and_recorded_before_the_end(tmp_path: Path, receiver: socket.socket) -> None:
    with program.start(tmp_path, "up", "--port", "0") as running:
        key, delivery_id = running.key(), post(running, receiver)
        with take(receiver) as request:
            running.process.send_signal(signal.SIGTERM)
            _until_closed(int(running.ready().rpartition(":")[2]))
            request.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        assert running.process.wait(program.SECONDS) == 0
    with program.start(tmp_path, "up", "--port", "0") as again:
        assert status(again, key, delivery_id) == "completed"
        assert again.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_does_not_answer_is_waited_for_no_longer_than_the_grace(
    tmp_path: Path, receiver: socket.socket, number: signal.Signals
) -> None:
    with program.start(tmp_path, "up", "--port", "0", CAMPANA_SHUTDOWN_GRACE_SECONDS="0.2") as running:
        post(running, receiver)
        with take(receiver):
            assert running.end(number) == 0


def test_a_second_signal_leaves_at_once(tmp_path: Path, receiver: socket.socket) -> None:
    with program.start(tmp_path, "up", "--port", "0", CAMPANA_SHUTDOWN_GRACE_SECONDS="3600") as running:
        post(running, receiver)
        with take(receiver):
            running.process.send_signal(signal.SIGTERM)
            # The port closes with the first signal: after that the second one is a second one.
            port = int(running.ready().rpartition(":")[2])
            _until_closed(port)
            assert running.end(signal.SIGTERM) == 1


def _until_closed(port: int) -> None:
    never = threading.Event()
    for _ in range(program.SECONDS * 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        never.wait(0.01)
    pytest.fail("the port was still open a minute after the signal")


def test_a_signal_as_soon_as_it_is_ready_ends_it_in_good_order(tmp_path: Path) -> None:
    for _ in range(3):
        with program.start(tmp_path, "up", "--port", "0") as running:
            running.wait_for("ready")
            assert running.end(signal.SIGINT) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="another process's limits can be set on Linux alone")
def test_when_it_has_no_descriptor_left_it_works_on_and_takes_callers_again_once_there_are(tmp_path: Path) -> None:
    with program.start(tmp_path, "up", "--port", "0") as running, running.client() as known, contextlib.ExitStack() as crowd:
        said = {"channel": "log", "target": {"message": "hello"}}
        assert known.post("/v1/deliveries", json=said).status_code == 201
        running.wait_for(r"delivery\.completed")
        most = len(list(Path(f"/proc/{running.process.pid}/fd").iterdir())) + 10
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (most, most))
        address = ("127.0.0.1", int(running.ready().rpartition(":")[2]))
        for _ in range(60):
            crowd.enter_context(socket.create_connection(address))
        assert known.post("/v1/deliveries", json=said | {"target": {"message": "in the crowd"}}).status_code == 201
        running.wait_for("in the crowd")
        crowd.close()
        with running.client() as another:
            assert another.post("/v1/deliveries", json=said).status_code == 201
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("command", ["api", "engine"])
def test_api_and_engine_alone_share_the_work(tmp_path: Path, command: str) -> None:
    program.run(tmp_path, "migrate")
    other = "engine" if command == "api" else "api"
    words = {"api": ["api", "--port", "0"], "engine": ["engine"]}
    with program.start(tmp_path, *words[command]) as first:
        key = first.wait_for(r"key, shown this once: (cmp_\S+)\n")[1]
        with program.start(tmp_path, *words[other], LOG_LEVEL="INFO") as second:
            api, engine = (first, second) if command == "api" else (second, first)
            import httpx2

            headers = {"authorization": f"Bearer {key}"}
            said = {"channel": "log", "target": {"message": "across"}}
            answer = httpx2.post(f"{api.ready()}/v1/deliveries", json=said, headers=headers)
            assert answer.status_code == 201
            engine.wait_for("across")
            assert (api.end(signal.SIGTERM), engine.end(signal.SIGTERM)) == (0, 0)
