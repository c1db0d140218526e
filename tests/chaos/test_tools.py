"""The tools of a chaos run do what they say."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import ledger
from tests.chaos.plan import Plan
from tests.chaos.proxy import Proxy, is_commit
from tests.chaos.script import Manner, scene

POSTGRESQL_COMMIT = b"Q\x00\x00\x00\x0cCOMMIT;\x00"
MYSQL_COMMIT = b"\x07\x00\x00\x00\x03COMMIT"


@pytest.mark.parametrize("chunk", [POSTGRESQL_COMMIT, MYSQL_COMMIT])
def test_a_commit_is_known_by_its_bytes(chunk: bytes) -> None:
    assert is_commit(chunk)
    assert not is_commit(chunk.replace(b"COMMIT", b"SELECT"))
    assert not is_commit(b"X" + chunk)


@pytest.mark.parametrize("lands", [True, False])
async def test_a_swallowed_commit_is_not_answered_and_reaches_the_server_only_if_it_lands(lands: bool) -> None:
    came = asyncio.Queue[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1000):
            came.put_nowait(chunk)
            writer.write(b"done")
        came.put_nowait(b"end")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        proxy = Proxy(server.sockets[0].getsockname()[1])
        await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"a question")
        assert await reader.read(1000) == b"done"
        proxy.swallow(lands=lands)
        writer.write(MYSQL_COMMIT)
        assert await reader.read(1000) == b""
        assert await came.get() == b"a question"
        assert await came.get() == (MYSQL_COMMIT if lands else b"end")
        assert proxy.swallowed == 1
        writer.transport.abort()
        await proxy.close()


def test_a_scene_is_the_same_whenever_it_is_asked_and_every_manner_occurs() -> None:
    assert scene(1, b"body", 2) == scene(1, b"body", 2)
    assert set(Counter(scene(1, str(number).encode(), 1).manner for number in range(3000))) == set(Manner)


def test_the_order_of_faults_follows_the_seed_and_a_file_has_no_server_to_spoil() -> None:
    plan = Plan(kills=5, freezes=2, restarts=2, commits=2, seed=3)
    assert plan.order("mariadb") == plan.order("mariadb")
    assert Counter(plan.order("mariadb")) == {"kill": 5, "freeze": 2, "restart": 2, "commit": 2}
    assert Counter(plan.order("sqlite")) == {"kill": 5, "freeze": 2}


async def test_a_ledger_gives_back_what_was_added_but_for_a_line_that_was_cut_off(tmp_path: Path) -> None:
    entry = ledger.Entry(key="k", idempotency_key="i-1-x", attempt=1, body="b", at=1.5, did="answer 404", applied=False)
    book = ledger.Ledger(tmp_path / "ledger")
    await asyncio.gather(book.add(entry), book.add(entry))
    with (tmp_path / "ledger").open("a") as torn:
        torn.write('{"key": "k')
    assert ledger.read(tmp_path / "ledger") == [entry, entry]
