"""What is asked for at the same moment shares a transaction, and nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from campana import store
from campana.domain.tickets import NewDelivery
from campana.errors import UnavailableError
from campana.operations import deliveries, intake
from campana.operations.intake import Intake
from campana.operations.office import Actor, Office
from campana.store.deliveries import Entered


def wanted(number: int, **said: Any) -> dict[str, Any]:
    return {"channel": "log", "target": {"message": str(number)}, **said}


async def resolved(office: Office, actor: Actor, number: int) -> NewDelivery:
    return await deliveries._resolve(office, actor, wanted(number), deliveries._Request(refused=()))


async def test_many_at_once_share_transactions_and_each_has_its_own_answer(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    made = await asyncio.gather(*(deliveries.create(office, actor, wanted(number)) for number in range(200)))
    shown = [one.record for one in made]
    assert [record.target for record in shown if record] == [f'{{"message":"{number}"}}' for number in range(200)]
    assert office.telemetry.counts["store.enter"] <= 10
    found = await office.database.read(store.deliveries.get_many, actor.tenant_id, [one.id for one in shown if one])
    assert len(found) == 200


async def test_one_dedupe_key_in_many_requests_at_once_makes_one_delivery(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    made = await asyncio.gather(*(deliveries.create(office, actor, wanted(number, dedupe_key="k")) for number in range(50)))
    assert len({one.record.id for one in made if one.record}) == 1
    assert [one.deduplicated for one in made].count(False) == 1


async def test_a_bad_one_harms_nobody_beside_it(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    new = [await resolved(office, actor, number) for number in range(10)]
    new[4] = replace(new[4], channel="x" * 5, target=None)  # type: ignore[arg-type]  # what the database refuses
    came = await asyncio.gather(*(office.intake.put([one]) for one in new), return_exceptions=True)
    assert [isinstance(one, BaseException) for one in came] == [number == 4 for number in range(10)]
    assert all(one[0].record is not None for one in came if not isinstance(one, BaseException))


async def test_who_goes_away_leaves_the_others_and_what_was_taken_in(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    new = [await resolved(office, actor, number) for number in range(4)]
    asked = [asyncio.create_task(office.intake.put([one])) for one in new]
    await office.world.clock.sleep(0)
    asked[1].cancel()
    came = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in came] == [False, True, False, False]
    # The writer that has them is still at work.
    await office.intake.put([await resolved(office, actor, 9)])
    found = await office.database.read(store.deliveries.get_many, actor.tenant_id, [one.id for one in new])
    assert len(found) == 4


class Away:
    """A database that is not there."""

    async def write(self, *_: Any, **__: Any) -> Sequence[Any]:
        raise UnavailableError("enter: the database did not answer")


async def test_a_database_that_is_away_is_told_to_all_and_asked_once_for_a_group(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    new = [await resolved(office, actor, number) for number in range(5)]
    away = Intake(Away(), office.world.clock)  # type: ignore[arg-type]  # a stand-in for what is not there
    came = await asyncio.gather(*(away.put([one]) for one in new), return_exceptions=True)
    assert all(isinstance(one, UnavailableError) for one in came)


class Gated:
    """A database whose writes end when the test says so."""

    def __init__(self) -> None:
        self.gates: list[asyncio.Future[None]] = []

    async def write(self, _: Any, new: Sequence[NewDelivery], **__: Any) -> Sequence[Entered]:
        self.gates.append(asyncio.get_running_loop().create_future())
        await self.gates[-1]
        return [Entered(was_there=False, record=None)] * len(new)


async def test_who_comes_as_the_last_writers_end_is_written_too(desk: tuple[Office, Actor]) -> None:
    office, actor = desk
    new, gated = [await resolved(office, actor, number) for number in range(3)], Gated()
    busy = Intake(gated, office.world.clock)  # type: ignore[arg-type]  # the moment matters, and of a real one it can't be had
    asked = []
    for number in range(intake.WRITERS):
        asked.append(asyncio.create_task(busy.put([new[number]])))
        while len(gated.gates) <= number:
            await office.world.clock.sleep(0)
    for gate in list(gated.gates):
        gate.set_result(None)
    # Its turn is in the same round of the loop as theirs, and after them.
    asked.append(asyncio.create_task(busy.put([new[2]])))
    async with asyncio.timeout(10):
        while len(gated.gates) == intake.WRITERS:
            await office.world.clock.sleep(0)
        gated.gates[-1].set_result(None)
        assert len(await asyncio.gather(*asked)) == len(new)


def test_a_group_has_a_bound_and_one_large_request_goes_whole() -> None:
    gathered = Intake(Away(), None)  # type: ignore[arg-type]  # only its queue is looked at
    loop = asyncio.new_event_loop()
    for size in (1, 498, 1, 1, 900, 2):
        gathered._asked.append(intake._Asked(new=[None] * size, answer=loop.create_future()))  # type: ignore[list-item]  # only counted
    sizes = []
    while gathered._asked:
        sizes.append([len(asked.new) for asked in gathered._next()])
    loop.close()
    assert sizes == [[1, 498, 1], [1], [900], [2]]
