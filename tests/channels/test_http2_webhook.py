"""The channel `webhook` over HTTP/2: the same requests, and the same meaning of what comes back."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from campana.channels import webhook
from campana.domain.outcomes import Delivered, Failed
from tests.channels.authority import Authority
from tests.channels.hostile import LOOPBACK, yes
from tests.channels.hostile2 import HOST, Peer, frame, sending, serving
from tests.channels.test_webhook import NOW, parcel


async def secrets(*_: UUID) -> Sequence[bytes]:
    return [b"s" * 32]


async def test_a_webhook_over_http_2_is_signed_and_judged_as_any_other(authority: Authority) -> None:
    asked = []

    async def script(peer: Peer) -> None:
        for status in ("200", "503"):
            asked.append(await peer.request())
            await peer.answer(asked[-1].stream, b"{}", ("retry-after", "9"), status=status)
        await peer.request()
        await peer.raw(frame(3, 0, 5, (7).to_bytes(4)))
        await peer.gone()

    async with serving(script, authority) as server, sending(authority) as sender:
        channel = webhook.Webhook(sender, LOOPBACK, secrets, "Campana/0.1.0", now=lambda: NOW)
        target = {"url": f"https://{HOST}:{server.port}/hook", "headers": {"X-Own": "1"}}
        outcomes = [await channel.send(parcel(target), yes) for _ in range(3)]
    assert isinstance(outcomes[0], Delivered)
    assert isinstance(outcomes[1], Failed)
    assert (outcomes[1].ambiguous, outcomes[1].retry_after) == (True, timedelta(seconds=9))
    assert isinstance(outcomes[2], Failed)
    assert (outcomes[2].sent, outcomes[2].permanent, outcomes[2].ambiguous) == (False, False, False)
    stamp = int(NOW.timestamp())
    assert asked[0].headers["webhook-signature"] == webhook.sign("msg_0001", stamp, b'{"a":1}', [b"s" * 32])
    assert (asked[0].headers["x-own"], asked[0].headers["content-type"]) == ("1", "application/json")
    assert asked[0].body == b'{"a":1}'
