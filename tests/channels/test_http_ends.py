"""How an exchange ends with servers that behave badly: told apart by what had happened by then, and always bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop

from campana.channels import http
from campana.domain.ambiguity import CERTAINTY, Certainty, Trouble
from tests.channels.hostile import (
    OK,
    SOON,
    Talk,
    answering,
    client,
    once,
    response,
    serving,
    settle,
    silent,
    trouble,
    yes,
)


async def reset(talk: Talk) -> None:
    await talk.request()
    talk.reset()


async def half_read_then_reset(talk: Talk) -> None:
    await talk.reader.read(10)
    talk.reset()


async def drip(talk: Talk) -> None:
    await talk.request()
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000:
        await talk.say(bytes([byte]))
        try:
            async with asyncio.timeout(0.005):
                await talk.gone()
        except TimeoutError:
            continue
        return


def then_silence(data: bytes) -> Callable[[Talk], Awaitable[None]]:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(data)
        await talk.gone()

    return script


def then_reset(data: bytes) -> Callable[[Talk], Awaitable[None]]:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(data)
        talk.reset()

    return script


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDS = {
    "closes without an answer": (once(b""), Trouble.RESET),
    "resets without an answer": (reset, Trouble.RESET),
    "resets within the request": (half_read_then_reset, Trouble.RESET),
    "never answers": (silent, Trouble.READ_TIMEOUT),
    "drips": (drip, Trouble.READ_TIMEOUT),
    "stops in the headers": (then_silence(HEAD), Trouble.READ_TIMEOUT),
    "stops in the body": (then_silence(HEAD + b"Content-Length: 9\r\n\r\nabc"), Trouble.READ_TIMEOUT),
    "sends only interim answers": (then_silence(b"HTTP/1.1 100 Continue\r\n\r\n"), Trouble.READ_TIMEOUT),
    "closes in the status line": (once(b"HTTP/1.1 20"), Trouble.TRUNCATED),
    "closes in the headers": (once(HEAD + b"Content-Le"), Trouble.TRUNCATED),
    "closes in the body": (once(HEAD + b"Content-Length: 9\r\n\r\nabc"), Trouble.TRUNCATED),
    "closes in a chunk": (once(HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\nabc"), Trouble.TRUNCATED),
    "closes before the last chunk": (once(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), Trouble.TRUNCATED),
    "closes after an interim answer": (once(b"HTTP/1.1 100 Continue\r\n\r\n"), Trouble.TRUNCATED),
    "resets in a body without length": (then_reset(HEAD + b"\r\nabc"), Trouble.TRUNCATED),
    "talks garbage": (once(b"\x16\x03\x01\x02\x00\x01\x00\x01"), Trouble.UNREADABLE),
    "talks HTTP/0.9": (once(b"<html>hello</html>"), Trouble.UNREADABLE),
    "talks HTTP/2": (once(b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"), Trouble.UNREADABLE),
    "talks SMTP": (once(b"220 mail.example.com ESMTP\r\n"), Trouble.UNREADABLE),
    "has a status of two digits": (once(b"HTTP/1.1 20 OK\r\n\r\n"), Trouble.UNREADABLE),
    "has a status of 999": (once(b"HTTP/1.1 999 Oh\r\nContent-Length: 0\r\n\r\n"), Trouble.UNREADABLE),
    "has a status of 099": (once(b"HTTP/1.1 099 Oh\r\nContent-Length: 0\r\n\r\n"), Trouble.UNREADABLE),
    "has two lengths": (once(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), Trouble.UNREADABLE),
    "has a length beyond numbers": (
        once(HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n"),
        Trouble.UNREADABLE,
    ),
    "has length and chunks": (
        once(HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Trouble.UNREADABLE,
    ),
    "has a broken chunk": (once(HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), Trouble.UNREADABLE),
    "has NUL in a header": (once(HEAD + b"X-A: a\0b\r\n\r\n"), Trouble.UNREADABLE),
    "switches protocols": (
        once(b"HTTP/1.1 101 No\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello"),
        Trouble.UNREADABLE,
    ),
    "has a header without end": (once(HEAD + b"X-A: " + b"a" * 1_000_000), Trouble.UNREADABLE),
    "has too long a header": (once(HEAD + b"X-A: " + b"a" * 66_000 + b"\r\n\r\n"), Trouble.UNREADABLE),
    "has ten thousand headers": (once(HEAD + b"X-A: a\r\n" * 10_000 + b"\r\n"), Trouble.UNREADABLE),
    "has 201 headers": (once(HEAD + b"X: y\r\n" * 201 + b"\r\n"), Trouble.UNREADABLE),
    "has 17 interim answers": (once(b"HTTP/1.1 103 Early\r\n\r\n" * 17 + OK), Trouble.UNREADABLE),
    "floods with interim answers": (once(b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n" * 10_000), Trouble.UNREADABLE),
}


def patience(expected: Trouble) -> float:
    return SOON if expected is Trouble.READ_TIMEOUT else 30.0


@pytest.mark.parametrize("end", ENDS)
async def test_a_request_that_was_written_and_not_answered_is_never_called_unsent(end: str) -> None:
    script, expected = ENDS[end]
    async with serving(script) as server, client() as sender:
        answer = await sender.send(server.post(), yes, timeout=patience(expected))
        assert trouble(answer) is expected
        assert CERTAINTY[expected] is Certainty.UNKNOWN
        assert server.connections == 1


async def test_what_had_come_of_an_answer_is_kept_as_evidence() -> None:
    script = once(b"HTTP/1.1 502 Bad\r\nX-A: 1\r\nContent-Length: 9\r\n\r\nabc")
    async with serving(script) as server, client() as sender:
        answer = await sender.send(server.post(), yes)
    assert isinstance(answer, http.Failure)
    assert answer.response is not None
    assert (answer.response.status, answer.response.body, answer.response.truncated) == (502, b"abc", True)


@pytest.mark.parametrize("status", ["099", "600", "603", "999"])
async def test_a_status_that_is_none_is_no_evidence(status: str) -> None:
    wire = b"HTTP/1.1 " + status.encode() + b" Oh\r\nContent-Length: 2\r\n\r\nok"
    async with serving(once(wire)) as server, client() as sender:
        answer = await sender.send(server.post(), yes)
    assert isinstance(answer, http.Failure)
    assert (answer.trouble, answer.response) == (Trouble.UNREADABLE, None)


async def test_a_request_that_the_receiver_does_not_read_is_a_write_that_timed_out() -> None:
    async def script(talk: Talk) -> None:
        cast("asyncio.Transport", talk.writer.transport).pause_reading()
        await asyncio.get_running_loop().create_future()

    async with serving(script) as server, client() as sender:
        answer = await sender.send(server.post(body=b"x" * 50_000_000), yes, timeout=SOON * 4)
        assert trouble(answer) is Trouble.WRITE_TIMEOUT


async def test_an_answer_before_the_request_is_read_counts_and_the_connection_does_not() -> None:
    async def script(talk: Talk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        await talk.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.get_running_loop().create_future()

    async with serving(script) as server, client() as sender:
        assert response(await sender.send(server.post(body=b"x" * 50_000_000), yes)).status == 413
        assert response(await sender.send(server.post(body=b"x" * 50_000_000), yes)).status == 413
        assert server.connections == 2


async def test_no_connection_is_told_from_a_lost_one() -> None:
    async with serving(answering(OK)) as server:
        pass
    async with client() as sender:
        assert trouble(await sender.send(server.post(), yes)) is Trouble.NO_CONNECTION


async def test_a_keep_alive_connection_that_dies_on_our_write_is_ambiguous_and_not_repeated() -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(OK)
        await talk.request()
        talk.reset()

    async with serving(script) as server, client() as sender:
        assert response(await sender.send(server.post(), yes)).status == 200
        assert trouble(await sender.send(server.post(), yes)) is Trouble.RESET
        assert (server.connections, len(server.requests)) == (1, 2)


# -- bounds


BODIES = {
    "a length of 10 GB": b"Content-Length: 10000000000\r\n\r\n",
    "no length": b"\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("kind", BODIES)
async def test_an_endless_body_is_cut_and_its_status_counts(kind: str) -> None:
    piece = b"x" * 10_000
    wire = b"2710\r\n" + piece + b"\r\n" if kind == "chunks" else piece

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(HEAD + BODIES[kind])
        while True:
            await talk.say(wire)

    async with serving(script) as server, client() as sender:
        got = response(await sender.send(server.post(), yes))
        assert (got.status, len(got.body), got.truncated) == (200, 65_536, True)
        await server.closed.get()


async def test_chunk_extensions_without_end_are_cut() -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;")
        while True:
            await talk.say(b"a" * 10_000)

    async with serving(script) as server, client() as sender:
        got = response(await sender.send(server.post(), yes))
        assert (got.status, got.truncated) == (200, True)


async def test_a_body_somewhat_over_the_cap_is_read_to_its_end_and_the_connection_kept() -> None:
    async with (
        serving(answering(HEAD + b"Content-Length: 500000\r\n\r\n" + b"x" * 500_000)) as server,
        client() as sender,
    ):
        for _ in range(3):
            got = response(await sender.send(server.post(), yes))
            assert (len(got.body), got.truncated) == (65_536, True)
        assert server.connections == 1


async def test_a_body_of_exactly_the_cap_is_whole() -> None:
    async with (
        serving(answering(HEAD + b"Content-Length: 65536\r\n\r\n" + b"x" * 65_536)) as server,
        client() as sender,
    ):
        got = response(await sender.send(server.post(), yes))
        assert (len(got.body), got.truncated) == (65_536, False)


async def test_interim_answers_are_passed_over() -> None:
    wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK
    async with serving(answering(wire)) as server, client() as sender:
        assert response(await sender.send(server.post(), yes)).headers == (("content-length", "2"),)


async def test_as_many_headers_and_interim_answers_as_are_allowed_do_no_harm() -> None:
    wire = b"HTTP/1.1 103 Early\r\n\r\n" * 16 + HEAD + b"X: y\r\n" * 199 + b"Content-Length: 0\r\n\r\n"
    async with serving(answering(wire)) as server, client() as sender:
        assert len(response(await sender.send(server.post(), yes)).headers) == 200


async def test_what_claims_to_be_packed_is_not_unpacked() -> None:
    wire = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08"
    async with serving(answering(wire)) as server, client() as sender:
        assert response(await sender.send(server.post(), yes)).body == b"\x1f\x8b\x08"
        assert b"Accept-Encoding: identity\r\n" in server.requests[0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_nothing_more(status: int) -> None:
    async with serving(answering(OK)) as elsewhere:
        to = f"http://127.0.0.1:{elsewhere.port}/".encode()
        wire = b"HTTP/1.1 %d Go\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, to)
        async with serving(answering(wire)) as server, client() as sender:
            assert response(await sender.send(server.post(), yes)).status == status
        assert elsewhere.connections == 0


async def test_a_body_without_length_ends_with_the_connection() -> None:
    async with serving(once(HEAD + b"\r\nhello")) as server, client() as sender:
        assert response(await sender.send(server.post(), yes)).body == b"hello"
        assert response(await sender.send(server.post(), yes)).body == b"hello"
        assert server.connections == 2


def test_every_end_is_the_same_on_uvloop() -> None:
    async def one(end: str) -> None:
        script, expected = ENDS[end]
        async with serving(script) as server, client() as sender:
            assert trouble(await sender.send(server.post(), yes, timeout=patience(expected))) is expected, end

    async def all_of_them() -> None:
        for end in ENDS:
            await one(end)
        await test_a_request_that_the_receiver_does_not_read_is_a_write_that_timed_out()
        await test_an_endless_body_is_cut_and_its_status_counts("no length")
        await test_a_body_without_length_ends_with_the_connection()
        async with serving(once(OK)) as server, client() as sender:
            for number in range(1, 4):
                assert response(await sender.send(server.post(), yes)).status == 200
                assert await server.closed.get() == number
                await settle()

    uvloop.run(all_of_them())
