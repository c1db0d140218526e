"""The channel `webhook`: a signed HTTP request to an address that may be written to, and what its answer means."""

import binascii
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, assert_never
from uuid import UUID

from campana.channels import netguard
from campana.channels.base import Parcel, Permit
from campana.channels.http import Client, Failure, Request, Response, UnsendableError
from campana.channels.webhook_target import BODILESS, RETRY_ON, SUCCESS, is_repeated, is_reserved, matches, validate, with_query
from campana.domain import ambiguity, durations
from campana.domain.keys import keyed
from campana.domain.outcomes import Answer, Delivered, Failed, Outcome, Withheld

__all__ = ["Webhook", "retry_after", "sign", "validate"]

ABORT = "abort-message"
"""What a receiver says in `webhook-delivery` where no further attempt at this message is wanted."""
_INTEREST = frozenset(
    {
        *("content-encoding", "content-type", "date", "location", "request-id", "retry-after", "server", "x-request-id"),
        "webhook-delivery",
    }
)
_LONGEST_HEADER = 1_024
_LONGEST_BODY = 65_536
_SECONDS = re.compile(r"[0-9]{1,9}")
Secrets = Callable[[UUID, UUID], Awaitable[Sequence[bytes] | Withheld]]
"""Gives what the requests of a tenant's project are signed with now, the newest first, or says why nothing may leave."""


class Webhook:
    """Sends parcels over HTTP, signed by every secret of their project, and judges what comes back."""

    name = "webhook"
    contract = ambiguity.CONTRACTS["webhook"]

    def __init__(
        self,
        client: Client,
        rules: netguard.Rules,
        secrets: Secrets | None = None,
        user_agent: str = "Campana",
        *,
        now: Callable[[], datetime],
    ) -> None:
        """Keep the client, which is closed with the channel; with `secrets` nothing leaves without a signature."""
        self._client = client
        self._rules = rules
        self._secrets = secrets
        self._user_agent = user_agent
        self._now = now
        # Reading a URL costs as much as sending it; the answer can't change while the rules don't.
        self._read = lru_cache(maxsize=4_096)(self._read_url)

    async def send(self, parcel: Parcel, permit: Permit) -> Outcome | Withheld:
        """Build, sign and send the request, if the permit allows it, and say what came of it."""
        target = parcel.target
        try:
            url = with_query(self._read(str(target.get("url"))), target.get("query") or {})
        except ValueError as error:
            return ambiguity.outcome_of(ambiguity.Trouble.REFUSED_ADDRESS, str(error))
        keys = await self._keys(parcel)
        if isinstance(keys, Withheld):
            return keys

        async def may_leave() -> bool:
            # While it connected, a secret may have ended or been rotated away: then it is built and signed anew.
            return await self._keys(parcel) == keys and await permit()

        try:
            answer = await self._client.send(self._request(parcel, url, keys), may_leave, timeout=_timeout(parcel))
        except UnsendableError as error:
            return Failed(error=f"the target can't be used: {error}", permanent=True)
        match answer:
            case Response():
                return self._judge(answer, target)
            case Failure(trouble=trouble, detail=detail, response=part):
                return ambiguity.outcome_of(trouble, detail, _evidence(part) if part else Answer())
            case Withheld():
                return answer
            case other:
                assert_never(other)

    def destination(self, target: Mapping[str, Any]) -> str | None:
        """Return the origin that the request goes to, or None where nothing would be sent."""
        try:
            url = self._read(str(target.get("url")))
        except ValueError:
            return None
        return f"{url.scheme}://{url.host}:{url.port}"

    async def close(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    async def _keys(self, parcel: Parcel) -> Sequence[bytes] | Withheld:
        if self._secrets is None:
            return ()
        return await self._secrets(parcel.tenant_id, parcel.project_id) or Withheld(reason="signing_secret_unavailable")

    def _read_url(self, text: str) -> netguard.Url:
        url = netguard.parse(text)
        refused = netguard.url_refusal(url, self._rules)
        if refused:
            raise ValueError(refused)
        return url

    def _request(self, parcel: Parcel, url: netguard.Url, keys: Sequence[bytes]) -> Request:
        target = parcel.target
        method = target.get("method") or "POST"
        body, media = _body(parcel, method)
        stamp = int(self._now().timestamp())
        headers = [("webhook-id", parcel.delivery_key), ("webhook-timestamp", str(stamp))]
        if keys:
            headers.append(("webhook-signature", sign(parcel.delivery_key, stamp, body or b"", keys)))
        headers += [
            ("Idempotency-Key", parcel.idempotency_key),
            ("Campana-Attempt", str(parcel.number)),
            ("Campana-Delivery", str(parcel.delivery_id)),
            ("User-Agent", self._user_agent),
        ]
        own = [(name, value) for name, value in (target.get("headers") or {}).items() if not is_reserved(name)]
        if media and not any(name.lower() == "content-type" for name, _ in own):
            headers.append(("Content-Type", media))
        return Request(method=method, url=url, headers=(*headers, *own), body=body)

    def _judge(self, response: Response, target: Mapping[str, Any]) -> Outcome:
        status, answer = response.status, _evidence(response)
        if matches(status, tuple(target.get("success", SUCCESS))):
            return Delivered(answer=answer)
        headers = dict(response.headers)
        aborts = _aborts(status, headers.get("webhook-delivery"))
        again = not aborts and is_repeated(status, tuple(target.get("retry_on", RETRY_ON)))
        return Failed(
            error=f"{_words(status)} and asked to stop (webhook-delivery: {ABORT})" if aborts else _words(status),
            permanent=not again,
            ambiguous=self.contract.is_unknown(status),
            retry_after=retry_after(headers.get("retry-after"), self._now()) if again else None,
            answer=answer,
        )


def sign(key: str, stamp: int, body: bytes, secrets: Sequence[bytes]) -> str:
    """Return the Standard Webhooks signatures of a message, one for each secret, so that receivers can rotate."""
    message = f"{key}.{stamp}.".encode() + body
    return " ".join([_signature(secret, message) for secret in secrets])


def _signature(secret: bytes, message: bytes) -> str:
    digest = keyed(secret).copy()
    digest.update(message)
    return "v1," + binascii.b2a_base64(digest.digest(), newline=False).decode("ascii")


def retry_after(text: str | None, now: datetime) -> timedelta | None:
    """Read a Retry-After header, seconds or a date; None where it says nothing that is in the future."""
    if text is None:
        return None
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=int(text)) or None
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return wait if wait > timedelta(0) else None


