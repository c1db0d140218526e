"""COMMITs whose answer never comes, lost on a real wire: nothing is done twice, and nothing is lost."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import func, select

from campana import store
from campana.domain import deliveries as model
from campana.domain.acts import Act, Came, Deed
from campana.domain.deliveries import State
from campana.domain.instants import MICROSECOND
from campana.store import bulk
from campana.store.database import Urgency
from campana.store.deliveries import Filter
from campana.store.schema import attempts, deliveries
from tests.proxies import Commit, Proxy
from tests.store import builders
from tests.store import desk as desks
from tests.store.builders import LEASE, NOW, settlement, wish
from tests.store.desk import Desk

TIMES = 30
LOST = [Commit.SWALLOWED, Commit.DROPPED]


@pytest.fixture
async def wire(server_desk: Desk) -> AsyncIterator[tuple[Desk, Proxy]]:
    async with Proxy.before(server_desk.url) as proxy, desks.opened(proxy.url) as through:
        # Connected first: on MySQL and MariaDB that sends a COMMIT of its own.
        await through.read(store.tenants.has_keys)
        yield through, proxy


async def _count(desk: Desk, **where: Any) -> int:
    query = select(func.count()).select_from(deliveries).filter_by(**where)
    return await desk.read(lambda connection: connection.execute(query).scalar_one())


@pytest.mark.parametrize("fate", LOST)
@pytest.mark.parametrize("is_keyed", [True, False])
async def test_a_create_without_an_answer_makes_each_delivery_once(
    server_desk: Desk, wire: tuple[Desk, Proxy], fate: Commit, *, is_keyed: bool
) -> None:
    desk, proxy = wire
    for number in range(TIMES):
        new = [builders.delivery(dedupe_key=f"{number} {one}" if is_keyed else None) for one in range(3)]
        proxy.next_commit = fate
        made = await desk.write(store.deliveries.create, new, now=NOW)
        assert [(one.id, one.deduplicated) for one in made] == [(one.id, False) for one in new]
    assert (proxy.commits_lost, await _count(server_desk)) == (TIMES, 3 * TIMES)
    assert desk.telemetry.counts["store.commit_lost"] == TIMES


@pytest.mark.parametrize("fate", LOST)
async def test_a_claim_without_an_answer_takes_its_rows_once(server_desk: Desk, wire: tuple[Desk, Proxy], fate: Commit) -> None:
    desk, proxy = wire
    made = await server_desk.add_all(*({"wake_at": NOW - number * MICROSECOND} for number in range(3 * TIMES)))
    taken = []
    for number in range(TIMES):
        proxy.next_commit = fate
        claimed = await desk.database.claim(wish(free=2, lease_until=NOW + LEASE + number * MICROSECOND))
        taken += [(ticket.id, ticket.fence) for ticket in claimed.tickets]
    assert sorted(taken) == sorted((one, 1) for one in made[TIMES:])
    assert (proxy.commits_lost, await _count(server_desk, state=int(State.PROCESSING))) == (TIMES, 2 * TIMES)


@pytest.mark.parametrize("fate", LOST)
async def test_a_settle_without_an_answer_is_written_once(server_desk: Desk, wire: tuple[Desk, Proxy], fate: Commit) -> None:
    desk, proxy = wire
    made = await server_desk.add_all(*({"state": State.PROCESSING} for _ in range(2 * TIMES)))
    for pair in zip(made[::2], made[1::2], strict=True):
        proxy.next_commit = fate
        group = [settlement(one, transition=model.Retried(at=NOW)) for one in pair]
        applied = await desk.database.urgently(Urgency.SETTLE, store.settlements.apply, group, now=NOW)
        assert [one.settlement for one in applied.settled] == group
        assert applied.late == []
    assert proxy.commits_lost == TIMES
    assert await _count(server_desk, state=int(State.PENDING_RETRY), attempt_count=1) == 2 * TIMES
    assert len(await server_desk.rows(attempts)) == 2 * TIMES


@pytest.mark.parametrize("fate", LOST)
async def test_a_redrive_without_an_answer_begins_one_generation(
    server_desk: Desk, wire: tuple[Desk, Proxy], fate: Commit
) -> None:
    desk, proxy = wire
    made = await server_desk.add_all(*({"state": State.DEAD_LETTER} for _ in range(TIMES)))
    for one in made:
        proxy.next_commit = fate
        redrive = Deed(act=Act.REDRIVE, actor="key:1")
        assert await desk.write(store.acts.perform, builders.TENANT, [one], redrive, now=NOW) == {one: Came.DONE}
    assert (proxy.commits_lost, await _count(server_desk, state=int(State.SCHEDULED), generation=2)) == (TIMES, TIMES)


@pytest.mark.parametrize("fate", LOST)
async def test_a_batch_without_an_answer_does_none_twice_and_leaves_none_out(
    server_desk: Desk, wire: tuple[Desk, Proxy], fate: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    desk, proxy = wire
    await server_desk.add_all(*({"state": State.DEAD_LETTER} for _ in range(2 * TIMES + 1)))
    wanted = Filter(states=frozenset({State.DEAD_LETTER}))
    it = builders.new_id()
    new = bulk.NewOperation(id=it, tenant_id=builders.TENANT, act=Act.REDRIVE, wanted=wanted, actor="key:1", created_at=NOW)
    await server_desk.write(bulk.begin, new)
    proxy.next_commit = fate
    while await desk.write(bulk.advance, it, now=NOW) is not None:
        proxy.next_commit = fate
    row = await server_desk.read(bulk.get, builders.TENANT, it)
    assert row is not None
    assert (row.status, row.done) == ("finished", 2 * TIMES + 1)
    assert await _count(server_desk, state=int(State.SCHEDULED), generation=2) == 2 * TIMES + 1


async def test_running_again_without_looking_back_would_claim_twice(server_desk: Desk, wire: tuple[Desk, Proxy]) -> None:
    """The control: the swallowed COMMIT is durable, so a bare second claim takes other rows and leaves the first ones lying."""
    desk, proxy = wire
    await server_desk.add_all({}, {}, {}, {})
    proxy.next_commit = Commit.SWALLOWED
    claimed = await desk.database.urgently(Urgency.CLAIM, store.claims.claim, wish(free=2))
    assert len(claimed.tickets) == 2
    assert await _count(server_desk, state=int(State.PROCESSING)) == 4


async def test_running_again_under_a_new_id_would_create_twice(server_desk: Desk, wire: tuple[Desk, Proxy]) -> None:
    """The control: what makes a repeated creation harmless is its id."""
    desk, proxy = wire
    proxy.next_commit = Commit.SWALLOWED
    await desk.write(lambda connection: store.deliveries.create(connection, [builders.delivery()], now=NOW))
    assert await _count(server_desk) == 2


async def test_a_commit_that_freezes_is_given_up_and_read_back(server_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desks.be_patient(monkeypatch, answer=0.5)
    it = await server_desk.add()
    async with Proxy.before(server_desk.url) as proxy, desks.opened(proxy.url) as desk:
        await desk.read(store.tenants.has_keys)
        proxy.next_commit = Commit.FROZEN
        claimed = await desk.database.claim(wish())
        assert [ticket.id for ticket in claimed.tickets] == [it]
        assert desk.telemetry.counts["store.commit_lost"] == 1
    assert (await server_desk.row(it)).fence == 1


async def test_a_server_that_falls_silent_is_asked_again_over_a_new_connection(
    server_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desks.be_patient(monkeypatch, answer=0.5)
    async with Proxy.before(server_desk.url) as proxy, desks.opened(proxy.url) as desk:
        assert await desk.read(store.tenants.has_keys) is False
        proxy.freeze()
        desk.telemetry.listen(lambda name, _: proxy.thaw() if name == "store.retry" else None)
        wanted = builders.delivery()
        assert [made.id for made in await desk.write(store.deliveries.create, [wanted], now=NOW)] == [wanted.id]
    assert await _count(server_desk) == 1


async def test_connections_cut_while_idle_are_made_anew(server_desk: Desk, wire: tuple[Desk, Proxy]) -> None:
    desk, proxy = wire
    for _ in range(3):
        assert await desk.read(store.tenants.has_keys) is False
        await proxy.cut()
        await desk.write(store.deliveries.create, [builders.delivery()], now=NOW)
        await proxy.cut()
    assert await _count(server_desk) == 3
