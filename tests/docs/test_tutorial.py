"""The tutorial, done as its reader would: each command is typed, and shows what the page says."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.docs import console
from tests.docs.console import Step


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_does_what_it_shows(root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "tutorial.md").read_text(encoding="utf-8")
    # A machine may have its own servers on these.
    ports = {name: str(_free_port()) for name in ("8000", "9000", "9001")}
    page = re.sub("|".join(ports), lambda found: ports[found[0]], page)
    steps = console.steps(page)
    assert len(steps) > 10
    with console.terminal(root, CAMPANA_DATA=str(tmp_path), CAMPANA_PORT=ports["8000"]) as here:
        for step in steps:
            here.do(step)


def test_a_page_is_read_as_commands_and_what_they_show() -> None:
    page = "Text\n```console\n$ one --a\nsays …\n$ two\n```\n```python\n$ no\n```\n```console\n$ three\n…\nend\n```\n"
    assert console.steps(page) == [
        Step(command="one --a", shows="says …"),
        Step(command="two", shows=""),
        Step(command="three", shows="…\nend"),
    ]


@pytest.mark.parametrize(("shows", "said"), [("fine", "fine\nmore\n"), ("a …", "b c\n"), ("", "x\n"), ("…\nend", "a\nb\n")])
def test_what_is_not_as_shown_is_seen(tmp_path: Path, shows: str, said: str) -> None:
    with console.terminal(tmp_path) as here:
        here.do(Step(command="printf 'a\\nb c\\nend\\n'", shows="a\n…\nend"))
        here.do(Step(command="(exit 4)", shows=""))
        here.do(Step(command="echo $?", shows="4"))
        with pytest.raises(AssertionError, match="expected:"):
            here.do(Step(command=f"printf '{said}'", shows=shows))