def _aborts(status: int, said: str | None) -> bool:
    """Say whether the receiver wants no further attempt at this message; beside a success the word means nothing."""
    return said is not None and status // 100 != 2 and said.strip().lower() == ABORT  # noqa: PLR2004 - the class of success


@lru_cache(maxsize=256)
def _length(text: str) -> float:
    return durations.parse(text).total_seconds()


def _timeout(parcel: Parcel) -> float:
    own = parcel.target.get("timeout")
    return min(parcel.timeout, _length(own)) if own else parcel.timeout


def _body(parcel: Parcel, method: str) -> tuple[bytes | None, str | None]:
    if method in BODILESS:
        return None, None
    text = parcel.target.get("body")
    if text is not None:
        return text.encode(), "text/plain; charset=utf-8"
    return parcel.payload or b"", "application/json"


def _words(status: int) -> str:
    if 300 <= status < 400:  # noqa: PLR2004 - the class of redirects
        return f"the receiver answered {status}: redirects are not followed"
    return f"the receiver answered {status}"


def _evidence(response: Response) -> Answer:
    headers = tuple([(name, value[:_LONGEST_HEADER]) for name, value in response.headers if name in _INTEREST])
    # A packed body is not unpacked (a few kilobytes may hold a gigabyte), and as text it would be noise.
    packed = any(name == "content-encoding" and value.lower() != "identity" for name, value in headers)
    return Answer(code=response.status, headers=headers, body=None if packed else _text(response.body))


def _text(body: bytes) -> str:
    text = body.decode("utf-8", errors="replace").replace("\0", "")
    # A replaced byte takes three, so the cap is applied again.
    return text.encode()[:_LONGEST_BODY].decode("utf-8", errors="ignore") if len(text) * 3 > _LONGEST_BODY else text
