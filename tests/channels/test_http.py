"""The HTTP client: what it writes and when, which connections it uses again, and what it leaves behind."""

import asyncio

import pytest

from campana.channels import http, netguard
from campana.domain.ambiguity import Trouble
from campana.domain.outcomes import Withheld
from tests.channels.hostile import (
    LOOPBACK,
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


async def test_an_answer_comes_back_as_it_was_and_the_request_is_exactly_ours() -> None:
    wire = b"HTTP/1.1 201 Made\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 2\r\n\r\nok"
    async with serving(answering(wire)) as server, client() as sender:
        request = http.Request(method="PUT", url=server.url("/a?b=c"), headers=(("X-B", "é"),), body=b"body")
        got = response(await sender.send(request, yes))
    assert got == http.Response(
        status=201, headers=(("x-a", "1"), ("x-a", "2"), ("content-length", "2")), body=b"ok", truncated=False
    )
    host = f"127.0.0.1:{server.port}".encode()
    assert server.requests == [
        b"PUT /a?b=c HTTP/1.1\r\nHost: " + host + b"\r\nAccept-Encoding: identity\r\nX-B: \xe9\r\nContent-Length: 4\r\n\r\nbody"
    ]


async def test_a_request_without_a_body_has_no_length() -> None:
    async with serving(answering(OK)) as server, client() as sender:
        await sender.send(http.Request(method="GET", url=server.url()), yes)
    assert b"ontent-" not in server.requests[0]


async def test_a_connection_is_used_again() -> None:
    async with serving(answering(OK)) as server, client() as sender:
        for _ in range(5):
            assert response(await sender.send(server.post(), yes)).status == 200
        assert server.connections == 1


async def test_connections_are_not_shared_between_origins() -> None:
    async with serving(answering(OK)) as one, serving(answering(OK)) as other, client() as sender:
        for server in (one, other, one, other):
            await sender.send(server.post(), yes)
        assert (one.connections, other.connections) == (1, 1)


@pytest.mark.parametrize(
    "header",
    [
        ("X-A", "a\r\nb: c"),
        ("X-A", "a\nb"),
        ("X-A", "a\0"),
        ("X-A", "\u2028"),
        ("X A", "a"),
        ("X-A:", "a"),
        ("", "a"),
        ("X-A\r\n", "a"),
        ("Host", "other.example.com"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "upgrade"),
        ("Expect", "100-continue"),
        ("Accept-Encoding", "gzip"),
    ],
)
async def test_a_header_that_could_say_more_than_itself_is_refused_before_anything_is_opened(
    header: tuple[str, str],
) -> None:
    async with serving(answering(OK)) as server, client() as sender:
        request = http.Request(method="POST", url=server.url(), headers=(header,), body=b"")
        with pytest.raises(http.UnsendableError):
            await sender.send(request, yes)
        assert server.connections == 0


@pytest.mark.parametrize(("method", "target"), [("PO ST", "/"), ("POST\r\n", "/"), ("POST", "x"), ("POST", "/a b")])
async def test_a_request_line_that_could_say_more_than_itself_is_refused(method: str, target: str) -> None:
    url = netguard.Url(scheme="http", host="127.0.0.1", port=80, target=target)
    async with client() as sender:
        with pytest.raises(ValueError, match="request line"):
            await sender.send(http.Request(method=method, url=url), yes)


# -- the permit


async def test_the_permit_is_asked_when_the_connection_stands_and_before_a_byte_is_written() -> None:
    accepted, seen = asyncio.Event(), []

    async def script(talk: Talk) -> None:
        accepted.set()
        await talk.request()
        await talk.say(OK)

    async def permit() -> bool:
        await accepted.wait()
        seen.append(len(server.requests))
        return True

    async with serving(script) as server, client() as sender:
        assert response(await sender.send(server.post(), permit)).status == 200
    assert seen == [0]


async def test_nothing_leaves_where_the_permit_says_no_and_the_connection_is_kept() -> None:
    async def no() -> bool:
        return False

    async with serving(answering(OK)) as server, client() as sender:
        assert await sender.send(server.post(), no) == Withheld()
        assert await sender.send(server.post(), no) == Withheld()
        assert server.requests == []
        await sender.send(server.post(), yes)
        assert (server.connections, len(server.requests)) == (1, 1)


async def test_a_permit_that_raises_is_heard_and_gives_its_slot_back() -> None:
    async def broken() -> bool:
        raise LookupError("the database is away")

    async with serving(answering(OK)) as server, client(per_host=1) as sender:
        with pytest.raises(LookupError):
            await sender.send(server.post(), broken)
        assert response(await sender.send(server.post(), yes)).status == 200
        assert server.connections == 1


async def test_a_permit_that_never_answers_is_ended_by_the_deadline_and_nothing_was_sent() -> None:
    async def hanging() -> bool:
        await asyncio.get_running_loop().create_future()
        return True

    async with serving(answering(OK)) as server, client() as sender:
        assert trouble(await sender.send(server.post(), hanging, timeout=SOON)) is Trouble.CONNECT_TIMEOUT
        assert server.requests == []


async def test_a_connection_that_dies_while_the_permit_is_asked_has_sent_nothing() -> None:
    async def script(talk: Talk) -> None:
        talk.reset()

    async def permit() -> bool:
        await server.closed.get()
        await settle()
        return True

    async with serving(script) as server, client() as sender:
        assert trouble(await sender.send(server.post(), permit)) is Trouble.NO_CONNECTION


# -- connections that must not be used again


UNUSABLE = {
    "a body after 204": b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "garbage after the end": OK + b"garbage",
    "a second answer": OK + OK,
    "connection: close": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no patience": b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_a_connection_that_can_not_be_trusted_is_not_used_again(kind: str) -> None:
    async with serving(answering(UNUSABLE[kind])) as server, client() as sender:
        for _ in range(2):
            assert response(await sender.send(server.post(), yes)).status in (200, 204)
        assert server.connections == 2


async def test_a_connection_that_the_receiver_closed_while_idle_is_not_used() -> None:
    async with serving(once(OK)) as server, client() as sender:
        for number in range(1, 6):
            assert response(await sender.send(server.post(), yes)).status == 200
            assert await server.closed.get() == number
            await settle()
        assert server.connections == 5


async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    spoken = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(OK)
        await talk.say(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await talk.gone()
        spoken.set()

    async with serving(script) as server, client() as sender:
        await sender.send(server.post(), yes)
        await spoken.wait()
        assert response(await sender.send(server.post(), yes)).status == 200
        assert server.connections == 2


async def test_an_idle_connection_is_closed_by_the_client() -> None:
    async with serving(answering(OK)) as server, client(keepalive=0.05) as sender:
        await sender.send(server.post(), yes)
        assert await server.closed.get() == 1
        assert not sender._hosts


# -- many at once


async def test_at_most_so_many_requests_are_under_way_to_a_host_and_the_others_wait_in_turn() -> None:
    gate, order = asyncio.Semaphore(0), []

    async def script(talk: Talk) -> None:
        while True:
            raw = await talk.request()
            order.append(int(raw.split(b" ")[1][1:]))
            await gate.acquire()
            await talk.say(OK)

    async with serving(script) as server, client(per_host=2) as sender, asyncio.TaskGroup() as group:
        tasks = [group.create_task(sender.send(server.post(f"/{number}"), yes)) for number in range(10)]
        for _ in tasks:
            gate.release()
        await asyncio.gather(*tasks)
        assert server.connections == 2
        assert sorted(order) == list(range(10))
        assert all(abs(place - number) <= 2 for place, number in enumerate(order))


async def test_a_wait_for_a_slot_counts_towards_the_deadline_and_sends_nothing() -> None:
    async with serving(silent) as server, client(per_host=1) as sender:
        first = asyncio.ensure_future(sender.send(server.post("/first"), yes, timeout=SOON * 3))
        await settle()
        second = await sender.send(server.post("/second"), yes, timeout=SOON)
        assert trouble(second) is Trouble.CONNECT_TIMEOUT
        assert trouble(await first) is Trouble.READ_TIMEOUT
        assert [raw.split(b" ")[1] for raw in server.requests] == [b"/first"]
        assert not sender._hosts


async def test_cancelling_a_send_closes_its_connection_and_hands_its_slot_on() -> None:
    asked = asyncio.Event()

    async def script(talk: Talk) -> None:
        raw = await talk.request()
        if b"/first" in raw:
            asked.set()
            await talk.gone()
        else:
            await talk.say(OK)
            await talk.gone()

    async with serving(script) as server, client(per_host=1) as sender:
        first = asyncio.ensure_future(sender.send(server.post("/first"), yes))
        await asked.wait()
        waiting = [asyncio.ensure_future(sender.send(server.post("/next"), yes)) for _ in range(3)]
        await settle()
        waiting[0].cancel()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await server.closed.get() == 1
        assert response(await waiting[1]).status == 200
        waiting[2].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert sender._pool.idle == 0


async def test_a_slot_that_comes_to_one_who_leaves_in_the_same_moment_goes_to_the_next() -> None:
    loop = asyncio.get_running_loop()
    gate = loop.create_future()

    async def gated() -> bool:
        await gate
        # From here to the end of this send there is no await, so the cancellation meets a slot that has just come.
        loop.call_soon(leaving.cancel)
        return False

    async with serving(answering(OK)) as server, client(per_host=1) as sender:
        first = asyncio.ensure_future(sender.send(server.post("/first"), gated))
        await settle()
        leaving = asyncio.ensure_future(sender.send(server.post("/leaving"), yes))
        staying = asyncio.ensure_future(sender.send(server.post("/staying"), yes))
        await settle()
        gate.set_result(None)
        await asyncio.gather(first, leaving, return_exceptions=True)
        assert leaving.cancelled()
        assert response(await asyncio.wait_for(staying, 5)).status == 200
        assert next(iter(sender._hosts.values())).free == 1


async def test_cancelling_everything_at_any_moment_leaks_no_slot() -> None:
    async with serving(answering(OK)) as server, client(per_host=3) as sender:
        for rounds in range(30):
            tasks = [asyncio.ensure_future(sender.send(server.post(), yes)) for _ in range(9)]
            for _ in range(rounds):
                await asyncio.wait([tasks[0]], timeout=0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        host = next(iter(sender._hosts.values()))
        assert (host.free, len(host.waiters)) == (3, 0)
        assert sender._pool.idle == len(host.idle) <= 3


async def test_a_closed_client_sends_nothing_and_keeps_nothing() -> None:
    async with serving(answering(OK)) as server:
        async with client() as sender:
            await sender.send(server.post(), yes)
        with pytest.raises(RuntimeError, match="closed"):
            await sender.send(server.post(), yes)
        assert await server.closed.get() == 1


async def test_memory_does_not_grow_with_the_number_of_hosts() -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    async with client(resolver=nowhere) as sender:
        for number in range(50):
            url = netguard.Url(scheme="http", host=f"h{number}.example.com", port=80, target="/")
            assert trouble(await sender.send(http.Request(method="POST", url=url), yes)) is Trouble.UNRESOLVED
        assert not sender._hosts
        assert not sender._names._asking


async def test_no_more_connections_are_kept_idle_than_allowed() -> None:
    async with serving(answering(OK)) as server, client(max_idle=2) as sender:
        await asyncio.gather(*[sender.send(server.post(), yes) for _ in range(8)])
        assert sender._pool.idle == 2


async def test_a_client_has_the_loopback_rules_only_if_it_was_given_them() -> None:
    async with serving(answering(OK)) as server, client(netguard.Rules()) as sender:
        assert trouble(await sender.send(server.post(), yes)) is Trouble.REFUSED_ADDRESS
        assert server.connections == 0
    assert netguard.refusal("127.0.0.1", server.port, LOOPBACK) is None
