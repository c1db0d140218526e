"""One receiver that hangs takes its own share of an engine, and nothing of anybody else's."""

from __future__ import annotations

import asyncio
import time

from campana.domain.deliveries import State
from tests.channels.hostile import OK, answering, serving, silent
from tests.receivers.office import OTHER, PATIENCE, TENANT, Opener

SOON = 2.0
"""Seconds in which others' deliveries begin, whoever hangs: what `docs/guides/endpoint-down.md` says."""


async def test_behind_ten_thousand_for_a_receiver_that_hangs_all_others_begin_within_two_seconds(opener: Opener) -> None:
    async with serving(silent) as hung, serving(answering(OK)) as well, serving(answering(OK)) as mine:
        async with opener.open() as office:
            stuck = await office.add(hung, 10_000)
            other = await office.add(well, tenant_id=OTHER)
            own = await office.add(mine)
            office.begin()
            async with asyncio.timeout(PATIENCE):
                await office.until_asked(hung)
                began = time.monotonic()
                await office.until_asked(well)
                t1 = time.monotonic() - began
                await office.until_asked(mine)
                took = time.monotonic() - began
                print("TOOK", t1, took)
                await office.until([*other, *own], State.COMPLETED)
            assert took < SOON
            assert len(hung.requests) <= 20
