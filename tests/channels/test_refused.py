"""Nothing is sent to where nothing may be sent, whatever was saved: no socket of the process reaches for it."""

import asyncio
import gzip
import zlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from campana.channels import http, netguard, webhook
from campana.domain.ambiguity import Trouble
from campana.domain.outcomes import Ambiguous, Delivered, Failed
from tests.channels.hostile import LOOPBACK, OK, Talk, answering, client, once, response, serving, yes
from tests.channels.refused import REFUSED
from tests.channels.spies import Names, Spy, spying
from tests.channels.test_webhook import NOW, parcel, parts, saying, send

NOWHERE = netguard.Rules()
LEADING_INSIDE = [
    *(["127.0.0.1"], ["0.0.0.0"], ["10.0.0.5"], ["169.254.169.254"], ["100.100.100.200"], ["192.0.0.192"], ["::1"], ["::"]),
    *(["::ffff:169.254.169.254"], ["64:ff9b::7f00:1"], ["2002:7f00:1::"], ["fd00:ec2::254"], ["fec0::1"], ["ff02::1"]),
    *(["224.0.0.1"], ["192.88.99.1"], ["::7f00:1"], ["3fff::1"], ["5f00::1"], ["fe80::1%lo"], ["2001:0:4136:e378::1"]),
    *(["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["8.8.8.8", "2606:4700::1111", "fd00::1"], ["8.8.8.8", "strange"]),
]


@pytest.fixture
def spy() -> Iterator[Spy]:
    with spying(is_answering=False) as spy:
        yield spy


@pytest.mark.parametrize("allowed", [NOWHERE, netguard.Rules(allow=netguard.networks(("10.99.0.0/16",)))])
async def test_no_refused_url_that_was_stored_reaches_for_a_socket(allowed: netguard.Rules, spy: Spy) -> None:
    names = Names(["127.0.0.1"])
    sentences = set()
    async with client(allowed, resolver=names) as sender:
        channel = webhook.Webhook(sender, allowed, now=lambda: NOW)
        for url in REFUSED:
            outcome = await channel.send(parcel({"url": url}), yes)
            assert isinstance(outcome, Failed), url
            assert outcome.permanent, url
            assert not outcome.ambiguous
            sentences.add(outcome.error.split(":")[0])
    assert sentences == {"the address is not allowed"}
    assert spy.reached == []


@pytest.mark.parametrize("answer", LEADING_INSIDE, ids=",".join)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_name_that_leads_inside_reaches_for_a_socket(answer: list[str], scheme: str, spy: Spy) -> None:
    async with client(NOWHERE, resolver=Names(answer)) as sender:
        channel = webhook.Webhook(sender, NOWHERE, now=lambda: NOW)
        outcome = await channel.send(parcel({"url": f"{scheme}://hook.example.com/"}), yes)
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.error) == (True, "the address is not allowed: hook.example.com")
    assert spy.reached == []


async def test_a_name_that_changes_its_mind_at_every_question_reaches_only_what_was_checked(spy: Spy) -> None:
    names = Names(*[["8.8.8.8"], ["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["2606:4700::1111"], ["::1"]] * 8)
    async with client(NOWHERE, resolver=names, dns_ttl=0.0) as sender:
        channel = webhook.Webhook(sender, NOWHERE, now=lambda: NOW)
        for number in range(40):
            await channel.send(parcel({"url": f"http{'s' * (number % 2)}://hook.example.com/"}), yes)
    assert set(spy.reached) == {"8.8.8.8", "2606:4700::1111"}


async def test_the_spy_sees_what_is_sent() -> None:
    async with serving(answering(OK)) as server, client() as sender:
        with spying() as spy:
            assert response(await sender.send(server.post(), yes)).status == 200
    assert set(spy.reached) == {"127.0.0.1"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_leads_anywhere_and_no_answer_makes_another_request(status: int) -> None:
    places = [url.encode("ascii", "ignore").replace(b"\r\n", b"%0d%0a").replace(b"\0", b"") for url in REFUSED[:60]]
    places += [b"/relative", b"//127.0.0.1/", b"https://hook.example.com/next", b"\\\\127.0.0.1"]
    body = b'<meta http-equiv="refresh" content="0;url=http://127.0.0.1:1/">'
    async with client() as sender:
        for place in places:
            extra = b"Location: " + place + b'\r\nAlt-Svc: h2="127.0.0.1:1"\r\nRefresh: 0;url=http://127.0.0.1:1/\r\n'
            head = b"HTTP/1.1 %d Go\r\nContent-Length: %d\r\n" % (status, len(body))
            async with serving(answering(head + extra + b"\r\n" + body)) as server:
                with spying() as spy:
                    channel = webhook.Webhook(sender, LOOPBACK, now=lambda: NOW)
                    outcome = await channel.send(parcel({"url": f"http://127.0.0.1:{server.port}/"}), yes)
                assert isinstance(outcome, Failed)
                assert outcome.permanent
                # asyncio's door and the socket's below it: one connection.
                assert (server.connections, len(server.requests), len(spy.reached)) == (1, 1, 2)


async def test_proxies_and_credentials_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\ndefault login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    async with serving(answering(OK)) as proxy, serving(answering(OK)) as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "ftp_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "")
        async with client() as sender:
            assert response(await sender.send(server.post(), yes)).status == 200
        assert proxy.connections == 0
        assert b"uthorization" not in server.requests[0]
        assert server.requests[0].startswith(b"POST / HTTP/1.1\r\n")


# -- answers that lie about themselves


def nested(depth: int) -> bytes:
    packed = bytes(10_000_000)
    for _ in range(depth):
        packed = gzip.compress(packed)
    return packed


@pytest.mark.parametrize(
    ("coding", "packed"),
    [("gzip", nested(1)), ("gzip, gzip", nested(2)), ("deflate", zlib.compress(bytes(10_000_000))), ("br", b"\x0b\x02\x80"),
     ("zstd", b"\x28\xb5\x2f\xfd"), ("identity, gzip", nested(1)), ("x-gzip", nested(1))],
)  # fmt: skip
async def test_a_bomb_stays_packed(coding: str, packed: bytes) -> None:
    async with serving(answering(saying(200, f"Content-Encoding: {coding}", body=packed))) as server:
        outcome = await send(server)
        assert parts(server.requests[0])[1]["accept-encoding"] == "identity"
    assert isinstance(outcome, Delivered)
    assert outcome.answer.body is None


@pytest.mark.parametrize("body", [b'{"error":"no"}', b"", b"<html>", b"{", b"\xff\xfe", b"null"])
@pytest.mark.parametrize("status", [200, 201, 202])
async def test_a_webhook_is_judged_by_its_status_whatever_the_body_says(status: int, body: bytes) -> None:
    async with serving(answering(saying(status, body=body))) as server:
        assert isinstance(await send(server), Delivered)


async def test_every_attempt_has_the_same_id_and_body_its_own_time_and_a_signature_for_each_secret() -> None:
    now, seen, secrets = [NOW], [], [b"n" * 32, b"o" * 32]

    async def both(*_: UUID) -> Sequence[bytes]:
        return secrets

    async with serving(answering(saying(503))) as server, client() as sender:
        channel = webhook.Webhook(sender, LOOPBACK, both, now=lambda: now[0])
        for number in (1, 2, 3):
            await channel.send(parcel({"url": f"http://127.0.0.1:{server.port}/"}, number=number), yes)
            _, headers, body = parts(server.requests[-1])
            seen.append((headers["webhook-id"], headers["idempotency-key"], body))
            stamp = int(now[0].timestamp())
            assert headers["webhook-timestamp"] == str(stamp)
            assert headers["webhook-signature"] == webhook.sign("msg_0001", stamp, body, secrets)
            now[0] += timedelta(minutes=5)
    assert len(seen) == 3
    assert len(set(seen)) == 1


async def test_a_keep_alive_that_ends_as_we_write_is_judged_by_the_bytes_and_never_sent_again() -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(OK)
        await talk.reader.readexactly(1)
        talk.reset()

    async with serving(script) as server, client() as sender:
        channel = webhook.Webhook(sender, LOOPBACK, now=lambda: NOW)
        target = {"url": f"http://127.0.0.1:{server.port}/"}
        assert isinstance(await channel.send(parcel(target), yes), Delivered)
        assert isinstance(await channel.send(parcel(target), yes), Ambiguous)
        assert server.connections == 1


@pytest.mark.parametrize("piece", [b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 1_000_000, b"HTTP/1.1 103 E\r\n\r\n" * 50_000])
async def test_what_floods_us_is_cut_long_before_it_is_all_read(piece: bytes) -> None:
    async with serving(once(piece * 20)) as server, client() as sender:
        got = await sender.send(server.post(), yes)
        assert isinstance(got, http.Failure)
        assert got.trouble is Trouble.UNREADABLE
        await asyncio.wait_for(server.closed.get(), 10)
