"""Where connections go: addresses that were checked and no others, and names that certificates prove."""

import asyncio
import errno
import os
import socket
import ssl
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from campana.channels import http, http_dialer, netguard
from campana.domain.ambiguity import CERTAINTY, Certainty, Trouble
from tests.channels.authority import Authority
from tests.channels.hostile import LOOPBACK, OK, SOON, Talk, answering, client, response, serving, trouble, yes
from tests.channels.spies import Names

PUBLIC = "203.0.114.1"


@pytest.fixture
def dialed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every address that a connection was asked for."""
    seen: list[object] = []
    original = asyncio.BaseEventLoop.create_connection

    async def spy(self: Any, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        seen.append(host)
        return await original(self, factory, host, port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", spy)
    return seen


async def test_a_name_leads_to_the_address_that_was_checked(dialed: list[object]) -> None:
    names = Names(["127.0.0.1"])
    async with serving(answering(OK)) as server, client(resolver=names) as sender:
        assert response(await sender.send(server.post(host="hook.example.com"), yes)).status == 200
    assert f"Host: hook.example.com:{server.port}\r\n".encode() in server.requests[0]
    assert dialed == ["127.0.0.1"]


@pytest.mark.parametrize(
    "answer",
    [
        ["10.0.0.1"],
        ["127.0.0.1", "10.0.0.1"],
        ["127.0.0.1", "fe80::1%eth0"],
        ["127.0.0.1", "fd00::1"],
        ["127.0.0.1", "169.254.169.254"],
        ["127.0.0.1", "64:ff9b::a9fe:a9fe"],
        ["127.0.0.1", "gibberish"],
    ],
)
async def test_a_name_with_one_refused_address_among_good_ones_is_refused(answer: list[str], dialed: list[object]) -> None:
    async with serving(answering(OK)) as server, client(resolver=Names(answer)) as sender:
        got = await sender.send(server.post(host="hook.example.com"), yes)
    assert trouble(got) is Trouble.REFUSED_ADDRESS
    assert isinstance(got, http.Failure)
    assert got.detail == "hook.example.com"
    assert dialed == []


async def test_a_name_that_is_rebound_between_check_and_connection_gains_nothing(dialed: list[object]) -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"], ["127.0.0.1"], ["10.0.0.1"])
    async with serving(answering(OK)) as server, client(resolver=names, dns_ttl=0.0, keepalive=0.0) as sender:
        answers = [await sender.send(server.post(host="hook.example.com"), yes) for _ in range(4)]
    assert [type(answer) for answer in answers] == [http.Response, http.Failure, http.Response, http.Failure]
    assert set(dialed) == {"127.0.0.1"}
    assert len(names.asked) == 4


@pytest.mark.parametrize("missing", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS])
async def test_without_a_free_descriptor_or_port_nothing_was_sent_and_the_next_goes_out(
    monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    async def none_free(*_: Any, **__: Any) -> Any:
        raise OSError(missing, os.strerror(missing))

    async with serving(answering(OK)) as server, client(per_host=1) as sender:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.BaseEventLoop, "create_connection", none_free)
            for _ in range(3):
                assert CERTAINTY[trouble(await sender.send(server.post(), yes))] is Certainty.NOT_SENT
        assert response(await sender.send(server.post(), yes)).status == 200
    assert server.connections == 1


async def test_no_refused_literal_is_ever_dialed(dialed: list[object]) -> None:
    async with client(netguard.Rules()) as sender:
        for host in ("127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "::ffff:127.0.0.1", "2002:7f00:1::", "10.0.0.5"):
            url = netguard.Url(scheme="http", host=host, port=80, target="/")
            answer = await sender.send(http.Request(method="POST", url=url, body=b""), yes)
            assert trouble(answer) is Trouble.REFUSED_ADDRESS
    assert dialed == []


async def test_odd_spellings_that_the_system_resolves_to_loopback_are_refused_by_what_they_resolve_to() -> None:
    async with client(netguard.Rules()) as sender:
        for host in ("127.1", "2130706433.", "0x7f.1", "localhost.localdomain", "localhost"):
            url = netguard.Url(scheme="http", host=host, port=80, target="/")
            answer = await sender.send(http.Request(method="POST", url=url, body=b""), yes)
            assert trouble(answer) in {Trouble.REFUSED_ADDRESS, Trouble.UNRESOLVED}


async def test_the_port_of_a_name_is_checked_where_it_leads(dialed: list[object]) -> None:
    async with client(LOOPBACK, resolver=Names([PUBLIC])) as sender:
        url = netguard.Url(scheme="http", host="hook.example.com", port=6379, target="/")
        answer = await sender.send(http.Request(method="POST", url=url, body=b""), yes)
    assert trouble(answer) is Trouble.REFUSED_ADDRESS
    assert dialed == []


@pytest.mark.parametrize("answer", [socket.gaierror(-2, "no such name"), OSError("servers failing"), []])
async def test_a_name_that_does_not_resolve_was_not_sent_to(answer: OSError | list[str]) -> None:
    async with client(resolver=Names(answer)) as sender:
        url = netguard.Url(scheme="http", host="hook.example.com", port=80, target="/")
        got = trouble(await sender.send(http.Request(method="POST", url=url, body=b""), yes))
    assert got is Trouble.UNRESOLVED
    assert CERTAINTY[got] is Certainty.NOT_SENT


async def test_a_resolver_that_hangs_is_ended_by_the_connect_timeout() -> None:
    async def hanging(host: str, port: int) -> Sequence[str]:
        await asyncio.get_running_loop().create_future()
        return []

    async with client(resolver=hanging) as sender:
        url = netguard.Url(scheme="http", host="hook.example.com", port=80, target="/")
        request = http.Request(method="POST", url=url, body=b"")
        assert trouble(await sender.send(request, yes, connect_timeout=0.05)) is Trouble.CONNECT_TIMEOUT
        assert trouble(await sender.send(request, yes, timeout=0.05)) is Trouble.CONNECT_TIMEOUT


async def test_a_name_is_resolved_once_for_all_who_ask_and_remembered_for_a_while() -> None:
    names = Names(["127.0.0.1"])
    async with serving(answering(OK)) as server, client(resolver=names) as sender:
        await asyncio.gather(*[sender.send(server.post(host="hook.example.com"), yes) for _ in range(10)])
        assert server.connections == 10
    assert names.asked == ["hook.example.com"]


async def test_the_next_address_is_tried_where_one_refuses() -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    async with serving(answering(OK)) as server, client(resolver=names) as sender:
        assert response(await sender.send(server.post(host="hook.example.com"), yes)).status == 200


@pytest.mark.parametrize(
    ("answer", "inside"),
    [
        (["127.0.0.1"], True),
        ([PUBLIC, "10.0.0.1"], True),
        (["64:ff9b::a9fe:a9fe"], True),
        ([PUBLIC], False),
        ([], False),
        (socket.gaierror(-2, "no such name"), False),
    ],
)
async def test_where_a_name_leads_is_told_without_a_connection(
    answer: OSError | list[str], inside: bool, dialed: list[object]
) -> None:
    names = http_dialer.Names(netguard.Rules(), resolver=Names(answer))
    assert await names.leads_inside(netguard.parse("http://hook.example.com/")) is inside
    assert await names.leads_inside(netguard.parse("http://10.0.0.1/"))
    assert dialed == []
    await names.close()


async def test_few_names_are_looked_up_at_once_and_not_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, under_way = asyncio.Event(), []

    async def slow(host: str, port: int) -> list[str]:
        under_way.append(host)
        await gate.wait()
        return [PUBLIC]

    monkeypatch.setattr(http_dialer, "resolve", slow)
    resolver = http_dialer.sparing(together=2, most=3)
    tasks = [asyncio.ensure_future(resolver(f"h{number}.example.com", 80)) for number in range(5)]
    failed, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert all(isinstance(task.exception(), OSError) for task in failed)
    assert len(under_way) == 2
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [list, list, list, OSError, OSError]


async def test_the_system_resolver_gives_each_address_once() -> None:
    assert set(await http_dialer.resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
    assert list(await http_dialer.resolve("127.0.0.1", 80)) == ["127.0.0.1"]


# -- TLS


async def over_tls(
    server_context: ssl.SSLContext, trusting: ssl.SSLContext, host: str = "hook.example.com"
) -> tuple[object, list[bytes]]:
    names = Names(["127.0.0.1"])
    async with serving(answering(OK), server_context) as server:
        async with client(resolver=names, context=trusting) as sender:
            answer = await sender.send(server.post(host=host), yes)
            if isinstance(answer, http.Response):
                await sender.send(server.post(host=host), yes)
                assert server.connections == 1
        return answer, server.requests


async def test_a_certificate_for_the_name_is_accepted_and_the_name_is_asked_for(authority: Authority) -> None:
    context, asked = authority.server("hook.example.com"), []
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    answer, _ = await over_tls(context, authority.trusting())
    assert response(answer).status == 200
    assert asked == ["hook.example.com"]


async def test_a_certificate_for_an_address_is_accepted(authority: Authority) -> None:
    answer, _ = await over_tls(authority.server("127.0.0.1"), authority.trusting(), "127.0.0.1")
    assert response(answer).status == 200


@pytest.mark.parametrize("fault", ["another name", "expired", "self-signed", "unknown authority", "TLS 1.1", "no TLS"])
async def test_a_receiver_that_can_not_prove_its_name_gets_nothing(fault: str, authority: Authority, tmp_path: Path) -> None:
    contexts = {
        "another name": lambda: authority.server("other.example.com"),
        "expired": lambda: authority.server("hook.example.com", expired=True),
        "self-signed": lambda: authority.server("hook.example.com", self_signed=True),
        "unknown authority": lambda: Authority(tmp_path).server("hook.example.com"),
        "TLS 1.1": lambda: old(authority.server("hook.example.com")),
    }
    if fault == "no TLS":
        async with serving(nonsense) as server, client(resolver=Names(["127.0.0.1"])) as sender:
            url = netguard.Url(scheme="https", host="hook.example.com", port=server.port, target="/")
            answer: object = await sender.send(http.Request(method="POST", url=url, body=b""), yes)
    else:
        answer, requests = await over_tls(contexts[fault](), authority.trusting())
        assert requests == []
    assert trouble(answer) in {Trouble.TLS, Trouble.NO_CONNECTION}
    assert fault == "TLS 1.1" or trouble(answer) is Trouble.TLS


def old(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_ciphers("ALL:@SECLEVEL=0")
    # The standard library warns of both lines, rightly: this server is what must be refused.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


async def nonsense(talk: Talk) -> None:
    await talk.say(b"HTTP/1.1 400 This is no TLS\r\n\r\n")
    await talk.gone()


async def test_a_handshake_that_hangs_is_ended_by_the_connect_timeout(authority: Authority) -> None:
    async def mute(talk: Talk) -> None:
        await talk.gone()

    async with serving(mute) as server, client(resolver=Names(["127.0.0.1"]), context=authority.trusting()) as sender:
        url = netguard.Url(scheme="https", host="hook.example.com", port=server.port, target="/")
        request = http.Request(method="POST", url=url, body=b"")
        assert trouble(await sender.send(request, yes, connect_timeout=SOON)) is Trouble.CONNECT_TIMEOUT
        assert await server.closed.get() == 1


def test_certificates_are_checked_the_same_on_uvloop(authority: Authority) -> None:
    async def all_of_it() -> None:
        good, _ = await over_tls(authority.server("hook.example.com"), authority.trusting())
        assert response(good).status == 200
        for context in (authority.server("other.example.com"), authority.server("hook.example.com", expired=True)):
            answer, requests = await over_tls(context, authority.trusting())
            assert (trouble(answer), requests) == (Trouble.TLS, [])

    uvloop.run(all_of_it())


def test_the_default_context_checks_names_and_refuses_old_versions() -> None:
    context = http_dialer.tls()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
