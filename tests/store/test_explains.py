"""What is read to explain a delivery, on every database."""

import json
from typing import Any

from sqlalchemy import insert, update

from campana import store
from campana.domain.deliveries import State
from campana.store.schema import engines, lanes, slots, tenants
from tests.store import builders
from tests.store.builders import HOUR, ME, NOW, OTHER_TENANT, PROJECT, SECOND, TENANT, YOU
from tests.store.desk import Desk, execute


async def _add(desk: Desk, table: Any, **values: Any) -> None:
    await desk.write(execute, insert(table), [values])


async def test_a_delivery_alone_has_nothing_around_it(desk: Desk) -> None:
    it = await desk.add()
    facts = await desk.read(store.explains.facts, TENANT, it, now=NOW)
    assert facts is not None
    assert (facts.record.id, facts.attempts, facts.verdicts, facts.off) == (it, [], [], [])
    assert (facts.suspended_at, facts.holder, facts.places, facts.engines, facts.serving) == (None, None, None, 0, 0)


async def test_whatever_stands_over_it_is_found_widest_first(desk: Desk) -> None:
    it = await desk.add(lane_key="lane:a", resource="slots:b")
    mine, anothers = f"tenant:{TENANT}/project:{PROJECT}", f"tenant:{OTHER_TENANT}"
    for scope in (mine, anothers, "all/channel:webhook", "all"):
        await desk.write(store.switches.throw, scope, off=True, reason="r", actor="a", now=NOW)
    await desk.write(store.switches.throw, "all", off=False, reason="r", actor="a", now=NOW)
    await desk.write(store.tenants.ensure, "default", tenant_id=TENANT, now=NOW)
    await desk.write(execute, update(tenants).values(suspended_at=NOW))
    await _add(desk, lanes, lane_key="lane:a", delivery_id=(await desk.add()), until=NOW + HOUR)
    await _add(desk, slots, resource="slots:b", n=1, delivery_id=None)
    await _add(desk, slots, resource="slots:b", n=2, delivery_id=it)
    facts = await desk.read(store.explains.facts, TENANT, it, now=NOW)
    assert facts is not None
    assert [row.scope for row in facts.off] == ["all/channel:webhook", mine]
    assert (facts.suspended_at, facts.places) == (NOW, 1)
    assert facts.holder is not None
    assert (facts.holder.delivery_id is not None, facts.holder.until) == (True, NOW + HOUR)


async def test_engines_count_while_they_are_seen_and_say_what_they_take(desk: Desk) -> None:
    it = await desk.add()
    for number, me in enumerate((ME, YOU)):
        queues = ["webhook"] if number else ["log"]
        said: dict[str, Any] = {"started_at": NOW, "free": 1, "version": "1"}
        await desk.write(store.engines.tick, me, queues, now=NOW + number * HOUR, **said)
    assert json.loads((await desk.rows(engines))[0].queues) == ["log"]
    both = await desk.read(store.explains.facts, TENANT, it, now=NOW)
    late = await desk.read(store.explains.facts, TENANT, it, now=NOW + HOUR)
    gone = await desk.read(store.explains.facts, TENANT, it, now=NOW + 2 * HOUR + 60 * SECOND)
    assert [(one.engines, one.serving) for one in (both, late, gone) if one] == [(2, 1), (1, 1), (0, 0)]


async def test_only_its_tenant_is_told(desk: Desk) -> None:
    it = await desk.add(state=State.COMPLETED)
    assert await desk.read(store.explains.facts, OTHER_TENANT, it, now=NOW) is None
    assert await desk.read(store.explains.tenant_of, it) == TENANT
    assert await desk.read(store.explains.tenant_of, builders.new_id()) is None
