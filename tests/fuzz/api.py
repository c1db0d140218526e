"""Requests that nobody would send, against the real API: what follows its document, what departs from it, and broken bytes.

Whatever comes: no 5xx (nothing is wrong here, so a 503 is one too), no stack trace, and no answer that the document does not
describe. `python -m tests.fuzz.api --seconds 900 --seed 7` prints what it did, and the seed of what failed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from campana.domain.deliveries import State
from campana.operations import waiting
from campana.store import migrate
from campana.web import bodies
from tests.api import site
from tests.fuzz import wire

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 10
"""Of one operation in one round."""
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@dataclass(kw_only=True)
class Fuzzed:
    """What was done, and what failed, each with its seed."""

    seed: int
    until: float
    sent: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until or bool(self.failures)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server to send requests to, and some ids that are there."""

    url: str
    key: str
    document: dict[str, Any]
    ids: dict[str, list[str]]
    bugs: Counter[str]


@contextmanager
def _served(database_url: str | None) -> Iterator[Target]:
    """The API in a thread of its own."""
    ready: list[Target] = []
    told, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve(folder: Path) -> None:
        said = site.settings(folder, database_url)
        await migrate.upgrade(said.url)
        async with site.open_site(folder, database_url) as here:
            ready.append(await _target(here))
            told.set()
            await over.wait()

    with tempfile.TemporaryDirectory() as folder:
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(Path(folder)),))
        thread.start()
        try:
            while not told.wait(0.1):
                assert thread.is_alive(), "the server did not start"
            yield ready[0]
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()
            loop.close()


async def _target(here: site.Site) -> Target:
    key = await here.make_key(scopes="owner installation", text=f"cmp_live_fuzz_{here.house.world.new_id()}")
    client = await here.bare(Authorization=f"Bearer {key}")
    made = [(await client.post("/v1/deliveries", json=site.wanted())).json()["id"] for _ in range(12)]
    for letter in made[:4]:
        await here.force(letter, state=int(State.DEAD_LETTER), wake_at=None, ambiguous_attempts=1)
    begun = (await client.post("/v1/deliveries/redrive", json={"channel": "log", "recipient": "nobody"})).json()["operation"]
    document = (await client.get("/openapi.json")).json()
    ids = {"delivery_id": made, "operation_id": [begun], "scope": ["tenant", "channel:log", "project:default"]}
    return Target(url=here.url, key=key, document=document, ids=ids, bugs=here.house.telemetry.counts)


def _round(target: Target, done: Fuzzed, number: int) -> None:
    """Send to each operation what the document allows and what it forbids, and broken bytes between."""
    # Without its security: else most requests would come with a wrong key.
    schema = schemathesis.openapi.from_dict({name: said for name, said in target.document.items() if name != "security"})
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]  # else it fails here
    chance = random.Random(number)
    turns = [(operation, mode) for operation in operations for mode in MODES]
    chance.shuffle(turns)
    for operation, mode in turns:
        _send_broken(target, done, number, chance)
        _send_some(target, done, operation, mode, number)


def _send_some(target: Target, done: Fuzzed, operation: Any, mode: GenerationMode, number: int) -> None:
    chance = random.Random(number)

    @seeded(number)
    @settings(
        max_examples=EXAMPLES, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        if done.is_over:
            return
        _aim(target, case, chance)
        answer = case.call(base_url=target.url, headers={"Authorization": f"Bearer {target.key}"}, timeout=60)
        done.sent[f"{mode.value} {answer.status_code}"] += 1
        case.validate_response(answer, checks=CHECKS)
        assert b"Traceback" not in answer.content, "a stack trace"

    try:
        send()
    except Unsatisfiable:
        done.sent["impossible"] += 1
    except Exception as error:  # noqa: BLE001 - every failure is told with its seed
        done.failures.append(f"--seed {number}: {operation.method.upper()} {operation.path}, {mode.value}:\n{error!r:.4000}")


def _aim(target: Target, case: Any, chance: random.Random) -> None:
    """Let most requests go to something that is there, and none of them wait."""
    for name in case.path_parameters or {}:
        if name in target.ids and chance.random() < 0.8:
            case.path_parameters[name] = chance.choice(target.ids[name])
    if case.headers and chance.random() < 0.7:
        case.headers.pop("Idempotency-Key", None)
    if case.path.endswith("/wait") and chance.random() < 0.5:
        case.query = {"timeout": "0"}


def _send_broken(target: Target, done: Fuzzed, number: int, chance: random.Random) -> None:
    """Send requests in which some bytes are not what they were."""
    for _ in range(EXAMPLES):
        if done.is_over:
            return
        request = wire.broken(target.document, target.ids, target.key, chance)
        answer = wire.send(target.url, request)
        done.sent[f"bytes {answer.status or 'closed'}"] += 1
        fault = wire.fault(target.document, request, answer)
        if fault:
            done.failures.append(f"--seed {number}: {fault}\n{request!r:.4000}\n{answer.body!r:.2000}")


def fuzz(*, seconds: float, seed: int, database_url: str | None = None) -> Fuzzed:
    """Send requests for so long, or until something fails."""
    done = Fuzzed(seed=seed, until=time.monotonic() + seconds)
    before = waiting.UNLESS_SAID, bodies.PATIENCE
    waiting.UNLESS_SAID, bodies.PATIENCE = timedelta(0), 0.2
    try:
        with _served(database_url) as target:
            number = seed
            while not done.is_over:
                _round(target, done, number)
                number += 1
            if target.bugs["api.bug"]:
                done.failures.append(f"--seed {number - 1}: the log has {target.bugs['api.bug']} times `api.bug`")
    finally:
        waiting.UNLESS_SAID, bodies.PATIENCE = before
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database-url", help="a database of another kind; a SQLite file of its own, if left out")
    said = parser.parse_args(argv)
    done = fuzz(seconds=said.seconds, seed=said.seed, database_url=said.database_url)
    for kind, count in sorted(done.sent.items()):
        print(f"{count:>9,}  {kind}")  # noqa: T201 - a program
    for failure in done.failures:
        print(f"FAILED with {failure}")  # noqa: T201 - a program
    return 1 if done.failures else 0


if __name__ == "__main__":
    sys.exit(main())
