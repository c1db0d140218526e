"""Receives webhooks, verifies them and acts on each once; the standard library is all it needs.

    WEBHOOK_SECRETS='whsec_...' python3 examples/receiver_verify.py 9000

During a rotation WEBHOOK_SECRETS holds both secrets, with a blank between. What came is kept in the SQLite file
RECEIVER_DATA (`received.db`), whose table `effects` stands for whatever your own program does.
"""

import base64
import hmac
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 300
"""Seconds by which the clocks may differ; what is older may be somebody who plays back what he has heard."""
LARGEST = 1 << 20
SECRETS = [base64.b64decode(one.removeprefix("whsec_"), validate=True) for one in os.environ.get("WEBHOOK_SECRETS", "").split()]
DATA = os.environ.get("RECEIVER_DATA", "received.db")


class Refused(Exception):  # noqa: N818 - it is an answer: whoever sent this is not who we know
    """It is not from somebody who has one of our secrets, or not from just now."""


def verify(secrets: Iterable[bytes], headers: Message, body: bytes, now: float) -> str:
    """Return the message's id if it was signed with one of the secrets just now, over exactly these bytes."""
    key, stamp, signatures = (headers.get(f"webhook-{name}") or "" for name in ("id", "timestamp", "signature"))
    if not (key and re.fullmatch(r"[0-9]{1,12}", stamp) and signatures):
        raise Refused("expected the headers webhook-id, webhook-timestamp and webhook-signature")
    if abs(now - int(stamp)) > TOLERANCE:
        raise Refused("the timestamp is too far from now")
    signed = f"{key}.{stamp}.".encode() + body
    expected = ["v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode() for secret in secrets]
    given = signatures.split(" ")
    # Every pair is compared, each in constant time: how long it takes tells nothing.
    if sum(hmac.compare_digest(mine.encode(), theirs.encode()) for mine in expected for theirs in given) == 0:
        raise Refused("no signature fits")
    return key


def take(key: str, body: bytes) -> bool:
    """Act on a message unless it was acted on before; remembering it and acting on it are one transaction."""
    with closing(sqlite3.connect(DATA, timeout=5)) as database, database:
        if database.execute("insert into seen (id) values (?) on conflict do nothing", (key,)).rowcount == 0:
            return False
        database.execute("insert into effects (id, body) values (?, ?)", (key, body.decode(errors="replace")))
        return True


class Receiver(BaseHTTPRequestHandler):
    """Answers 200 to what is authentic, new or not; 401 to what isn't; 503 where it can't tell now."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            return self._answer(413 if length.isdecimal() else 411, "too large, or of unknown length", close=True)
        body = self.rfile.read(int(length))  # before any parsing: the signature is over these bytes
        try:
            key = verify(SECRETS, self.headers, body, time.time())  # noqa: TID251 - a receiver has a clock of its own
            is_new = take(key, body)
        except Refused as refused:
            return self._answer(401, str(refused))
        except sqlite3.OperationalError:
            return self._answer(503, "try again", ("retry-after", "5"))
        print(f"{key} {'taken' if is_new else 'known already'}", flush=True)
        return self._answer(200, "ok")

    def _answer(self, status: int, said: str, *headers: tuple[str, str], close: bool = False) -> None:
        text = said.encode()
        self.send_response(status)
        for name, value in (("content-length", str(len(text))), *headers, *([("connection", "close")] if close else [])):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class named it
        """Say nothing: bodies and signatures belong in no log."""


if __name__ == "__main__":
    if not SECRETS:
        sys.exit("expected the secret, or during a rotation the secrets, in WEBHOOK_SECRETS")
    with closing(sqlite3.connect(DATA)) as file:
        file.execute("create table if not exists seen (id text primary key, at text not null default current_timestamp)")
        file.execute("create table if not exists effects (id text not null, body text not null)")
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Receiver)
    print(f"Listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
