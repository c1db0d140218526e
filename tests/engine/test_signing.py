"""What requests are signed with: the engine's keyring, a rotation's two seconds, ends by the clock, and what can't be opened."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from campana import sealing, store
from campana.channels import netguard, webhook
from campana.channels.base import Permit
from campana.channels.http import Request, Response
from campana.channels.webhook import Webhook
from campana.domain.deliveries import State
from campana.domain.outcomes import Withheld
from campana.engine.engine import Engine
from campana.engine.secrets import Keyring
from campana.errors import UnavailableError
from campana.sealing import Sealed, Sealer
from campana.store import schema
from campana.store.secrets import NewSecret
from campana.telemetry import Telemetry
from campana.testing.chance import SeededChance
from campana.world import SystemChance, World
from tests.engine.builders import PROJECT, SECOND, TENANT, Bench, Silence, idle, round_of, running

OTHER = UUID(int=22)
TARGET = '{"url":"https://receiver.example.com/"}'
KEY = b"k" * 32


class Counting(Sealer):
    """Counts how often it is asked to open something."""

    opened = 0

    def open(self, sealed: Sealed, place: bytes) -> bytes | None:
        self.opened += 1
        return super().open(sealed, place)


@dataclass
class Wire:
    """Takes the place of the HTTP client: what arrived, when, signed how often."""

    bench: Bench
    connecting: float = 0.0
    status: int = 200
    seen: list[tuple[datetime, Request]] = field(default_factory=list)

    async def send(self, request: Request, permit: Permit, *, timeout: float) -> Response | Withheld:  # noqa: ASYNC109 - the client's signature
        await self.bench.sleep(self.connecting)
        if not await permit():
            return Withheld()
        self.seen.append((self.bench.now, request))
        return Response(status=self.status, headers=(), body=b"")

    async def close(self) -> None:
        """Nothing to close."""

    def signers(self, *secrets: bytes) -> list[list[int]]:
        """For each arrival, which of these secrets signed it, in the order of its signatures; -1 for none of them."""
        return [self._signers(request, secrets) for _, request in self.seen]

    def _signers(self, request: Request, secrets: tuple[bytes, ...]) -> list[int]:
        said = dict(request.headers)
        key, stamp, body = said["webhook-id"], int(said["webhook-timestamp"]), request.body or b""
        by = {webhook.sign(key, stamp, body, [secret]): number for number, secret in enumerate(secrets)}
        return [by.get(one, -1) for one in said["webhook-signature"].split(" ")]


def sealer(*materials: bytes) -> Counting:
    return Counting(SystemChance(), materials or (KEY,))


def keyring(bench: Bench, by: Sealer | None = None, telemetry: Telemetry | None = None) -> Keyring:
    return Keyring(
        world=World(bench.clock, SeededChance("keys")), database=bench.database, sealer=by or sealer(),
        telemetry=telemetry or bench.telemetry,
    )  # fmt: skip


def engine(bench: Bench, wire: Wire, ring: Keyring | None = None, **more: Any) -> Engine:
    keys = ring or keyring(bench)
    channel = Webhook(wire, netguard.Rules(), keys.keys, now=bench.clock.now)  # type: ignore[arg-type]  # the wire stands in
    return bench.engine(channels={"webhook": channel}, keyring=keys, **more)


async def rotate(
    bench: Bench, *, overlap: timedelta = timedelta(0), project_id: UUID = PROJECT, by: Sealer | None = None
) -> bytes:
    """The new secret."""
    secret = SystemChance().token(32)
    sealed = (by or sealer()).seal(secret, sealing.of_project(TENANT, project_id))
    new = NewSecret(
        id=SystemChance().uuid7(bench.now), tenant_id=TENANT, project_id=project_id, sealed=sealed.data, key_id=sealed.key_id,
        created_at=bench.now, who="test",
    )  # fmt: skip
    assert await bench.database.write(store.secrets.rotate, new, until=bench.now + overlap) is not None
    return secret


async def secrets_of(bench: Bench, project_id: UUID = PROJECT) -> list[Any]:
    return list(await bench.database.read(store.secrets.of_project, TENANT, project_id, limit=100))


async def test_the_first_delivery_of_a_project_makes_its_secret_and_is_signed_with_it(bench: Bench) -> None:
    wire, by = Wire(bench), sealer()
    one = await bench.add(target=TARGET)
    await round_of(engine(bench, wire, keyring(bench, by)))
    assert await bench.states(one) == [State.COMPLETED]
    (row,) = await secrets_of(bench)
    secret = by.open(Sealed(key_id=row.key_id, data=row.sealed), sealing.of_project(TENANT, PROJECT))
    assert secret is not None
    assert (row.number, row.expires_at, row.who, len(secret)) == (1, None, "an engine", 32)
    assert wire.signers(secret) == [[0]]


async def test_many_first_deliveries_at_several_engines_make_one_secret_and_each_engine_asks_once(bench: Bench) -> None:
    wire = Wire(bench, connecting=0.1)
    # Few enough that a receiver of which nothing is known yet takes them all in one round.
    for number in range(12):
        await bench.add(number, target=TARGET)
    engines = [engine(bench, wire) for _ in range(3)]
    before = bench.database._telemetry.counts["store.ensure"]
    await asyncio.gather(*(one.tick_once() for one in engines))
    await asyncio.gather(*(one.pump_once() for one in engines))
    await asyncio.gather(*(idle(one) for one in engines))
    assert len(wire.seen) == 12
    assert len(await secrets_of(bench)) == 1
    assert bench.database._telemetry.counts["store.ensure"] - before <= 3
    assert len({tuple(one) for one in wire.signers(await opened(bench))}) == 1


async def opened(bench: Bench) -> bytes:
    (row,) = await secrets_of(bench)
    found = sealer().open(Sealed(key_id=row.key_id, data=row.sealed), sealing.of_project(TENANT, PROJECT))
    assert found is not None
    return found


async def test_a_secret_is_opened_once_and_a_send_asks_the_database_nothing(bench: Bench) -> None:
    wire, by = Wire(bench), sealer()
    await rotate(bench)
    run = engine(bench, wire, keyring(bench, by))
    made, counts = bench.database._telemetry.counts, bench.telemetry.counts
    for number in range(50):
        await bench.add(number, target=TARGET)
        await round_of(run)
    assert len(wire.seen) == 50
    assert (by.opened, counts["store.in_force"], made["store.ensure"]) == (1, 1, 0)
    await rotate(bench, overlap=SECOND)
    await bench.add(99, target=TARGET)
    await round_of(run)
    assert (by.opened, counts["store.in_force"]) == (2, 2), "what is open stays open when another one comes"


@pytest.mark.parametrize("overlap", [timedelta(0), 20 * SECOND], ids=["at once", "with an overlap"])
async def test_two_seconds_after_a_rotation_every_request_is_signed_by_it_and_the_older_one_ends_by_the_clock(
    bench: Bench, overlap: timedelta
) -> None:
    wire = Wire(bench)
    old = await rotate(bench)
    for number in range(400):
        await bench.add(number, after=number * SECOND / 10, target=TARGET)
    async with running(engine(bench, wire), engine(bench, wire)):
        await bench.sleep(10)
        new, rotated = await rotate(bench, overlap=overlap), bench.now
        await bench.sleep(35)
    assert len(wire.seen) == 400
    for (at, _), signed_by in zip(wire.seen, wire.signers(new, old), strict=True):
        if at < rotated:
            assert signed_by == [1]
        elif at < rotated + 2 * SECOND:
            assert signed_by in ([1], [0, 1], [0])
        else:
            assert signed_by == ([0, 1] if at < rotated + overlap else [0]), at - rotated


async def test_no_text_of_the_keyring_shows_a_secret(bench: Bench) -> None:
    ring, secret = keyring(bench), await rotate(bench)
    ring.take(await bench.database.read(store.secrets.in_force, now=bench.now), 1)
    assert await ring.keys(TENANT, PROJECT) == [secret]
    assert repr(secret)[2:-1] not in repr(ring) + repr(ring._open)


async def test_an_end_needs_no_tick(bench: Bench) -> None:
    old, wire = await rotate(bench), Wire(bench)
    new, run = await rotate(bench, overlap=SECOND / 2), engine(bench, wire)
    await run.tick_once()
    for number in (1, 2):
        await bench.add(number, target=TARGET)
        run.wakeup.ring(bench.now)
        await run.pump_once()
        await idle(run)
        await bench.sleep(0.5)
    assert wire.signers(new, old) == [[0, 1], [0]]


async def test_a_secret_that_is_withdrawn_while_a_request_connects_does_not_leave_with_it(bench: Bench) -> None:
    wire, old = Wire(bench, connecting=5), await rotate(bench)
    one = await bench.add(target=TARGET)
    async with running(engine(bench, wire)):
        await bench.sleep(1)
        new = await rotate(bench)
        await bench.sleep(20)
    assert wire.signers(new, old) == [[0]]
    assert [(row.number, row.outcome) for row in await bench.attempts(one)] == [(1, "delivered")]
    assert await bench.states(one) == [State.COMPLETED]


async def test_what_cant_be_opened_keeps_its_projects_requests_here_and_says_what_to_do(bench: Bench) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    telemetry = Telemetry(Silence())
    telemetry.listen(lambda name, said: heard.append((name, said)))
    wire = Wire(bench)
    await rotate(bench, by=sealer(b"another key that is not here, no"))
    theirs = await rotate(bench, project_id=OTHER)
    mine = [await bench.add(number, target=TARGET) for number in range(3)]
    other = await bench.add(9, target=TARGET, project_id=OTHER)
    run = engine(bench, wire, keyring(bench, telemetry=telemetry))
    await round_of(run)
    assert await bench.states(*mine, other) == [State.SCHEDULED] * 3 + [State.COMPLETED]
    assert wire.signers(theirs) == [[0]]
    row = await bench.row(mine[0])
    assert (row.attempt_count, row.wake_at, row.reason) == (0, bench.now + 30 * SECOND, "signing_secret_unreadable")
    assert await bench.attempts(mine[0]) == []
    (verdict,) = await bench.verdicts(mine[0])
    assert (verdict.verdict, verdict.reason) == ("defer", "signing_secret_unreadable")
    ((name, said),) = heard
    assert name == "signing.unreadable"
    assert said["project_id"] == str(PROJECT)
    assert "ENCRYPTION_KEYS" in said["advice"]
    new = await rotate(bench)
    await bench.sleep(30)
    await round_of(run)
    assert await bench.states(*mine) == [State.COMPLETED] * 3
    assert wire.signers(new)[1:] == [[0]] * 3


async def test_of_two_secrets_in_force_one_that_cant_be_opened_is_enough_to_wait(bench: Bench) -> None:
    wire = Wire(bench)
    await rotate(bench, by=sealer(b"another key that is not here, no"))
    await rotate(bench, overlap=10 * SECOND)
    one = await bench.add(target=TARGET)
    await round_of(engine(bench, wire))
    assert (wire.seen, (await bench.row(one)).reason) == ([], "signing_secret_unreadable")


async def test_a_row_that_was_copied_to_another_project_signs_nothing_there(bench: Bench) -> None:
    wire = Wire(bench)
    await rotate(bench)

    def copy(connection: Any) -> None:
        values = dict(connection.execute(schema.secrets.select()).one()._mapping)
        connection.execute(schema.secrets.insert(), values | {"id": UUID(int=5), "project_id": OTHER})

    await bench.database.write(copy)
    one = await bench.add(target=TARGET, project_id=OTHER)
    await round_of(engine(bench, wire))
    assert (wire.seen, (await bench.row(one)).reason) == ([], "signing_secret_unreadable")


async def test_while_the_first_secret_cant_be_made_nothing_leaves_and_it_is_no_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, one = Wire(bench), await bench.add(target=TARGET)
    run = engine(bench, wire)

    def away(*_: object) -> None:
        raise UnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(store.secrets, "ensure", away)
        await round_of(run)
    row = await bench.row(one)
    assert (wire.seen, State(row.state), row.attempt_count) == ([], State.SCHEDULED, 0)
    assert row.reason == "signing_secret_unavailable"
    await bench.sleep(30)
    await round_of(run)
    assert await bench.states(one) == [State.COMPLETED]


async def test_where_the_secrets_cant_be_read_no_tick_is_fresh(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, one = Wire(bench), await bench.add(target=TARGET)
    await rotate(bench)
    run = engine(bench, wire)

    def away(*_: object, **__: object) -> None:
        raise UnavailableError("away")

    monkeypatch.setattr(store.secrets, "in_force", away)
    with pytest.raises(UnavailableError):
        await run.tick_once()
    await run.pump_once()
    await idle(run)
    assert (wire.seen, (await bench.row(one)).fence) == ([], 0)


async def test_what_an_older_question_brings_never_takes_the_place_of_what_a_tick_has_brought(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, _ = keyring(bench), await rotate(bench)
    older = await bench.database.read(store.secrets.in_force, now=bench.now)
    new = await rotate(bench)
    newer = await bench.database.read(store.secrets.in_force, now=bench.now)

    def slow(*_: object) -> Any:
        asyncio.get_running_loop().call_soon(ring.take, newer, 7)
        return older

    monkeypatch.setattr(store.secrets, "ensure", slow)
    assert await ring.keys(TENANT, PROJECT) == [new]


async def test_each_attempt_is_signed_for_its_own_instant_under_one_id_and_over_the_same_bytes(bench: Bench) -> None:
    from standardwebhooks import Webhook as Receiver

    wire, secret = Wire(bench, status=500), await rotate(bench)
    one = await bench.add(target=TARGET)
    async with running(engine(bench, wire)):
        await bench.sleep(200)
    assert [row.number for row in await bench.attempts(one)] == [1, 2, 3]
    receiver = Receiver(base64.b64encode(secret).decode())
    told = [dict(request.headers) for _, request in wire.seen]
    assert wire.signers(secret) == [[0]] * 3
    assert len({said["webhook-id"] for said in told}) == len({request.body for _, request in wire.seen}) == 1
    assert [int(said["webhook-timestamp"]) for said in told] == [int(at.timestamp()) for at, _ in wire.seen]
    for (at, request), said in zip(wire.seen, told, strict=True):
        body = (request.body or b"").decode()
        assert receiver.sign(said["webhook-id"], at.replace(microsecond=0), body) == said["webhook-signature"]
    kept = str([tuple(row) for row in await bench.attempts(one)])
    assert not [said for said in told if said["webhook-signature"] in kept]
