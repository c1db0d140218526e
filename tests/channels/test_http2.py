"""HTTP/2 beside HTTP/1.1: what is written and when, how exchanges share a connection, and what is left behind."""

import asyncio

import pytest
import uvloop
from h2.events import StreamReset
from h2.settings import SettingCodes

from campana.channels import http, http_dialer
from campana.channels.http2_connection import Http2Connection
from campana.domain.ambiguity import Trouble
from campana.domain.outcomes import Withheld
from tests.channels import hostile
from tests.channels.authority import Authority
from tests.channels.hostile import OK, SOON, response, settle, trouble, yes
from tests.channels.hostile2 import HOST, Peer, answering, frame, post, sending, serving


def connections(sender: http.Client) -> list[Http2Connection]:
    return [shared for host in sender._hosts.values() for shared in host.shared]


async def test_an_answer_comes_back_as_it_was_and_the_request_is_exactly_ours(authority: Authority) -> None:
    asked = []

    async def script(peer: Peer) -> None:
        asked.append(await peer.request())
        extra = ("x-a", "1"), ("x-a", "2"), ("content-length", "2")
        await peer.answer(asked[0].stream, b"ok", *extra, status="201")
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        request = http.Request(
            method="PUT", url=server.url("/a?b=c", HOST), headers=(("X-B", "é"), ("Cookie", " a=b ")), body=b"body"
        )
        got = response(await sender.send(request, yes))
    assert got == http.Response(
        status=201, headers=(("x-a", "1"), ("x-a", "2"), ("content-length", "2")), body=b"ok", truncated=False
    )
    assert asked[0].body == b"body"
    assert asked[0].headers == {
        ":method": "PUT",
        ":scheme": "https",
        ":authority": f"{HOST}:{server.port}",
        ":path": "/a?b=c",
        "accept-encoding": "identity",
        "x-b": "é",
        "cookie": "a=b",
        "content-length": "4",
    }


async def test_a_request_without_a_body_has_no_length(authority: Authority) -> None:
    asked = []

    async def script(peer: Peer) -> None:
        asked.append(await peer.request())
        await peer.answer(asked[0].stream, b"")
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        got = response(await sender.send(http.Request(method="GET", url=server.url("/", HOST)), yes))
    assert (got.status, got.body, got.headers) == (200, b"", ())
    assert "content-length" not in asked[0].headers


@pytest.mark.parametrize("protocols", [["http/1.1"], ["spdy/3", "http/1.1"], []])
async def test_a_receiver_that_does_not_offer_it_is_spoken_to_in_http_1(authority: Authority, protocols: list[str]) -> None:
    context = authority.server(HOST)
    if protocols:
        context.set_alpn_protocols(protocols)
    async with hostile.serving(hostile.answering(OK), context) as server, sending(authority) as sender:
        answers = await asyncio.gather(*[sender.send(post(server), yes) for _ in range(5)])
        assert {response(answer).status for answer in answers} == {200}
        assert server.requests[0].startswith(b"POST / HTTP/1.1\r\n")
        # One finds out, and then each has its own.
        assert server.connections == 5


