"""The channel `webhook`: what goes over the wire, how it is signed, and what each answer means."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook as Receiver

from campana.channels import http, webhook
from campana.channels.base import Parcel
from campana.domain.outcomes import Ambiguous, Delivered, Failed, Outcome, TimedOut, Withheld
from tests.channels.hostile import LOOPBACK, OK, SOON, Server, Talk, answering, client, once, serving, silent, yes

TENANT, PROJECT = UUID(int=2), UUID(int=3)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def parcel(target: Mapping[str, Any], *, payload: bytes | None = b'{"a":1}', timeout: float = 5.0, **more: Any) -> Parcel:
    fields: dict[str, Any] = {
        "delivery_id": UUID(int=1),
        "tenant_id": TENANT,
        "project_id": PROJECT,
        "delivery_key": "msg_0001",
        "idempotency_key": "d-1-abcdef12",
        "number": 1,
        "due_at": NOW,
    }
    return Parcel(**{**fields, **more}, target=target, payload=payload, timeout=timeout)


def knowing(*answers: Sequence[bytes] | Withheld) -> webhook.Secrets:
    """Gives these one after another to who asks for our project, and the last one again and again; to others none."""
    left = list(answers)

    async def secrets(tenant_id: UUID, project_id: UUID) -> Sequence[bytes] | Withheld:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer if (tenant_id, project_id) == (TENANT, PROJECT) else []

    return secrets


async def send(server: Server, *, secrets: list[bytes] | None = None, permit: Any = yes, **more: Any) -> Any:
    target = {"url": f"http://127.0.0.1:{server.port}/hook", **more.pop("target", {})}
    async with client() as sender:
        keys = None if secrets is None else knowing(secrets)
        channel = webhook.Webhook(sender, LOOPBACK, keys, "Campana/0.1.0", now=lambda: NOW)
        return await channel.send(parcel(target, **more), permit)


def parts(raw: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines]
    assert len({name.lower() for name, _ in pairs}) == len(pairs), "a header came twice"
    return start, {name.lower(): value for name, value in pairs}, body


def saying(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


# -- what goes over the wire


async def test_a_webhook_carries_its_payload_and_our_headers() -> None:
    async with serving(answering(OK)) as server:
        assert isinstance(await send(server, number=2), Delivered)
    start, headers, body = parts(server.requests[0])
    assert start == "POST /hook HTTP/1.1"
    assert body == b'{"a":1}'
    assert headers == {
        "host": f"127.0.0.1:{server.port}",
        "accept-encoding": "identity",
        "webhook-id": "msg_0001",
        "webhook-timestamp": "1767225600",
        "idempotency-key": "d-1-abcdef12",
        "campana-attempt": "2",
        "campana-delivery": "00000000-0000-0000-0000-000000000001",
        "user-agent": "Campana/0.1.0",
        "content-type": "application/json",
        "content-length": "7",
    }


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_methods_without_a_body_send_none(method: str) -> None:
    async with serving(answering(OK)) as server:
        await send(server, target={"method": method})
    start, headers, body = parts(server.requests[0])
    assert (start, body) == (f"{method} /hook HTTP/1.1", b"")
    assert not {"content-type", "content-length"} & set(headers)


async def test_a_body_that_is_no_json_goes_as_it_is_with_its_own_type() -> None:
    target = {"method": "PUT", "body": "<a>é</a>", "headers": {"content-type": "application/xml"}}
    async with serving(answering(OK)) as server:
        await send(server, target=target)
        await send(server, target={"body": "plain"})
    _, headers, body = parts(server.requests[0])
    assert (headers["content-type"], body) == ("application/xml", "<a>é</a>".encode())
    assert parts(server.requests[1])[1]["content-type"] == "text/plain; charset=utf-8"


async def test_a_delivery_without_payload_has_an_empty_body() -> None:
    async with serving(answering(OK)) as server:
        await send(server, payload=None)
    assert parts(server.requests[0])[1]["content-length"] == "0"


async def test_the_query_is_appended_and_encoded_once() -> None:
    async with serving(answering(OK)) as server:
        await send(server, target={"query": {"a b": "c&d", "e": ["1", "2"]}})
        url = f"http://127.0.0.1:{server.port}/hook?x=%20"
        await send(server, target={"url": url, "query": {"y": "é"}})
    assert [parts(raw)[0] for raw in server.requests] == [
        "POST /hook?a+b=c%26d&e=1&e=2 HTTP/1.1",
        "POST /hook?x=%20&y=%C3%A9 HTTP/1.1",
    ]


async def test_headers_of_the_target_are_sent_and_can_not_override_ours() -> None:
    own = {"Authorization": "Bearer x", "X-Own": "1", "Webhook-Id": "forged", "user-agent": "x", "Campana-Attempt": "9"}
    async with serving(answering(OK)) as server:
        await send(server, target={"headers": own})
    _, headers, _ = parts(server.requests[0])
    assert (headers["authorization"], headers["x-own"]) == ("Bearer x", "1")
    assert (headers["webhook-id"], headers["user-agent"]) == ("msg_0001", "Campana/0.1.0")
    assert headers["campana-attempt"] == "1"


async def test_a_target_that_was_stored_broken_is_a_permanent_failure_and_nothing_is_opened() -> None:
    async with serving(answering(OK)) as server:
        outcome = await send(server, target={"headers": {"X-A": "a\r\nb: c"}})
        assert isinstance(outcome, Failed)
        assert outcome.permanent
        assert server.connections == 0


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://[::ffff:10.0.0.1]/", "ftp://x/", "http://redis/", "", None])
async def test_a_stored_url_is_judged_again_at_every_send(url: str | None) -> None:
    async with serving(answering(OK)) as server:
        outcome = await send(server, target={"url": url})
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert not outcome.ambiguous
    assert outcome.error.startswith("the address is not allowed")


# -- signatures

VECTORS = [
    (
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "msg_0001",
        1_767_225_600,
        b'{"type":"call.completed","timestamp":"2026-01-01T00:00:00Z","data":{"id":"c_1"}}',
        "v1,UQT0uLgh/2ExUqmNQSO2oZlQdsY+d+N54+bvBzUgAh8=",
    ),
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
]


@pytest.mark.parametrize(("secret", "key", "stamp", "body", "signature"), VECTORS)
def test_signatures_are_those_of_standard_webhooks(secret: str, key: str, stamp: int, body: bytes, signature: str) -> None:
    raw = base64.b64decode(secret.removeprefix("whsec_"))
    assert webhook.sign(key, stamp, body, [raw]) == signature


async def test_a_receiver_with_either_secret_accepts_what_is_sent_during_a_rotation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new, old = b"n" * 32, b"o" * 32
    async with serving(answering(OK)) as server:
        await send(server, secrets=[new, old], payload='{"é":1}'.encode())
    _, headers, body = parts(server.requests[0])
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (new, old):
        receiver = Receiver(base64.b64encode(secret).decode())
        # The counterpart looks at the real clock for the age alone.
        monkeypatch.setattr(receiver, "_Webhook__verify_timestamp", lambda _: NOW)
        assert receiver.verify(body, headers) == {"é": 1}


async def test_the_reference_library_accepts_what_is_sent_on_each_attempt_and_its_stamp_is_that_of_the_attempt() -> None:
    secret, began = b"s" * 32, datetime.now(UTC).replace(microsecond=0)
    at = began

    def now() -> datetime:
        return at

    async with serving(answering(OK)) as server, client() as sender:
        channel = webhook.Webhook(sender, LOOPBACK, knowing([secret]), now=now)
        for number in (1, 2, 3):
            at = began + timedelta(seconds=number)
            url = f"http://127.0.0.1:{server.port}/hook"
            assert isinstance(await channel.send(parcel({"url": url}, number=number), yes), Delivered)
    seen = [parts(raw) for raw in server.requests]
    receiver = Receiver(base64.b64encode(secret).decode())
    assert [receiver.verify(body, headers) for _, headers, body in seen] == [{"a": 1}] * 3
    assert {body for _, _, body in seen} == {b'{"a":1}'}
    assert {headers["webhook-id"] for _, headers, _ in seen} == {"msg_0001"}
    stamps = [int(headers["webhook-timestamp"]) for _, headers, _ in seen]
    assert stamps == [int(began.timestamp()) + number for number in (1, 2, 3)]
    assert len({headers["webhook-signature"] for _, headers, _ in seen}) == 3


async def test_where_there_is_no_secret_nothing_leaves_unsigned() -> None:
    async with serving(answering(OK)) as server:
        assert await send(server, secrets=[]) == Withheld(reason="signing_secret_unavailable")
        assert server.connections == 0


async def test_what_says_why_nothing_may_leave_is_heard() -> None:
    async with serving(answering(OK)) as server, client() as sender:
        unreadable = Withheld(reason="signing_secret_unreadable")
        channel = webhook.Webhook(sender, LOOPBACK, knowing(unreadable), now=lambda: NOW)
        url = f"http://127.0.0.1:{server.port}/hook"
        assert await channel.send(parcel({"url": url}), yes) == unreadable
        assert server.connections == 0


@pytest.mark.parametrize("then", [[b"n" * 32], [b"n" * 32, b"o" * 32], [], Withheld(reason="signing_secret_unreadable")])
async def test_what_was_signed_with_secrets_that_changed_while_it_connected_does_not_leave(
    then: Sequence[bytes] | Withheld,
) -> None:
    async with serving(answering(OK)) as server, client() as sender:
        channel = webhook.Webhook(sender, LOOPBACK, knowing([b"o" * 32], then), now=lambda: NOW)
        url = f"http://127.0.0.1:{server.port}/hook"
        assert await channel.send(parcel({"url": url}), yes) == Withheld()
        assert server.requests == []


async def test_a_channel_by_itself_has_no_secrets_and_pretends_none() -> None:
    async with serving(answering(OK)) as server:
        await send(server)
    assert "webhook-signature" not in parts(server.requests[0])[1]


# -- what answers mean


@pytest.mark.parametrize(
    ("status", "permanent", "ambiguous"),
    [
        (301, True, False),
        (302, True, False),
        (307, True, False),
        (304, True, False),
        (400, True, False),
        (401, True, False),
        (404, True, False),
        (409, True, False),
        (410, True, False),
        (422, True, False),
        (408, False, True),
        (425, False, False),
        (429, False, False),
        (500, False, True),
        (502, False, True),
        (503, False, True),
        (599, False, True),
    ],
)
async def test_a_failure_says_if_it_is_final_and_if_the_receiver_may_have_acted(
    status: int, permanent: bool, ambiguous: bool
) -> None:
    async with serving(answering(saying(status, body=b"why"))) as server:
        outcome = await send(server)
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.ambiguous) == (permanent, ambiguous)
    assert (outcome.answer.code, str(status) in outcome.error) == (status, True)
    assert outcome.answer.body == ("" if status == 304 else "why")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_what_begins_with_a_two_is_delivered(status: int) -> None:
    async with serving(answering(saying(status))) as server:
        outcome = await send(server)
    assert isinstance(outcome, Delivered)
    assert outcome.answer.code == status


async def test_a_target_says_itself_what_counts_and_what_is_repeated() -> None:
    rules = {"success": [200, "4xx"], "retry_on": [201, 418]}
    expected: dict[int, type[Outcome]] = {200: Delivered, 404: Delivered, 418: Delivered, 201: Failed, 500: Failed}
    for status, kind in expected.items():
        async with serving(answering(saying(status))) as server:
            outcome = await send(server, target=rules)
        assert isinstance(outcome, kind)
        if isinstance(outcome, Failed):
            assert (outcome.permanent, outcome.ambiguous) == (status == 500, status == 500)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("120", timedelta(seconds=120)),
        (" 7 ", timedelta(seconds=7)),
        ("Thu, 01 Jan 2026 00:01:00 GMT", timedelta(seconds=60)),
        ("Thursday, 01-Jan-26 00:01:00 GMT", timedelta(seconds=60)),
        ("Thu, 01 Jan 2026 00:01:00 -0000", timedelta(seconds=60)),
        ("0", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 5_000, None),
        ("", None),
        ("soon", None),
        ("²", None),
        ("Thu, 01 Jan 2025 00:01:00 GMT", None),
        ("Thu, 99 Jan 2026 99:99:99 GMT", None),
        ("Thu, 01 Jan 99999999999 00:00:00 GMT", None),
        ("Thu, 01 Jan 2026 00:01:00 +99999999999", None),
        (None, None),
    ],
)
def test_retry_after_is_read_where_it_says_something(header: str | None, expected: timedelta | None) -> None:
    assert webhook.retry_after(header, NOW) == expected


async def test_a_receiver_that_asks_for_patience_is_heard_only_where_a_retry_follows() -> None:
    for status, expected in ((429, timedelta(seconds=9)), (503, timedelta(seconds=9)), (400, None)):
        async with serving(answering(saying(status, "Retry-After: 9"))) as server:
            outcome = await send(server)
        assert isinstance(outcome, Failed)
        assert outcome.retry_after == expected


@pytest.mark.parametrize(
    ("retry_on", "permanent"), [([410], False), (["4xx", 410], False), (["4xx"], True), (["5xx"], True), (None, True)]
)
async def test_gone_is_final_unless_the_target_names_that_very_code(retry_on: list[object] | None, permanent: bool) -> None:
    async with serving(answering(saying(410, "Retry-After: 9"))) as server:
        outcome = await send(server, target={} if retry_on is None else {"retry_on": retry_on})
    assert isinstance(outcome, Failed)
    assert outcome.permanent is permanent
    assert (outcome.retry_after is None) is permanent


@pytest.mark.parametrize("status", [301, 404, 408, 429, 500, 503])
@pytest.mark.parametrize("word", ["abort-message", " Abort-Message "])
async def test_a_receiver_that_asks_to_stop_gets_no_further_attempt(status: int, word: str) -> None:
    wire = saying(status, f"Webhook-Delivery: {word}", "Retry-After: 9")
    async with serving(answering(wire)) as server:
        outcome = await send(server, target={"retry_on": ["3xx", "4xx", "5xx"]})
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.retry_after) == (True, None)
    assert outcome.ambiguous == (status in {408, 500, 503})
    assert outcome.error.startswith(f"the receiver answered {status}")
    assert outcome.error.endswith(" and asked to stop (webhook-delivery: abort-message)")
    assert "webhook-delivery" in dict(outcome.answer.headers)


async def test_beside_a_success_the_wish_to_stop_means_nothing() -> None:
    wire = saying(200, "webhook-delivery: abort-message")
    async with serving(answering(wire)) as server:
        assert isinstance(await send(server), Delivered)
        outcome = await send(server, target={"success": [201], "retry_on": [200]})
        assert isinstance(outcome, Failed)
        assert not outcome.permanent
        assert isinstance(await send(server, target={"success": ["4xx", 200]}), Delivered)


@pytest.mark.parametrize("word", ["abort", "abort-messages", "", "retry"])
async def test_other_words_do_not_stop_anything(word: str) -> None:
    async with serving(answering(saying(503, f"webhook-delivery: {word}"))) as server:
        outcome = await send(server)
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.error) == (False, "the receiver answered 503")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_final_and_never_followed(status: int) -> None:
    async with serving(answering(OK)) as elsewhere:
        location = f"Location: http://127.0.0.1:{elsewhere.port}/"
        async with serving(answering(saying(status, location))) as server:
            outcome = await send(server)
        assert isinstance(outcome, Failed)
        assert outcome.permanent
        assert (len(server.requests), elsewhere.connections) == (1, 0)


def test_a_destination_is_an_origin_whatever_is_behind_it() -> None:
    channel = webhook.Webhook(http.Client(LOOPBACK), LOOPBACK, now=lambda: NOW)
    origins = {
        "https://Example.com/a?b=c": "https://example.com:443",
        "https://example.com:443/": "https://example.com:443",
        "http://example.com/": "http://example.com:80",
        "https://example.com:8443/": "https://example.com:8443",
        "http://10.0.0.1/": None,
        "no url": None,
    }
    assert {url: channel.destination({"url": url}) for url in origins} == origins
    assert channel.destination({}) is None


async def test_an_answer_is_kept_as_text_with_the_headers_that_matter() -> None:
    wire = saying(200, "Content-Type: text/plain", "Set-Cookie: a=b", "X-Request-Id: r1", body=b"a\0\xff\xfeb")
    async with serving(answering(wire)) as server:
        outcome = await send(server)
    assert outcome.answer.body == "a\ufffd\ufffdb"
    assert outcome.answer.headers == (("content-type", "text/plain"), ("x-request-id", "r1"))


async def test_a_long_answer_is_kept_within_64_kib_whatever_it_holds() -> None:
    for body in (b"x" * 100_000, b"\xff" * 100_000, "é".encode() * 50_000):
        async with serving(answering(saying(200, body=body))) as server:
            outcome = await send(server)
        assert 60_000 < len(outcome.answer.body.encode()) <= 65_536


async def test_a_packed_answer_is_not_unpacked_and_not_kept_as_noise() -> None:
    async with serving(answering(saying(200, "Content-Encoding: gzip", body=b"\x1f\x8b\x08"))) as server:
        outcome = await send(server)
    assert isinstance(outcome, Delivered)
    assert outcome.answer.body is None
    assert ("content-encoding", "gzip") in outcome.answer.headers


async def test_a_challenge_is_not_answered() -> None:
    wire = saying(401, 'WWW-Authenticate: Basic realm="x"', "Set-Cookie: a=b", "Strict-Transport-Security: max-age=1")
    async with serving(answering(wire)) as server:
        await send(server)
        await send(server)
    assert all("cookie" not in parts(raw)[1] and "authorization" not in parts(raw)[1] for raw in server.requests)
    assert len(server.requests) == 2


async def reset(talk: Talk) -> None:
    await talk.request()
    talk.reset()


async def test_no_answer_after_the_write_is_ambiguous() -> None:
    for script in (silent, reset, once(b""), once(b"garbage"), once(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")):
        async with serving(script) as server:
            assert isinstance(await send(server, timeout=SOON), Ambiguous)


async def test_no_connection_is_a_plain_failure_and_a_late_one_timed_out() -> None:
    async with serving(answering(OK)) as server:
        pass
    outcome = await send(server)
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.ambiguous) == (False, False)

    async def hanging() -> bool:
        await asyncio.get_running_loop().create_future()
        return True

    async with serving(answering(OK)) as server:
        assert isinstance(await send(server, permit=hanging, timeout=SOON), TimedOut)


async def test_the_targets_own_timeout_can_only_shorten_the_attempt() -> None:
    async with serving(silent) as server:
        outcome = await send(server, target={"timeout": "100ms"}, timeout=60.0)
        assert "0.1 s" in outcome.error
        outcome = await send(server, target={"timeout": "5m"}, timeout=SOON)
        assert f"{SOON:g} s" in outcome.error


async def test_a_withheld_webhook_is_no_outcome() -> None:
    async def no() -> bool:
        return False

    async with serving(answering(OK)) as server:
        assert await send(server, permit=no) == Withheld()
        assert server.requests == []


async def test_an_error_of_the_permit_is_not_taken_for_a_fault_of_the_target() -> None:
    async def broken() -> bool:
        raise ValueError("a bug")

    async with serving(answering(OK)) as server:
        with pytest.raises(ValueError, match="a bug"):
            await send(server, permit=broken)


async def test_closing_the_channel_closes_its_connections() -> None:
    async with serving(answering(OK)) as server, client() as sender:
        channel = webhook.Webhook(sender, LOOPBACK, now=lambda: NOW)
        await channel.send(parcel({"url": f"http://127.0.0.1:{server.port}/"}), yes)
        await channel.close()
        assert await server.closed.get() == 1


def test_the_body_that_is_signed_is_the_body_that_is_sent() -> None:
    body = json.dumps({"a": "é"}, ensure_ascii=False).encode()
    first = webhook.sign("k", 1, body, [b"s"])
    assert first == webhook.sign("k", 1, body, [b"s"])
    assert len({first, webhook.sign("k", 2, body, [b"s"]), webhook.sign("l", 1, body, [b"s"])}) == 3
