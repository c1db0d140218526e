"""What one request costs, others need not wait for."""

from __future__ import annotations

import asyncio

from campana.domain.tickets import NewDelivery
from campana.operations import deliveries
from campana.operations.office import Actor, Office


async def test_a_batch_of_costly_templates_lets_others_go_on(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    costly = ["{{ payload.a" + " | upper | lower" * 4 + " | urlencode }}"] * 400
    target = {"url": "https://example.com/hook", "body_template": costly}
    items = [{"channel": "webhook", "target": target, "payload": {"a": "x" * 400}}] * 40
    turns, asked = 0, deliveries._Request(refused=())
    # The first one asks the database for the project's name; the others' turns in that time are no matter here.
    await deliveries._resolve_all(office, actor, items[:1], asked)

    async def others() -> None:
        nonlocal turns
        while True:
            await office.world.clock.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    results = await deliveries._resolve_all(office, actor, items, asked)
    beside.cancel()
    assert all(isinstance(one, NewDelivery) for one in results)
    # Each of them takes longer than others should wait, on any machine.
    assert turns >= len(items) // 4
