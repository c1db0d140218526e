"""How exchanges over HTTP/2 end with servers that behave badly: told apart, bounded, and each alone where that can be."""

import asyncio
import contextlib

import pytest
import uvloop
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes

from campana.channels import http
from campana.domain.ambiguity import CERTAINTY, Certainty, Trouble
from tests.channels.authority import Authority
from tests.channels.ends2 import END_HEADERS, END_STREAM, ENDS, OURS, Say, block, data, goaway, head, rst, saying
from tests.channels.hostile import SOON, response, settle, trouble, yes
from tests.channels.hostile2 import Peer, Script, answering, frame, post, sending, serving


def patience(expected: Trouble) -> float:
    return SOON if expected is Trouble.READ_TIMEOUT else 30.0


@pytest.mark.parametrize("end", ENDS)
async def test_only_what_was_refused_before_anything_came_is_called_unsent(end: str, authority: Authority) -> None:
    script, expected = ENDS[end]
    async with serving(script, authority) as server, sending(authority) as sender:
        answer = await sender.send(post(server), yes, timeout=patience(expected))
        assert trouble(answer) is expected, answer
        assert CERTAINTY[expected] is (Certainty.NOT_SENT if expected is Trouble.NOT_TAKEN else Certainty.UNKNOWN)
        assert server.connections == 1


async def garbage(peer: Peer) -> None:
    await peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await peer.gone()


async def headers_first(peer: Peer) -> None:
    await peer.raw(frame(1, 5, 1, block((":status", "200"))))
    await peer.gone()


async def farewell_first(peer: Peer) -> None:
    await peer.raw(goaway(0, 1))
    await peer.gone()


async def nothing(peer: Peer) -> None:
    await peer.reader.read(65_536)


async def wordless(peer: Peer) -> None:
    while await peer.reader.read(65_536):
        pass


@pytest.mark.parametrize("script", [garbage, headers_first, farewell_first, nothing, wordless])
async def test_a_peer_that_agrees_on_http_2_and_does_not_speak_it_was_sent_nothing(script: Script, authority: Authority) -> None:
    async with serving(script, authority, mute=True) as server, sending(authority) as sender:
        got = trouble(await sender.send(post(server), yes, connect_timeout=SOON))
        assert got is (Trouble.CONNECT_TIMEOUT if script is wordless else Trouble.NO_CONNECTION)
        assert await server.closed.get() == 1
        assert not sender._hosts


# -- neighbours


SAID: dict[str, Say] = {
    "refuses the stream": saying(rst(7)),
    "resets in the body": saying(head(), data(b"abc"), rst(2)),
    "sends less than it declared": saying(head(("content-length", "9")), data(b"abc", END_STREAM)),
    "declares a body and sends none": saying(head(("content-length", "9"), flags=END_HEADERS | END_STREAM)),
    "sends more than it declared": saying(head(("content-length", "2")), data(b"abc", END_STREAM)),
    "declares two lengths": saying(head(("content-length", "2"), ("content-length", "3")), data(b"abc", END_STREAM)),
    "has the status 'abc'": saying(head(status="abc")),
    "has no status": saying(frame(1, END_HEADERS, OURS, block(("x", "y")))),
    "has HTTP/1.1's connection": saying(head(("connection", "close"))),
    "has NUL in a header": saying(head(("x", "a\0b"))),
    "has 201 headers": saying(head(*[("x", "y")] * 200)),
    "goes on with interim answers": saying(*[head(status="103")] * 50),
    "has 17 interim answers": saying(*[head(status="103")] * 17),
    "never answers": saying(),
    "stops in the body": saying(head(), data(b"abc")),
}


@pytest.mark.parametrize("end", SAID)
async def test_what_becomes_of_one_exchange_is_nothing_to_its_neighbours(end: str, authority: Authority) -> None:
    expected = ENDS[end][1] if end in ENDS else Trouble.UNREADABLE
    say = SAID[end]

    async def script(peer: Peer) -> None:
        asked = {one.headers[":path"]: one.stream for one in (await peer.request(), await peer.request())}
        await peer.head(asked["/good"])
        await say(peer, asked["/bad"])
        while not bad_ended.is_set():
            await settle()
        await peer.data(asked["/good"], b"whole", end=True)
        await answering(peer)

    bad_ended = asyncio.Event()
    async with serving(script, authority) as server, sending(authority) as sender:
        good = asyncio.ensure_future(sender.send(post(server, "/good"), yes))
        assert trouble(await sender.send(post(server, "/bad"), yes, timeout=patience(expected))) is expected
        bad_ended.set()
        assert response(await good).body == b"whole"
        assert response(await sender.send(post(server), yes)).status == 200
        assert server.connections == 1


# -- bounds