async def test_the_product_offers_both_and_prefers_the_newer(authority: Authority) -> None:
    async with serving(answering, authority, protocols=["h2", "http/1.1"]) as server:
        context = http_dialer.tls()
        context.load_verify_locations(cadata=authority.root_pem())

        async def resolver(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with hostile.client(context=context, resolver=resolver) as sender:
            assert response(await sender.send(post(server), yes)).status == 200
        assert server.connections == 1


async def test_without_tls_nothing_is_upgraded() -> None:
    async with hostile.serving(hostile.answering(OK)) as server, hostile.client() as sender:
        await sender.send(server.post(), yes)
    assert b"pgrade" not in server.requests[0]
    assert b"HTTP2" not in server.requests[0].upper()


# -- sharing


async def test_many_exchanges_share_one_connection_also_from_the_start(authority: Authority) -> None:
    gate = asyncio.Event()

    async def script(peer: Peer) -> None:
        asked = [await peer.request() for _ in range(20)]
        gate.set()
        for one in reversed(asked):
            await peer.answer(one.stream, one.body)
        await answering(peer)

    async with serving(script, authority) as server, sending(authority) as sender:
        tasks = [asyncio.ensure_future(sender.send(post(server, body=b"%d" % number), yes)) for number in range(20)]
        assert [response(await task).body for task in tasks] == [b"%d" % number for number in range(20)]
        assert gate.is_set()
        assert response(await sender.send(post(server), yes)).status == 200
        assert server.connections == 1
        assert [shared.places for shared in connections(sender)] == [0]


async def test_no_connection_carries_more_than_its_peer_allows_and_no_host_more_than_its_slots(authority: Authority) -> None:
    gate, most, all_of_them = asyncio.Semaphore(0), [], [0]

    async def script(peer: Peer) -> None:
        waiting: set[asyncio.Task[None]] = set()

        async def reply(stream: int) -> None:
            await gate.acquire()
            await peer.answer(stream)
            all_of_them[0] -= 1

        while True:
            asked = await peer.request()
            all_of_them[0] += 1
            waiting = {task for task in waiting if not task.done()}
            waiting.add(asyncio.ensure_future(reply(asked.stream)))
            most.append((len(waiting), all_of_them[0]))

    async with serving(script, authority, max_concurrent_streams=2) as server, sending(authority, per_host=6) as sender:
        tasks = [asyncio.ensure_future(sender.send(post(server), yes)) for _ in range(30)]
        while len(most) < 6:
            await settle()
        for _ in tasks:
            gate.release()
        assert {response(await task).status for task in tasks} == {200}
        assert server.connections == 3
        assert max(together for together, _ in most) == 2
        assert max(together for _, together in most) == 6
        assert sender._pool.idle == 3


async def test_a_peer_that_takes_no_requests_has_had_none(authority: Authority) -> None:
    async with serving(answering, authority, max_concurrent_streams=0) as server, sending(authority) as sender:
        answers = await asyncio.gather(*[sender.send(post(server), yes) for _ in range(3)])
        assert {trouble(answer) for answer in answers} == {Trouble.NO_CONNECTION}
        assert server.requests == []
        assert not sender._hosts


async def test_a_peer_that_takes_fewer_from_now_on_is_heeded(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        first = await peer.request()
        peer.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 1})
        await peer.answer(first.stream)
        await answering(peer)

    async with serving(script, authority) as server, sending(authority) as sender:
        await sender.send(post(server), yes)
        await settle()
        await asyncio.gather(*[sender.send(post(server), yes) for _ in range(2)])
        assert server.connections == 2


async def test_one_failed_handshake_is_everybodys_who_waited_for_it() -> None:
    async def plain(talk: hostile.Talk) -> None:
        await talk.say(b"HTTP/1.1 400 This is no TLS\r\n\r\n")
        await talk.gone()

    async with hostile.serving(plain) as server, hostile.client() as sender:
        server.scheme = "https"
        answers = await asyncio.gather(*[sender.send(server.post(), yes) for _ in range(5)])
        assert {trouble(answer) for answer in answers} == {Trouble.TLS}
        assert server.connections == 1
        assert not sender._hosts


# -- the permit


async def test_the_permit_is_asked_when_the_connection_stands_and_before_a_byte_is_written(authority: Authority) -> None:
    begun: list[int] = []
    seen: list[tuple[int, int]] = []

    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            begun.extend(peer.asked)
            while not peer.whole.empty():
                await peer.answer(peer.whole.get_nowait().stream)

    async def permit() -> bool:
        for _ in range(3):
            await settle()
        seen.append((server.connections, len(begun)))
        return True

    async with serving(script, authority) as server, sending(authority) as sender:
        assert response(await sender.send(post(server), permit)).status == 200
    assert seen == [(1, 0)]
    assert begun


async def test_nothing_leaves_where_the_permit_says_no_and_the_connection_is_kept(authority: Authority) -> None:
    async def no() -> bool:
        return False

    async with serving(answering, authority) as server, sending(authority) as sender:
        assert await sender.send(post(server), no) == Withheld()
        assert await sender.send(post(server), no) == Withheld()
        assert server.requests == []
        await sender.send(post(server), yes)
        assert (server.connections, len(server.requests)) == (1, 1)


@pytest.mark.parametrize("farewell", ["reset", "goaway", "both"])
async def test_a_connection_that_ends_while_the_permit_is_asked_has_sent_nothing(authority: Authority, farewell: str) -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await asked.wait()
        if farewell != "reset":
            await peer.raw(frame(7, 0, 0, bytes(8)))
        if farewell != "goaway":
            peer.reset()
        await peer.gone()

    async def permit() -> bool:
        asked.set()
        while any(shared.open for shared in connections(sender)):
            await settle()
        return True

    async with serving(script, authority) as server, sending(authority) as sender:
        assert trouble(await sender.send(post(server), permit)) is Trouble.NO_CONNECTION
        assert server.requests == []


# -- what is kept


