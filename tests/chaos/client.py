"""The client: posts without pause, repeats what was not answered, and writes down what was acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from tests.chaos.processes import pause

_PATIENCE = 5.0
_BATCH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One delivery that the client wants, known by its dedupe key."""

    number: int
    text: str
    wait: float

    @property
    def dedupe_key(self) -> str:
        return f"chaos-{self.number}"

    @property
    def payload(self) -> dict[str, Any]:
        return {"number": self.number, "text": self.text}

    @property
    def body(self) -> str:
        """The hash of the bytes that the receiver must get."""
        said = json.dumps(self.payload, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(said.encode()).hexdigest()

    def request(self, url: str, due: datetime | None) -> dict[str, Any]:
        plain = {"channel": "webhook", "target": {"url": url}, "payload": self.payload, "dedupe_key": self.dedupe_key}
        return plain if due is None else {**plain, "at": due.isoformat()}


@dataclass(slots=True, kw_only=True)
class Said:
    """What the API has said: dedupe key to id, and everything that it should not have said."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    unanswered: int = 0
    repeated: int = 0


class Client:
    """Posts one by one and in batches until told to stop; then until each wish is acknowledged."""

    def __init__(self, *, api: str, key: str, receiver: str, rate: int, seed: int, path: Path) -> None:
        self.said = Said()
        self._api = api
        self._key = key
        self._receiver = receiver
        self._rate = rate
        self._dice = random.Random(seed)
        self._path = path
        self._numbers = self._count()
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Post until `stop`; every delivery that was ever asked for is acknowledged then."""
        headers = {"Authorization": f"Bearer {self._key}"}
        async with (
            httpx2.AsyncClient(base_url=self._api, headers=headers, timeout=_PATIENCE) as http,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._post(http, size=1))
            group.create_task(self._post(http, size=_BATCH))

    def stop(self) -> None:
        """Ask for nothing new."""
        self._stopped.set()

    def _count(self) -> Iterator[Wanted]:
        number = 0
        while True:
            number += 1
            wait = self._dice.uniform(0.2, 3) if self._dice.random() < 0.2 else 0.0
            yield Wanted(number=number, text="Köln, 7° " * self._dice.randrange(1, 30), wait=wait)

    async def _post(self, http: httpx2.AsyncClient, *, size: int) -> None:
        older: list[tuple[Wanted, dict[str, Any]]] = []
        while not self._stopped.is_set():
            began = time.monotonic()
            wishes = [next(self._numbers) for _ in range(size)]
            now = datetime.now(UTC)
            asked = [
                (one, one.request(self._receiver, now + timedelta(seconds=one.wait) if one.wait else None)) for one in wishes
            ]
            await self._until_answered(http, asked, is_batch=size > 1)
            older = [*older[-20:], *asked[:2]]
            if self._dice.random() < 0.1:
                # A client that crashed before it wrote down the answer asks again for what it has.
                self.said.repeated += 1
                await self._until_answered(http, [self._dice.choice(older)], is_batch=size > 1)
            # Both posters together keep the rate; a stalled API is not stormed afterwards.
            await pause(max(0.0, 2 * size / self._rate - (time.monotonic() - began)))

    async def _until_answered(
        self, http: httpx2.AsyncClient, asked: Sequence[tuple[Wanted, dict[str, Any]]], *, is_batch: bool
    ) -> None:
        while True:
            body: Any = [request for _, request in asked] if is_batch else asked[0][1]
            try:
                answer = await http.post("/v1/deliveries/batch" if is_batch else "/v1/deliveries", json=body)
            except (httpx2.HTTPError, OSError):
                self.said.unanswered += 1
                await pause(0.1)
                continue
            if answer.status_code == 503:
                self.said.unanswered += 1
                await pause(0.2)
                continue
            if not answer.is_success:
                self.said.faults.append(f"POST answered {answer.status_code}: {answer.text[:300]}")
                await pause(0.5)
                if len(self.said.faults) > 20:
                    return
                continue
            said = answer.json()["items"] if is_batch else [{"status": answer.status_code, "delivery": answer.json()}]
            self._note([one for one, _ in asked], said)
            return

    def _note(self, wishes: Sequence[Wanted], said: Sequence[dict[str, Any]]) -> None:
        with self._path.open("a") as notes:
            for one, item in zip(wishes, said, strict=True):
                if "delivery" not in item:
                    self.said.faults.append(f"{one.dedupe_key} was refused: {item}")
                    continue
                known, given = self.said.acknowledged.get(one.dedupe_key), item["delivery"]["id"]
                if known is not None and (known != given or item["status"] != 200):
                    self.said.faults.append(f"{one.dedupe_key} is {known}, then {given} with status {item['status']}")
                self.said.acknowledged[one.dedupe_key] = given
                self.said.bodies[given] = one.body
                notes.write(f"{one.dedupe_key} {given} {item['status']}\n")
