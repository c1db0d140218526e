"""URLs, headers and answers by chance: nothing reaches inside, nothing says more than it should, everything has its end.

python -m tests.fuzz urls --seconds 600                   for so long
python -m tests.fuzz urls --seed 7 --case 1234            that one again, alone
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from campana.channels import http, http_dialer, netguard, webhook
from campana.channels.http2_connection import Http2Connection
from campana.channels.http2_stream import fields
from campana.channels.http_connection import Connection
from campana.channels.http_message import KEPT, UnsendableError, encode
from tests.channels.hostile import LOOPBACK, Talk, client, serving, settle, yes
from tests.channels.spies import spying
from tests.channels.test_http_connection import Wire
from tests.channels.test_webhook import NOW, parcel
from tests.fuzz import _answers, _texts

GROWTH = 300_000
"""Kilobytes that the process may grow over a whole run."""
CONTEXT = http_dialer.tls()
RULES = [netguard.Rules(), netguard.Rules(), LOOPBACK, netguard.Rules(allow=netguard.networks(("10.1.0.0/16", "fd00::/8")))]
_INSIDE_4 = [
    ip_network(text)
    for text in (
        "192.0.0.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.175.48.0/24",
        "100.64.0.0/10",
        "168.63.129.16/32",
    )
]


class FoundError(AssertionError):
    """A property that does not hold."""


def hold(holds: object, what: str) -> None:
    if not holds:
        raise FoundError(what)


def is_inside(address: IPv4Address | IPv6Address) -> bool:
    """Say whether nothing may be sent there: another judgement than the product's, from the standard library's lists."""
    if isinstance(address, IPv6Address):
        number = int(address)
        carried = address.ipv4_mapped or address.sixtofour
        carried = carried or (address.teredo[1] if address.teredo else None)
        if address in ip_network("64:ff9b::/96") or (number >> 32) & 0xFFFF_FFFF in (0x5EFE, 0x0200_5EFE) or number >> 32 == 0:
            carried = IPv4Address(number & 0xFFFF_FFFF)
        if carried is not None and is_inside(carried):
            return True
        if address.ipv4_mapped or address in ip_network("64:ff9b::/96"):
            return False
        outside = address in ip_network("2000::/3") and not any(
            address in ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3ffe::/16", "3fff::/20")
        )
        return not outside or not address.is_global
    return not address.is_global or address.is_multicast or address.is_reserved or any(address in one for one in _INSIDE_4)


def may_be_reached(text: str, rules: netguard.Rules) -> bool:
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    allowed = any(address in network for network in rules.allow if network.version == address.version)
    return allowed or not is_inside(address)


async def url(dice: random.Random) -> str:
    """A URL that is taken leads nowhere inside, whatever its name resolves to; one that is not is a ValueError."""
    text, rules, answers = _texts.url(dice), dice.choice(RULES), [_texts.answer(dice) for _ in range(3)]
    faults = webhook.validate({"url": text}, rules)
    try:
        read = netguard.parse(text)
    except ValueError as error:
        hold(str(error).startswith("expected"), f"{text!r}: {error}")
        hold(faults, f"{text!r} was taken and can't be read")
        return "refused"
    hold(netguard.parse(f"{read.scheme}://{read.authority}{read.target}") == read, f"{text!r} is read twice in two ways: {read}")

    async def resolver(host: str, port: int) -> list[str]:
        said = answers.pop(0) if answers else []
        if not said:
            raise OSError("no such name")
        return said

    with spying(is_answering=False) as spy:
        async with client(rules, resolver=resolver, dns_ttl=0.0, context=CONTEXT) as sender:
            channel = webhook.Webhook(sender, rules, now=lambda: NOW)
            for _ in range(2):
                await channel.send(parcel({"url": text}, timeout=1.0), yes)
    for place in spy.reached:
        hold(may_be_reached(place, rules), f"{text!r} reached {place}, with {rules}")
        hold(not faults, f"{text!r} was refused when it was saved, and reached {place}")
    return "reached" if spy.reached else "stopped"


async def headers(dice: random.Random) -> str:
    """Headers that are taken go out as they are, each on its own line, and no others with them."""
    said = _texts.headers(dice)
    faults = webhook.validate({"url": "https://example.com/", "headers": said}, netguard.Rules())
    request = http.Request(method="POST", url=netguard.parse("https://example.com/"), headers=tuple(said.items()), body=b"x")
    try:
        wire = encode(request)
    except UnsendableError:
        hold(faults, f"{said!r} was taken and can't be sent")
        return "refused"
    head, _, body = wire.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    expected = [f"{name}: {value}".encode("latin-1") for name, value in said.items()]
    hold(lines[3:-1] == expected, f"{said!r} became {lines}")
    hold((lines[1], lines[-1], body) == (b"Host: example.com", b"Content-Length: 1", b"x"), f"{said!r} became {lines}")
    hold(not any(set(line) & {0, 10, 13} for line in lines), f"{said!r} became {lines}")
    for field in fields(request):
        name, value = bytes(field[0]), bytes(field[1])
        hold(name == name.lower(), f"{name!r} in HTTP/2")
        hold(not set(name + value) & {0, 10, 13}, f"{name!r}: {value!r} in HTTP/2")
    return "sent"


async def answer(dice: random.Random) -> str:
    """Whatever comes over HTTP/1.1, the exchange has its end, and keeps no more than it may."""
    connection, wire = Connection(keepalive=30.0), Wire()
    connection.connection_made(wire)
    future = connection.ask(b"request", asyncio.get_running_loop())
    for piece in _answers.http1(dice):
        if wire.aborted:
            break
        connection.data_received(piece)
    connection.connection_lost(None if dice.randrange(2) else ConnectionResetError())
    return _ended(future)


async def answer2(dice: random.Random) -> str:
    """Whatever comes over HTTP/2, every exchange has its end, and what we say in return is bounded."""
    connection, wire = Http2Connection(keepalive=30.0), Wire()
    connection.connection_made(wire)
    loop, asked, count = asyncio.get_running_loop(), [], dice.randrange(1, 4)
    pieces = _answers.http2(dice, count)
    if dice.randrange(10):
        connection.data_received(b"\0\0\0\4\0\0\0\0\0")
    for _ in range(count):
        stream = connection.place(http.Request(method="POST", url=netguard.parse("https://example.com/"), body=b"x" * 9))
        asked.append((stream, stream.ask(b"", loop)))
    for piece in pieces:
        if wire.aborted:
            break
        connection.data_received(piece)
        hold(len(connection._frames._rest) < 17_000, "more than a frame is kept")
        if dice.randrange(20) == 0:
            asked[0][0].close()
            asked[0] = asked[-1]
    connection.connection_lost(None if dice.randrange(2) else ConnectionResetError())
    hold(not connection._streams, f"{connection._streams} have no end")
    hold(len(wire.written) < 200_000, f"{len(wire.written)} bytes were said in return")
    return _ended(asked[-1][1]) if asked[-1][1].done() else "left"


async def exchange(dice: random.Random) -> str:
    """Whatever a server says and whenever it stops, the client is back by its deadline."""
    pieces, pause, closes = _answers.http1(dice)[:50], dice.randrange(3) == 0, dice.randrange(2)

    async def script(talk: Talk) -> None:
        await talk.request()
        for piece in pieces:
            await talk.say(piece)
            if pause:
                await settle()
        if not closes:
            await talk.gone()

    patience = 0.1
    async with serving(script) as server, client(context=CONTEXT) as sender:
        begin = time.monotonic()
        got = await sender.send(server.post(), yes, timeout=patience)
        took = time.monotonic() - begin
    hold(isinstance(got, http.Response | http.Failure), f"{got}")
    hold(took < patience + 2.0, f"it took {took:.1f} s")
    return type(got).__name__


def _ended(future: asyncio.Future[http.Response | http.Failure]) -> str:
    hold(future.done(), "there is no end")
    got = future.result()
    found = got if isinstance(got, http.Response) else got.response
    if found is not None:
        hold(200 <= found.status < 600, f"the status {found.status}")
        hold(len(found.body) <= KEPT, f"{len(found.body)} bytes are kept")
        hold(len(found.headers) <= 201, f"{len(found.headers)} headers are kept")
        hold(not any(set(name + value) & set("\0\r\n") for name, value in found.headers), f"{found.headers}")
    return type(got).__name__ if isinstance(got, http.Response) else got.trouble.name


Kind = Callable[[random.Random], Awaitable[str]]
KINDS: Sequence[Kind] = (*[url] * 40, *[headers] * 20, *[answer] * 25, *[answer2] * 25, exchange)


async def fuzz(seed: int, *, seconds: float, first: int = 0, most: int = 10**12) -> tuple[Counter[str], str]:
    """Return how many cases ended in which way, and the first that broke a property, if one did."""
    ends: Counter[str] = Counter()
    until, before = time.monotonic() + seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(first, first + most):
        dice = random.Random(f"{seed}:{number}")
        kind = dice.choice(KINDS)
        name = getattr(kind, "__name__", "case")
        try:
            end = await kind(dice)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            return ends, f"--seed {seed} --case {number}: {name}: {type(error).__name__}: {error}"
        ends[f"{name}: {end}"] += 1
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > GROWTH:
            return ends, f"--seed {seed} --case {number}: {name}: the process grew by {grown} kB"
        if time.monotonic() > until:
            break
    return ends, ""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> int:
    """Run until the time is over or something is found, and print how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz urls", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--case", type=int, help="this case alone")
    given = parser.parse_args(words)
    say(f"seed {given.seed}")
    first, most = (0, 10**12) if given.case is None else (given.case, 1)
    ends, found = asyncio.run(fuzz(given.seed, seconds=given.seconds, first=first, most=most))
    for end, times in sorted(ends.items()):
        say(f"{times:>10,}  {end}")
    say(f"{sum(ends.values()):>10,}  cases held")
    if found:
        say(f"FOUND: {found}")
    return 1 if found else 0