async def test_a_deadline_resets_its_stream_alone_and_the_connection_is_kept(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        streams = {one.headers[":path"]: one.stream for one in (await peer.request(), await peer.request())}
        assert (await peer.heard(StreamReset)).stream_id == streams["/late"]
        await peer.answer(streams["/"])
        await answering(peer)

    async with serving(script, authority) as server, sending(authority) as sender:
        late = asyncio.ensure_future(sender.send(post(server, "/late"), yes, timeout=SOON * 2))
        other = asyncio.ensure_future(sender.send(post(server), yes))
        assert trouble(await late) is Trouble.READ_TIMEOUT
        assert response(await other).status == 200
        assert response(await sender.send(post(server), yes)).status == 200
        assert server.connections == 1


async def test_a_connection_on_which_nothing_is_heard_any_more_gets_no_other_request(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        if peer.number == 1:
            await peer.request()
            await asyncio.get_running_loop().create_future()
        await answering(peer)

    async with serving(script, authority) as server, sending(authority, keepalive=SOON) as sender:
        assert trouble(await sender.send(post(server), yes, timeout=SOON)) is Trouble.READ_TIMEOUT
        assert response(await sender.send(post(server), yes)).status == 200
        assert server.connections == 2
        while sender._hosts:
            await settle()


async def test_cancelling_a_send_resets_its_stream_and_no_other(authority: Authority) -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        streams = {one.headers[":path"]: one.stream for one in (await peer.request(), await peer.request())}
        asked.set()
        assert (await peer.heard(StreamReset)).stream_id == streams["/first"]
        await peer.answer(streams["/second"])
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        first = asyncio.ensure_future(sender.send(post(server, "/first"), yes))
        second = asyncio.ensure_future(sender.send(post(server, "/second"), yes))
        await asked.wait()
        first.cancel()
        assert response(await second).status == 200
        assert first.cancelled()
        assert [shared.places for shared in connections(sender)] == [0]


async def test_cancelling_everything_at_any_moment_leaks_no_place(authority: Authority) -> None:
    async with serving(answering, authority) as server, sending(authority, per_host=3) as sender:
        for rounds in range(30):
            tasks = [asyncio.ensure_future(sender.send(post(server), yes)) for _ in range(9)]
            for _ in range(rounds):
                await asyncio.wait([tasks[0]], timeout=0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        host = next(iter(sender._hosts.values()))
        assert (host.free, len(host.waiters)) == (3, 0)
        assert sender._pool.idle == len(host.shared)
        assert {shared.places for shared in host.shared} <= {0}


async def test_an_idle_connection_is_closed_by_the_client(authority: Authority) -> None:
    async with serving(answering, authority) as server, sending(authority, keepalive=0.05) as sender:
        await sender.send(post(server), yes)
        assert await server.closed.get() == 1
        assert not sender._hosts
        assert sender._pool.idle == 0


async def test_no_more_connections_are_kept_idle_than_allowed(authority: Authority) -> None:
    async with serving(answering, authority) as server, sending(authority, max_idle=0) as sender:
        for number in (1, 2):
            assert response(await sender.send(post(server), yes)).status == 200
            assert await server.closed.get() == number
        assert not sender._hosts


async def test_a_connection_that_the_receiver_left_while_idle_is_not_used(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        await peer.answer(asked.stream)
        await peer.raw(frame(7, 0, 0, asked.stream.to_bytes(4) + bytes(4)))
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        for number in range(1, 4):
            assert response(await sender.send(post(server), yes)).status == 200
            assert await server.closed.get() == number
        assert server.connections == 3


async def test_a_peer_that_goes_may_end_what_it_has_begun_and_gets_nothing_new(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        if peer.number > 1:
            await answering(peer)
        first = await peer.request()
        await peer.raw(frame(7, 0, 0, (2**31 - 1).to_bytes(4) + bytes(4)))
        warned.set()
        await going.wait()
        await peer.head(first.stream)
        await peer.raw(frame(7, 0, 0, first.stream.to_bytes(4) + bytes(4)))
        await peer.data(first.stream, b"whole", end=True)
        await peer.gone()

    warned, going = asyncio.Event(), asyncio.Event()
    async with serving(script, authority) as server, sending(authority) as sender:
        first = asyncio.ensure_future(sender.send(post(server), yes))
        await warned.wait()
        while connections(sender)[0].open:
            await settle()
        assert response(await sender.send(post(server), yes)).status == 200
        going.set()
        assert response(await first).body == b"whole"
        assert server.connections == 2
        assert await server.closed.get() == 1


async def test_pings_and_settings_are_answered(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        peer.h2.ping(b"12345678")
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1_000})
        await peer.flush()
        while "PingAckReceived" not in {type(event).__name__ for event in peer.events}:
            await peer.read()
        await peer.answer(asked.stream)
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        assert response(await sender.send(post(server), yes)).status == 200


def test_all_of_it_is_the_same_on_uvloop(authority: Authority) -> None:
    async def all_of_it() -> None:
        await test_many_exchanges_share_one_connection_also_from_the_start(authority)
        await test_a_deadline_resets_its_stream_alone_and_the_connection_is_kept(authority)
        await test_a_peer_that_goes_may_end_what_it_has_begun_and_gets_nothing_new(authority)
        await test_a_receiver_that_does_not_offer_it_is_spoken_to_in_http_1(authority, ["http/1.1"])

    uvloop.run(all_of_it())
