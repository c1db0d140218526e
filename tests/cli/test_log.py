"""The log in a storm: the first lines of each second and the number of the rest, while counters and listeners hear of all."""

from __future__ import annotations

import logging
from typing import Any

from campana.telemetry import MOST_A_SECOND, Telemetry


class Page:
    """A log that remembers its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def is_enabled_for(self, level: int) -> bool:
        return level >= logging.INFO

    def log(self, level: int, name: str, **fields: Any) -> None:
        del level
        self.lines.append((name, fields))


def test_of_thousands_of_failures_within_a_second_the_log_gets_the_first_and_the_number_of_the_rest() -> None:
    page, now = Page(), [100.5]
    telemetry = Telemetry(page, steady=lambda: now[0])
    heard: list[str] = []
    telemetry.listen(lambda name, _: heard.append(name))
    for number in range(5_000):
        telemetry.emit(logging.ERROR, "delivery.failed", number=number)
    telemetry.emit(logging.ERROR, "another")
    assert [name for name, _ in page.lines] == ["delivery.failed"] * MOST_A_SECOND + ["another"]
    now[0] += 1
    telemetry.emit(logging.ERROR, "delivery.failed", number=5_000)
    left_out = ("log.left_out", {"of": "delivery.failed", "lines": 5_000 - MOST_A_SECOND})
    assert page.lines[-2:] == [left_out, ("delivery.failed", {"number": 5_000})]
    assert telemetry.counts["delivery.failed"] == heard.count("delivery.failed") == 5_001


def test_what_is_work_as_usual_is_never_left_out() -> None:
    page = Page()
    telemetry = Telemetry(page, steady=lambda: 0.0)
    for _ in range(5_000):
        telemetry.emit(logging.INFO, "delivery.completed")
    assert len(page.lines) == 5_000
