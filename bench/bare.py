"""What nothing can beat: the same steps with nothing between them, each a program of its own so that it has a core.

python -m bench.bare lateness URL RECEIVER COUNT START RATE   sleep until due, INSERT one row, POST
python -m bench.bare client RECEIVER COUNT                    POST by the product's HTTP client, 100 in flight; per second
python -m bench.bare insert URL COUNT                         INSERT one row, commit; per second
python -m bench.bare drain URL COUNT                          claim and settle batches of 100 in plain SQL; per second
python -m bench.bare many URL COUNT                           INSERT rows, 500 in a statement; per second
python -m bench.bare load URL COUNT TOGETHER KEY BODY         POST to an API that answers 201; per second
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.product import IN_FLIGHT, PAYLOAD
from campana.channels import http, netguard
from campana.operations.deliveries import compact

BODY = compact(PAYLOAD)
HEADERS = (("Content-Type", "application/json"),)
WARM_UP = 200
# The plain SQL of the one-table layout, as it was when the layout was chosen; it is not typed.
schema: Any = importlib.import_module("bench.schema")


async def _store(url: str) -> Any:
    scheme = url.partition(":")[0].partition("+")[0]
    kind, place = {
        "postgresql": (schema.Postgres, url.replace("+asyncpg", "")),
        "mysql": (schema.MariaDB, url.replace("+asyncmy", "")),
        "sqlite": (schema.SQLite, url.removeprefix("sqlite:///")),
    }[scheme]
    store = await kind().open(place)
    await schema.reset(store, "a")
    return store


def _client() -> http.Client:
    return http.Client(netguard.Rules(allow=netguard.networks(("127.0.0.0/8",))), per_host=IN_FLIGHT)


async def _permit() -> bool:
    return True


async def _post(client: http.Client, url: str) -> None:
    request = http.Request(method="POST", url=netguard.parse(url), headers=HEADERS, body=BODY)
    answer = await client.send(request, _permit)
    assert isinstance(answer, http.Response), answer
    assert answer.status == 200, answer


async def lateness(url: str, receiver: str, count: int, start: float, rate: float) -> None:
    """Everything has been inserted and posted, each as soon as it was due."""
    store, client = await _store(url), _client()
    for number in range(count):
        due = start + number / rate
        # a loop's timer may be up to a millisecond early
        while (left := due - time.time()) > 0:  # noqa: ASYNC110 - it waits for the time itself
            await asyncio.sleep(left)
        await store.intake("a", schema.make_rows(1, keyed=False))
        await _post(client, f"{receiver}/j/{number}/{round(due * 1e6)}")
    await client.close()


async def bare_client(receiver: str, count: int) -> None:
    """Print the requests per second."""
    client = _client()

    async def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            await _post(client, f"{receiver}/j/{number}")

    async def all_of(numbers: Iterator[int]) -> None:
        await asyncio.gather(*(work(numbers) for _ in range(IN_FLIGHT)))

    await all_of(iter(range(WARM_UP)))
    begin = time.perf_counter()
    await all_of(iter(range(WARM_UP, WARM_UP + count)))
    print(count / (time.perf_counter() - begin))
    await client.close()


async def insert(url: str, count: int) -> None:
    """Print the rows per second, on one connection, one after the other."""
    store = await _store(url)
    rows = [schema.make_rows(1, keyed=False) for _ in range(count)]
    begin = time.perf_counter()
    for row in rows:
        await store.intake("a", row)
    print(count / (time.perf_counter() - begin))


async def many(url: str, count: int) -> None:
    """Print the rows per second, 500 in each INSERT."""
    store = await _store(url)
    batches = [schema.make_rows(500, keyed=False) for _ in range(count // 500)]
    begin = time.perf_counter()
    for batch in batches:
        await store.intake("a", batch)
    print(count // 500 * 500 / (time.perf_counter() - begin))


async def load(url: str, count: int, together: int, key: str, body: str) -> None:
    """Print the requests per second that an API accepts."""
    client, numbers = _client(), iter(range(WARM_UP + count))
    headers = (("Content-Type", "application/json"), ("Authorization", f"Bearer {key}"))
    request = http.Request(method="POST", url=netguard.parse(url), headers=headers, body=body.encode())
    begin = 0.0

    async def work() -> None:
        nonlocal begin
        for number in numbers:
            if number == WARM_UP:
                begin = time.perf_counter()
            answer = await client.send(request, _permit)
            assert isinstance(answer, http.Response), answer
            assert answer.status == 201, answer

    await asyncio.gather(*(work() for _ in range(together)))
    print(count / (time.perf_counter() - begin))
    await client.close()


async def drain(url: str, count: int) -> None:
    """Print the rows per second that are claimed, settled and given their attempt, on one connection."""
    store = await _store(url)
    for _ in range(count // 500):
        await store.intake("a", schema.make_rows(500, keyed=False, spread=10**6))
    await store.analyze()
    begin = time.perf_counter()
    await schema.drain(store, "a", count // 500 * 500, [])
    print(count // 500 * 500 / (time.perf_counter() - begin))


def _main(command: str, *words: str) -> None:
    try:
        import uvloop
    except ImportError:
        go: Any = asyncio.run
    else:
        go = uvloop.run
    match command:
        case "lateness":
            url, receiver, count, start, rate = words
            go(lateness(url, receiver, int(count), float(start), float(rate)))
        case "client":
            go(bare_client(words[0], int(words[1])))
        case "insert":
            go(insert(words[0], int(words[1])))
        case "drain":
            go(drain(words[0], int(words[1])))
        case "many":
            go(many(words[0], int(words[1])))
        case "load":
            url, count, together, key, body = words
            go(load(url, int(count), int(together), key, body))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    _main(*sys.argv[1:])
