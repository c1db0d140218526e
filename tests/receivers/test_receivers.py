"""Receivers that are down, slow, gone or lying, as real servers, through the real engine, on every database."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from campana.domain import retries
from campana.domain.deliveries import State
from tests.channels.hostile import OK, Script, Talk, answering, once, serving, silent
from tests.receivers.office import PATIENCE, Office, Opener

SOON = {"breaker_first_seconds": 0.2, "breaker_longest_seconds": 0.4, "breaker_trip_after": 3}
PATIENT = retries.Policy(max_attempts=1_000, base=timedelta(seconds=0.02), cap=timedelta(seconds=0.02))
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
GONE = b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"
ABORT = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nwebhook-delivery: abort-message\r\n\r\n"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf of it"


async def reset(talk: Talk) -> None:
    await talk.request()
    talk.reset()


async def half_and_reset(talk: Talk) -> None:
    await talk.request()
    await talk.say(HALF)
    talk.reset()


async def is_told(office: Office, kind: str) -> bool:
    await office.until_written(kind)
    return True


async def test_a_receiver_that_is_down_gets_everything_once_it_is_back(opener: Opener) -> None:
    down = True

    async def answer(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.say(BUSY if down else OK)

    async with serving(answer) as server, opener.open(**SOON) as office:
        every = await office.add(server, 20, retry=PATIENT)
        office.begin()
        async with asyncio.timeout(PATIENCE):
            assert await is_told(office, "breaker.tripped")
            failed = len(server.requests)
            down = False
            await office.until(every, State.COMPLETED)
            assert await is_told(office, "breaker.closed")
        # Each was delivered once; what was tried in vain is on record beside it.
        assert sum([len(await office.attempts(it)) for it in every]) >= 20 + failed
        assert sum(row.attempt_count for row in await office.rows(every)) == len(server.requests)


async def test_a_receiver_whose_machine_is_off_is_left_alone_and_found_again(opener: Opener) -> None:
    async with serving(answering(OK)) as server:
        port = server.port
    async with opener.open(**SOON) as office:
        every = await office.add(server, 10, retry=PATIENT)
        office.begin()
        async with asyncio.timeout(PATIENCE):
            assert await is_told(office, "breaker.tripped")
            async with serving(answering(OK), port=port):
                await office.until(every, State.COMPLETED)
        assert all(row.ambiguous_attempts == 0 for row in await office.rows(every))


@pytest.mark.parametrize("lie", [reset, half_and_reset, once(HALF), once(b""), once(b"no HTTP at all\r\n\r\n")])
async def test_a_receiver_that_lies_is_believed_in_nothing_and_left_alone(opener: Opener, lie: Script) -> None:
    async with serving(lie) as server, opener.open(**SOON) as office:
        ids = await office.add(server, 4, retry=retries.Policy(max_attempts=2, base=timedelta(seconds=0.02)))
        office.begin()
        async with asyncio.timeout(PATIENCE):
            await office.until(ids, State.DEAD_LETTER)
            assert await is_told(office, "breaker.tripped")
        rows = await office.rows(ids)
        assert {(row.reason, row.attempt_count, row.ambiguous_attempts) for row in rows} == {("exhausted", 2, 2)}


async def test_a_receiver_that_is_slow_is_given_up_at_the_deadline_and_left_alone(opener: Opener) -> None:
    async with serving(silent) as server, opener.open(**SOON) as office:
        ids = await office.add(server, 4, retry=retries.Policy(max_attempts=1), timeout="200ms")
        office.begin()
        async with asyncio.timeout(PATIENCE):
            await office.until(ids, State.DEAD_LETTER)
            assert await is_told(office, "breaker.tripped")
        attempts = await office.attempts(ids[0])
        assert [row.outcome for row in attempts] == ["ambiguous"]
        assert attempts[0].finished_at - attempts[0].started_at >= timedelta(seconds=0.19)


@pytest.mark.parametrize(("wire", "said"), [(GONE, "410"), (ABORT, "abort-message")])
async def test_a_receiver_that_says_stop_is_asked_once_for_each_message(opener: Opener, wire: bytes, said: str) -> None:
    async with serving(answering(wire)) as server, opener.open() as office:
        ids = await office.add(server, 3, retry=PATIENT, retry_on=["4xx", "5xx"])
        office.begin()
        async with asyncio.timeout(PATIENCE):
            await office.until(ids, State.DEAD_LETTER)
        rows = await office.rows(ids)
        assert {(row.reason, row.attempt_count) for row in rows} == {("permanent", 1)}
        assert all(said in row.last_error for row in rows)
        assert len(server.requests) == 3
