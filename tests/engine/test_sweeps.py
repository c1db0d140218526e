"""Sweeps as engines run them: what is due, one after the other, and none stopped by another."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from campana import store
from campana.engine import sweeps as runner
from campana.errors import UnavailableError
from campana.store import sweeps
from campana.store.retention import Swept
from campana.store.sweeps import SWEEPS, Sweep
from tests.engine.builders import SECOND, Bench, away, round_of, running

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Puts a sweep in the registry's first place; returns where it notes its pages."""

    def put(*, fails: bool = False, pages: int = 1) -> list[Any]:
        seen: list[Any] = []

        def work(connection: Any, **said: Any) -> Swept:
            seen.append(said["now"])
            if fails:
                raise ZeroDivisionError("a bug")
            return Swept(1, more=len(seen) < pages)

        one = Sweep(name="probe", what="a test", period=HOUR, work=work)
        every = {"probe": one, **SWEEPS}
        for module in (sweeps, runner):
            monkeypatch.setattr(module, "SWEEPS", every)
        return seen

    return put


async def _record(bench: Bench, name: str = "probe") -> Any:
    return (await bench.database.read(store.sweeps.every))[name]


async def test_each_sweep_runs_when_it_is_due_and_once_among_many_engines(bench: Bench, probe: Callable[..., list[Any]]) -> None:
    seen, engines = probe(), [bench.engine() for _ in range(3)]
    for _ in range(7):
        for engine in engines:
            await engine.sweeper.step()
        await bench.sleep(1_200)
    assert len(seen) == 3
    assert {"probe", *SWEEPS} == {*await bench.database.read(store.sweeps.every)}


async def test_a_running_engine_sweeps(bench: Bench, probe: Callable[..., list[Any]]) -> None:
    seen = probe()
    async with running(bench.engine(), bench.engine()):
        await bench.sleep(30)
    assert len(seen) == 1


async def test_one_that_fails_is_told_and_recorded_and_the_others_run(bench: Bench, probe: Callable[..., list[Any]]) -> None:
    seen = probe(fails=True)
    engine = bench.engine()
    assert await engine.sweeper.step() == len(SWEEPS) + 1
    record = await _record(bench)
    assert (record.error, record.finished_at) == ("ZeroDivisionError('a bug')", bench.now)
    assert record.next_at == bench.now + runner.AGAIN
    assert bench.telemetry.counts["sweep.failed"] == 1
    assert (await _record(bench, "lanes")).error is None
    await bench.sleep(runner.AGAIN / SECOND)
    await engine.sweeper.step()
    assert len(seen) == 2


async def test_a_sweep_rests_between_its_pages_for_as_long_as_they_take(bench: Bench, probe: Callable[..., list[Any]]) -> None:
    seen = probe(pages=4)
    engine = bench.engine()

    async def slow() -> None:
        await bench.sleep(2)

    bench.runner.before = [slow] * 100
    assert await engine.sweeper.sweep("probe") is True
    assert [(later - one) / SECOND for one, later in pairwise(seen)] == [4, 4, 4]
    assert (await _record(bench)).done == 4


async def test_it_takes_no_more_pages_in_one_run_than_allowed(
    bench: Bench, probe: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = probe(pages=100)
    monkeypatch.setattr(runner, "MOST_PAGES", 5)
    assert await bench.engine().sweeper.sweep("probe") is True
    assert len(seen) == 5


async def test_a_sweeper_frozen_for_longer_than_its_lease_is_stopped_by_its_fence(
    bench: Bench, probe: Callable[..., list[Any]]
) -> None:
    seen = probe(pages=100)
    first, second = bench.engine(), bench.engine()

    async def nothing() -> None: ...

    async def freeze() -> None:
        await bench.sleep(runner.LEASE / SECOND + 1)
        bench.runner.before.clear()
        assert await second.sweeper.sweep("probe", is_asked=True) is True

    # Its begin, two pages, and before the third it freezes.
    bench.runner.before = [nothing, nothing, nothing, freeze]
    assert await first.sweeper.sweep("probe") is True
    assert len(seen) == 100, "two pages of its own, the others of whoever took over"
    assert (await _record(bench)).done == 98
    assert bench.telemetry.counts["sweep.lost"] == 1


async def test_a_database_that_is_away_delays_sweeps_and_ends_none(bench: Bench, probe: Callable[..., list[Any]]) -> None:
    seen = probe()
    async with running(bench.engine()):
        await bench.sleep(5)
        bench.runner.broken = away
        await bench.sleep(60)
        assert seen == []
        bench.runner.broken = lambda: None
        await bench.sleep(60)
    assert len(seen) == 1
    assert bench.telemetry.counts["engine.sweep_failed"] > 0
    bench.runner.broken = away
    with pytest.raises(UnavailableError):
        await bench.engine().sweeper.step()
    bench.runner.broken = lambda: None


async def test_what_ended_is_kept_for_ninety_days_and_no_longer(bench: Bench) -> None:
    engine = bench.engine()
    it = await bench.add()
    await round_of(engine)
    await engine.relay.step()
    await bench.sleep(89 * DAY / SECOND)
    await engine.sweeper.step()
    assert (await bench.row(it)).id == it
    await bench.sleep(2 * DAY / SECOND)
    await engine.sweeper.step()
    assert [(await _record(bench, name)).done for name in ("deliveries", "events")] == [1, 2]
    assert await bench.attempts(it) == []
