"""Answers by chance, to either version of HTTP: whole ones, bent ones, and bytes that are none."""

from __future__ import annotations

import random

from tests.channels.ends2 import BOMB, OURS, block
from tests.channels.hostile import OK
from tests.channels.hostile2 import frame

_ONES = [
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 C\r\n\r\n",
        b"HTTP/1.0 500 X\r\n",
        b"HTTP/1.1 101 S\r\n",
        b"HTTP/1.1 204 N\r\n\r\n",
        b"\r\n",
    ),
    *(b"Content-Length: 3\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"abc", b"3\r\n"),
    *(b"0\r\n\r\n", b"ffffffff\r\n", b"X: " + b"y" * 40_000, b"z" * 70_000, b"\0", b"Upgrade: x\r\nConnection: upgrade\r\n", OK),
    *(b"Keep-Alive: timeout=0\r\n", b"Connection: close\r\n", b"X: y\r\n" * 300, b"HTTP/1.1 103 E\r\n\r\n" * 20, b"\x16\x03\x01"),
]
_STARTS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 404 No\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 204 No\r\n",
    b"HTTP/1.1 103 E\r\n\r\nHTTP/1.1 500 X\r\n",
]
_LINES = [
    *(
        b"Content-Length: 3\r\n",
        b"Content-Length: 70000\r\n",
        b"Connection: close\r\n",
        b"X: y\r\n",
        b"Keep-Alive: timeout=9\r\n",
    ),
    *(b"Content-Encoding: gzip\r\n", b"Transfer-Encoding: chunked\r\n", b"X-\xff: \xfe\r\n", b"Set-Cookie: a=b\r\n"),
]
_BLOCKS = [
    *(
        block((":status", "200")),
        block((":status", "204")),
        block((":status", "103")),
        block((":status", "101")),
        block(("x", "y")),
    ),
    *(
        block((":status", "200"), ("content-length", "3")),
        block((":status", "abc")),
        b"\x88",
        b"\xff\xff\xff",
        b"",
        b"\x20",
        b"\x3f\xe1\x1f",
    ),
    *(
        block((":status", "200"), ("x", "\0")),
        block((":status", "200"), *[("x", "y")] * 300),
        b"\xbe" * 50,
        b"\x40\x01a\x05bbbbb",
    ),
]


def http1(dice: random.Random) -> list[bytes]:
    """Return what comes over a connection of HTTP/1.1, as the wire cuts it."""
    if dice.randrange(2):
        lines = dice.choices(_LINES, k=dice.randrange(5))
        body = dice.randbytes(dice.choice([0, 3, 3, 100, 70_000, 1_300_000]))
        whole = dice.choice(_STARTS) + b"".join(lines) + b"\r\n" + body
    else:
        pieces = [
            dice.choice(_ONES) if dice.randrange(5) else dice.randbytes(dice.randrange(40)) for _ in range(dice.randrange(14))
        ]
        whole = b"".join(pieces)
    return _cut(dice, _bent(dice, whole))


def http2(dice: random.Random, streams: int) -> list[bytes]:
    """Return what comes over a connection of HTTP/2 on which the first `streams` streams were asked on."""
    frames: list[bytes] = []
    ours = [number * 2 + 1 for number in range(streams)]
    if dice.randrange(4):
        for stream in dice.sample(ours, dice.randrange(1, streams + 1)):
            frames += _answer(dice, stream)
        for _ in range(dice.randrange(3)):
            frames.insert(dice.randrange(len(frames) + 1), dice.choice(_frame(dice, dice.choice([0, *ours]))))
    else:
        for _ in range(dice.randrange(20)):
            frames += _frame(dice, dice.choice([0, *range(1, streams * 2 + 4)]))
    return _cut(dice, _bent(dice, b"".join(frames)))


def _answer(dice: random.Random, stream: int) -> list[bytes]:
    """Return an answer that is whole, as servers give them."""
    size = dice.choice([0, 3, 3, 100, 70_000, 1_300_000])
    body = [dice.randbytes(min(16_000, size - at)) for at in range(0, size, 16_000)]
    declared = [("content-length", str(size))] * dice.randrange(2)
    head = block((":status", dice.choice(["200", "201", "404", "500"])), ("x", "y"), *declared)
    interim = [frame(1, 4, stream, block((":status", "103")))] * dice.choice([0, 0, 1, 20])
    return [
        *interim,
        frame(1, 4, stream, head),
        *(frame(0, 0, stream, piece) for piece in body),
        frame(0, 1, stream) if dice.randrange(4) else frame(1, 5, stream, block(("x-sum", "1"))),
    ]


def _frame(dice: random.Random, stream: int) -> list[bytes]:
    match dice.randrange(12):
        case 0 | 1 | 2:
            return [frame(1, dice.choice([4, 5, 0, 4 | 8, 4 | 32, 5]), stream, dice.choice(_BLOCKS))]
        case 3 | 4:
            return [
                frame(0, dice.choice([0, 1, 8]), stream, dice.randbytes(dice.choice([0, 1, 3, 100, 16_384, 16_385])))
            ] * dice.choice([1, 1, 5])
        case 5:
            return [frame(3, 0, stream, dice.choice([0, 7, 8, 13, 99]).to_bytes(4))]
        case 6:
            return [
                frame(
                    7,
                    0,
                    dice.choice([0, 0, stream]),
                    dice.choice([stream, 0, 2**31 - 1]).to_bytes(4) + bytes(dice.choice([4, 0, 50])),
                )
            ]
        case 7:
            return [frame(8, 0, dice.choice([0, stream]), dice.choice([0, 1, 65_535, 2**31 - 1]).to_bytes(4))] * dice.choice(
                [1, 1, 1_500]
            )
        case 8:
            return [
                frame(dice.choice([4, 6]), dice.choice([0, 1]), 0, dice.randbytes(dice.choice([0, 6, 8, 600])))
            ] * dice.choice([1, 1, 1_500])
        case 9:
            return [frame(5, 4, stream, (2).to_bytes(4) + dice.choice(_BLOCKS))]
        case 10:
            return [piece.replace(OURS.to_bytes(4), stream.to_bytes(4)) for piece in BOMB]
        case _:
            return [frame(dice.randrange(256), dice.randrange(256), stream, dice.randbytes(dice.randrange(30)))]


def _bent(dice: random.Random, data: bytes) -> bytes:
    bent = bytearray(data)
    for _ in range(dice.choice([0, 0, 0, 1, 3]) if data else 0):
        bent[dice.randrange(min(len(bent), dice.choice([60, 10**9])))] = dice.randrange(256)
    return bytes(bent)


def _cut(dice: random.Random, data: bytes) -> list[bytes]:
    size = dice.choice([1, 7, 100, 5_000, 65_536, 10**9]) if len(data) < 3_000 else dice.choice([1_000, 65_536, 10**9])
    return [data[at : at + size] for at in range(0, len(data), size)]
