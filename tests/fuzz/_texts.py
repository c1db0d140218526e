"""URLs, names and headers by chance: built from what broke others, then bent."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv6Address

from tests.channels.refused import REFUSED

PUBLIC = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "100.128.0.1"]
INSIDE = [
    *(
        "127.0.0.1",
        "0.0.0.0",
        "10.0.0.5",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.192",
        "224.0.0.1",
    ),
    *("255.255.255.255", "192.88.99.1", "198.18.0.1", "203.0.113.1", "168.63.129.16", "::1", "::", "::ffff:127.0.0.1"),
    *("::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "fe80::1"),
    *("fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1", "3fff::1", "5f00::1", "4000::1"),
    *("2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:7f00:1", "nothing", "", "127.1", "0x7f000001", "2130706433"),
]
_PIECES = [
    *(
        "http://",
        "https://",
        "HTTP://",
        "ftp://",
        "//",
        "/",
        "?",
        "#",
        "@",
        ":",
        "[",
        "]",
        "\\",
        "%",
        "%2e",
        "%00",
        "%0d%0a",
        ".",
    ),
    *(
        "..",
        "-",
        "_",
        " ",
        "\t",
        "\r\n",
        "\0",
        "a",
        "Z",
        "0",
        "9",
        "é",
        "ß",
        "１",  # noqa: RUF001 - look-alikes are the point
        "。",
        "ⓔ",
        "\u200b",
        "\u00ad",
        "\u2028",
        "\ud800",
    ),
    *(
        "localhost",
        "example",
        "com",
        "internal",
        "127",
        "0x7f",
        "::1",
        "::ffff:",
        "fe80::1%lo",
        "xn--",
        "xn--bcher-kva",
        "user:pass@",
    ),
    *("80", "443", "8080", "22", "6379", "65535", "65536", "0", "080", "+1", "١", "169.254.169.254", "metadata.google.internal"),  # noqa: RUF001 - look-alikes are the point
]


def url(dice: random.Random) -> str:
    """Return a text that may be a URL."""
    match dice.randrange(6):
        case 0:
            return _bent(dice, dice.choice(REFUSED))
        case 1:
            return "".join(dice.choices(_PIECES, k=dice.randrange(1, 12)))
        case 2:
            return f"http{'s' * dice.randrange(2)}://{_address(dice)}{_port(dice)}/{_bent(dice, 'path?q=1')}"
        case 3:
            return f"http://{_name(dice)}{_port(dice)}{''.join(dice.choices(_PIECES, k=dice.randrange(4)))}"
        case 4:
            return _bent(dice, f"https://{_name(dice)}:{dice.choice([80, 443, 8443])}/a/b?c=d")
        case _:
            return "http://" + "".join(
                chr(dice.choice([dice.randrange(128), dice.randrange(0x3000)])) for _ in range(dice.randrange(30))
            )


def answer(dice: random.Random) -> list[str]:
    """Return what a resolver says: good addresses, bad ones, both, nothing, or no address at all."""
    pool = dice.choice([PUBLIC, INSIDE, PUBLIC + INSIDE])
    return dice.choices(pool, k=dice.randrange(4)) if dice.randrange(8) else [_address(dice).strip("[]")]


def headers(dice: random.Random) -> dict[str, str]:
    """Return headers, of which some say more than they should."""
    names = [
        "X-A",
        "x-a",
        "Host",
        "content-length",
        "Connection",
        "webhook-id",
        "Authorization",
        "Cookie",
        "TE",
        "X A",
        "X:",
        "",
        "é",
    ]
    values = ["a", "", " a", "a ", "a\r\nb: c", "a\nb", "\0", "\x7f", "é", "ā", "\ud800", "x" * 5_000, "a\tb", "\x85", "\xa0"]
    made = {}
    for _ in range(dice.randrange(8)):
        name = (
            dice.choice(names) if dice.randrange(3) else "".join(dice.choices("aZ09-_.!~ :\r\n\0\x7f\xe9", k=dice.randrange(6)))
        )
        made[name] = _bent(dice, dice.choice(values)) if dice.randrange(3) else dice.choice(values)
    return made


def _bent(dice: random.Random, text: str) -> str:
    for _ in range(dice.randrange(4)):
        place = dice.randrange(len(text) + 1)
        match dice.randrange(4):
            case 0:
                text = text[:place] + dice.choice(_PIECES) + text[place:]
            case 1:
                text = text[:place] + text[place + 1 :]
            case 2:
                text = text[:place] + chr(dice.randrange(0x2100)) + text[place + 1 :]
            case _:
                text = text[:place] + text[place:].swapcase()
    return text


def _address(dice: random.Random) -> str:
    four = IPv4Address(
        dice.choice(["127.0.0.1", "10.0.0.5", "169.254.169.254", "1.1.1.1", str(IPv4Address(dice.getrandbits(32)))])
    )
    number = int(four)
    first, rest = number >> 24, number & 0xFF_FFFF
    six = IPv6Address(
        dice.choice([dice.getrandbits(128), (0x2000 << 112) | dice.getrandbits(125), number, (0xFFFF << 32) | number])
    )
    spellings = [
        *(
            str(four),
            str(number),
            hex(number),
            oct(number).replace("o", ""),
            f"{first}.{rest}",
            f"0x{first:x}.{rest}",
            f"{four}.",
        ),
        *(f"[::ffff:{four}]", f"[::{four}]", f"[64:ff9b::{four}]", f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::]", f"[{six}]"),
        *(
            f"[{six.exploded}]",
            f"[2606:4700::5efe:{four}]",
            f"[fe80::{number & 0xFFFF:x}%25eth0]",
            f"[2001:0:{number >> 16:x}::1]",
        ),
    ]
    return dice.choice(spellings)


def _name(dice: random.Random) -> str:
    return dice.choice(
        [
            "hook.example.com",
            "localhost",
            "a.localhost",
            "db",
            "db.internal",
            "example.com.",
            "bücher.example.com",
            "x.home.arpa",
            "127.0.0.1.nip.io",
        ]
    )


def _port(dice: random.Random) -> str:
    return dice.choice(["", "", "", ":80", ":443", ":22", ":6379", ":8080", ":0", ":65536", ":080", f":{dice.randrange(70_000)}"])