async def test_an_endless_body_is_cut_its_status_counts_and_the_connection_is_kept(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        await peer.head(asked.stream, ("content-length", "10000000000"))
        with contextlib.suppress(StreamClosedError):
            while True:
                await peer.data(asked.stream, bytes(10_000))
        await answering(peer)

    async with serving(script, authority) as server, sending(authority) as sender:
        got = response(await sender.send(post(server), yes))
        assert (got.status, len(got.body), got.truncated) == (200, 65_536, True)
        assert response(await sender.send(post(server), yes)).status == 200
        assert server.connections == 1


@pytest.mark.parametrize("piece", [b"", b"x"])
async def test_a_body_in_the_smallest_pieces_is_cut(piece: bytes, authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        await saying(head(), data(piece) * 20_000)(peer, asked.stream)
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        got = response(await sender.send(post(server), yes))
        assert (got.status, got.truncated) == (200, True)
        assert len(got.body) <= 2_049


async def test_a_body_somewhat_over_the_cap_is_read_to_its_end(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        while True:
            asked = await peer.request()
            await peer.answer(asked.stream, b"x" * 500_000, ("content-length", "500000"))

    async with serving(script, authority) as server, sending(authority) as sender:
        for _ in range(5):
            got = response(await sender.send(post(server), yes))
            assert (len(got.body), got.truncated) == (65_536, True)
        assert server.connections == 1


async def test_answers_without_a_body_are_whole_whatever_they_declare(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        for status in ("204", "304"):
            asked = await peer.request()
            await peer.head(asked.stream, ("content-length", "9"), status=status, end=True)
        asked = await peer.request()
        await peer.head(asked.stream, status="204")
        await peer.data(asked.stream, b"a body all the same", end=True)
        await answering(peer)

    async with serving(script, authority) as server, sending(authority) as sender:
        answers = [response(await sender.send(post(server), yes)) for _ in range(4)]
    assert [(answer.status, answer.body) for answer in answers] == [(204, b""), (304, b""), (204, b""), (200, b"ok")]


async def test_interim_answers_and_trailers_are_passed_over(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        last = frame(1, END_HEADERS | END_STREAM, OURS, block(("x-sum", "1")))
        await saying(head(status="100"), head(("x", "y"), status="103"), head(("a", "b")), data(b"ok"), last)(peer, asked.stream)
        await answering(peer)

    async with serving(script, authority) as server, sending(authority) as sender:
        got = response(await sender.send(post(server), yes))
        assert (got.headers, got.body) == ((("a", "b"),), b"ok")
        assert response(await sender.send(post(server), yes)).status == 200
        assert server.connections == 1


async def test_what_claims_to_be_packed_is_not_unpacked(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        await peer.answer(asked.stream, b"\x1f\x8b\x08", ("content-encoding", "gzip"))
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        assert response(await sender.send(post(server), yes)).body == b"\x1f\x8b\x08"


# -- what we send


BODY = bytes(range(256)) * 1_000


@pytest.mark.parametrize("window", [1_000, 65_535, 1_000_000])
async def test_a_large_body_is_sent_within_the_peers_windows(window: int, authority: Authority) -> None:
    async with serving(answering, authority, initial_window_size=window) as server, sending(authority) as sender:
        assert response(await sender.send(post(server, body=BODY), yes)).status == 200
        assert server.requests == [BODY]


async def test_a_body_that_the_peer_never_has_room_for_is_a_write_that_timed_out(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        peer.generous = False
        await answering(peer)

    async with serving(script, authority, initial_window_size=0) as server, sending(authority) as sender:
        assert trouble(await sender.send(post(server), yes, timeout=SOON)) is Trouble.WRITE_TIMEOUT
        while not next(iter(sender._hosts.values())).shared[0].reusable:
            await settle()
        # Its connection is alive, and what needs no window goes through.
        got = await sender.send(http.Request(method="GET", url=post(server).url), yes)
        assert response(got).status == 200
        assert server.connections == 1


async def test_windows_that_shrink_below_nothing_hold_a_body_back_until_they_open(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        peer.generous = False
        while not peer.asked:
            await peer.read()
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        await peer.flush()
        await settle()
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 300_000})
        peer.h2.increment_flow_control_window(300_000)
        await peer.flush()
        await answering(peer)

    async with serving(script, authority, initial_window_size=2_000) as server, sending(authority) as sender:
        assert response(await sender.send(post(server, body=BODY), yes)).status == 200
        assert server.requests == [BODY]


async def test_an_answer_before_the_body_is_sent_counts_and_the_rest_is_not_sent(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        peer.generous = False
        while not peer.asked:
            await peer.read()
        stream = next(iter(peer.asked))
        await peer.answer(stream, b"too large", status="413")
        peer.generous = True
        await answering(peer)

    async with serving(script, authority) as server, sending(authority) as sender:
        assert response(await sender.send(post(server, body=BODY), yes)).status == 413
        assert response(await sender.send(post(server), yes)).status == 200
        assert (server.connections, server.requests) == (1, [b"{}"])


def test_every_end_is_the_same_on_uvloop(authority: Authority) -> None:
    async def one(end: str) -> None:
        script, expected = ENDS[end]
        async with serving(script, authority) as server, sending(authority) as sender:
            assert trouble(await sender.send(post(server), yes, timeout=patience(expected))) is expected, end

    async def all_of_them() -> None:
        for end in ENDS:
            await one(end)
        await test_an_endless_body_is_cut_its_status_counts_and_the_connection_is_kept(authority)
        await test_a_large_body_is_sent_within_the_peers_windows(1_000, authority)

    uvloop.run(all_of_them())
