"""What is printed for people: never wider than the screen, and nothing in it that a terminal obeys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campana.cli import tables
from campana.cli.tables import Column

COLUMNS = (Column(name="ID", width=4), Column(name="WHO", width=6), Column(name="ERROR"))


@pytest.mark.parametrize(
    ("cells", "screen", "line"),
    [
        (("1", "anna", "it broke down"), 80, "1     anna    it broke down"),
        (("1", "anna", "it broke down"), 26, "1     anna    it broke do…"),
        (("1", "anna", "it broke down"), 25, "1     anna"),
        (("1", "anna", "it broke down"), 11, "1"),
        (("12345", "annabella", "x"), 80, "123…  annab…  x"),
        (("1", "日本語です", "x"), 80, "1     日本…   x"),
        (("1", "日本語", "x"), 80, "1     日本語  x"),
        (("1", "e\u0301", "x"), 80, "1     e\u0301       x"),
    ],
)
def test_cells_are_cut_and_columns_left_out_where_there_is_no_room(cells: tuple[str, ...], screen: int, line: str) -> None:
    assert tables.line(COLUMNS, cells, screen) == line


@given(st.text(), st.text(), st.text(), st.integers(1, 200))
def test_no_text_makes_a_line_wider_than_the_screen(first: str, second: str, third: str, screen: int) -> None:
    line = tables.line(COLUMNS, (first, second, third), screen)
    assert sum(map(tables._wide, line)) <= screen
    assert tables.plain(line) == line
    assert len(line.splitlines()) <= 1


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed() -> None:
    assert tables.plain("a\x1b[2Jb\nc\u202ed\x07\u2028\x9b\x85") == "a\ufffd[2Jb c\ufffdd\ufffd\ufffd\ufffd\ufffd"
    assert tables.plain("नमस्ते \U0001f468\u200d\U0001f469") == "नमस्ते \U0001f468\u200d\U0001f469"
