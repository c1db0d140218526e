"""The fuzz programs: a short run of each, and that they would see what they look for."""

from __future__ import annotations

import pytest

from campana.channels import netguard
from tests.fuzz import __main__ as programs
from tests.fuzz import urls


async def test_some_thousand_urls_headers_and_answers_break_nothing() -> None:
    ends, found = await urls.fuzz(20_261_119, seconds=4.0)
    assert found == ""
    assert {end.split(":")[0] for end in ends} == {"url", "headers", "answer", "answer2", "exchange"}
    assert ends["url: reached"]


async def test_a_case_is_the_same_again() -> None:
    again = [await urls.fuzz(7, seconds=60, first=3, most=20) for _ in range(2)]
    assert again[0] == again[1]


async def test_an_address_that_gets_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netguard, "_why", lambda _: None)
    _, found = await urls.fuzz(1, seconds=30)
    assert "reached" in found
    assert found.startswith("--seed 1 --case ")


def test_a_program_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "urls" in programs.names()
    assert programs.main(["nothing"]) == 2
    assert "expected one of" in capsys.readouterr().err


def test_one_case_can_be_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main(["urls", "--seed", "7", "--case", "1"]) == 0
    assert "1  cases held" in capsys.readouterr().out
