"""One receiver that hangs takes its own share of an engine, and nothing of anybody else's."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from campana.domain import guards, retries
from campana.domain.deliveries import State
from campana.engine.destinations import FIRST_BERTHS
from tests.channels.hostile import OK, Talk, answering, serving, silent
from tests.receivers.office import OTHER, PATIENCE, Opener


async def test_behind_ten_thousand_for_a_receiver_that_hangs_all_others_begin_after_a_few_claims(opener: Opener) -> None:
    async with serving(silent) as hung, serving(answering(OK)) as well, serving(answering(OK)) as mine, opener.open() as office:
        stuck = await office.add(hung, 10_000)
        other, own = await office.add(well, tenant_id=OTHER), await office.add(mine)
        office.begin()
        async with asyncio.timeout(PATIENCE):
            await office.until_asked(well)
            await office.until_asked(mine)
            claims = office.house.telemetry.counts["store.claim"]
            await office.until([*other, *own], State.COMPLETED)
        # A second on a quiet machine: the guide says two. One by one it would have been more than a hundred claims.
        assert claims < 30
        # Nothing is known of it, so only a few went: the rest came to no attempt, and says why.
        assert len(hung.requests) <= FIRST_BERTHS
        last = (await office.rows(stuck[-1:]))[0]
        assert (State(last.state), last.attempt_count, last.reason) == (State.SCHEDULED, 0, guards.BUSY)


async def test_what_is_put_off_comes_back_a_few_at_a_time(opener: Opener) -> None:
    async with serving(silent) as hung, opener.open() as office:
        stuck = await office.add(hung, 1_000)
        office.begin()
        async with asyncio.timeout(PATIENCE):
            while any(row.reason is None for row in await office.rows(stuck[50:])):
                await office.moment()
        wakes = [row.wake_at for row in await office.rows(stuck) if State(row.state) is State.SCHEDULED]
        # A hundred a second, none in a herd.
        assert max(wakes) - min(wakes) > timedelta(seconds=8)
        assert max(wakes.count(at) for at in set(wakes)) <= 150


async def test_one_healthy_receiver_with_a_big_backlog_goes_at_full_speed(opener: Opener) -> None:
    async with serving(answering(OK)) as server, opener.open() as office:
        every = await office.add(server, 2_000)
        office.begin()
        async with asyncio.timeout(PATIENCE):
            await office.until(every, State.COMPLETED)
        assert len(server.requests) == 2_000
        # As a rule nothing is put off at all. On a busy machine the receiver is slow too, and some are; if the door let nobody
        # wait each would be, and most of them again and again.
        assert office.house.telemetry.counts["delivery.deferred"] < len(every)


async def test_a_storm_of_retries_leaves_berths_for_first_attempts(opener: Opener) -> None:
    free = asyncio.Event()

    async def hold(talk: Talk) -> None:
        while True:
            await talk.request()
            await free.wait()
            await talk.say(OK)

    again = retries.Policy(max_attempts=5)
    async with serving(hold) as server, opener.open() as office:
        await office.add(server, 200, retry=again, attempts=2)
        office.begin()
        async with asyncio.timeout(PATIENCE):
            await office.until_asked(server, 4)
            first = await office.add(server, path="/first")
            await office.until_asked(server, 5)
            assert server.requests[-1].startswith(b"POST /first ")
            free.set()
            await office.until(first, State.COMPLETED)


async def test_a_receiver_that_answers_gets_more_at_once_with_every_answer(opener: Opener) -> None:
    under_way, most = 0, 0

    async def slow(talk: Talk) -> None:
        nonlocal under_way, most
        while True:
            await talk.request()
            under_way += 1
            most = max(most, under_way)
            pause = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.05, pause.set_result, None)
            await pause
            under_way -= 1
            await talk.say(OK)

    async with serving(slow) as server, opener.open(max_in_flight_per_host=8) as office:
        every = await office.add(server, 100)
        office.begin()
        async with asyncio.timeout(PATIENCE):
            await office.until(every, State.COMPLETED)
        assert most == 8
