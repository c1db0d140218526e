"""Writes the generated pages of docs/reference from the code; `--check` only compares, and says what is stale.

A page whose module is not there yet is left alone.
"""

import argparse
import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import click

from campana import errors
from campana.cli import codes
from campana.domain import deliveries, events, template_expressions, template_filters, templates
from campana.domain.deliveries import State
from campana.operations import rendering

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
HEAD = "<!-- Written by `make docs`; change the code instead. -->\n\n"

MEANINGS = {
    State.SCHEDULED: "waits for its due time",
    State.PROCESSING: "claimed by one worker under a lease",
    State.IN_PROGRESS: "a provider accepted it; a callback will say how it ended, or its deadline will",
    State.PENDING_RETRY: "was tried, waits for its next attempt",
    State.COMPLETED: "it had its effect",
    State.DEAD_LETTER: "attempts used up, a permanent error, an ambiguous attempt that is held, or a crash loop: wants a person",
    State.DECLINED: "the recipient said no: nobody's fault",
    State.SKIPPED: "a guard, overlap, catch-up or expiry said no; the reason says which",
    State.CANCELLED: "a user, an edit or a deleted schedule withdrew it",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(value: object) -> str:
    return f"`{value}`"


# -------------------------------------------------------------------------------------------------------------- states


def states() -> str:
    """Return the page of states: a table, and the diagram of the moves that are legal."""
    rows = [
        (_code(state.word), "live" if state in deliveries.LIVE else "final", MEANINGS[state], ", ".join(_moves(state)))
        for state in State
    ]
    return (
        "# States of a delivery\n\n"
        "A live delivery has an instant at which it is looked at again; a final one has none and stays as it is. Only a dead\n"
        "letter has ways out, and each of them is a person's.\n\n"
        + table(("state", "", "meaning", "what can happen to it"), rows)
        + "\n```mermaid\nstateDiagram-v2\n"
        + "".join(f"    {line}\n" for line in _diagram())
        + "```\n"
    )


def kinds() -> str:
    """Return the page of events: one line for each kind."""
    return (
        "# Events\n\n"
        "Each change of a delivery's state is an event, written in the transaction of the change. It names the delivery, the\n"
        "`state` it came to, the `fence` of the claim that ended, and where there are any the `attempt`, its `outcome`, the\n"
        "`reason` and the `actor`. A claim has none of its own.\n\n"
        + table(("kind", "when it is written"), [(_code(kind), meaning) for kind, meaning in events.KINDS.items()])
        + "\nWhat happens to other things is an event too, written in the same way. What somebody did names the `actor`.\n\n"
        + table(("kind", "when it is written"), [(_code(kind), meaning) for kind, meaning in events.OTHERS.items()])
    )


def _moves(state: State) -> list[str]:
    return [move.value for source, move in _arrows() if source is state] or ["nothing any more"]


def _arrows() -> Mapping[tuple[State, deliveries.Move], State]:
    # In the order of states and moves, for the table itself is partly made from sets.
    return {
        (state, move): deliveries.TRANSITIONS[state, move]
        for state in State
        for move in deliveries.Move
        if (state, move) in deliveries.TRANSITIONS
    }


def _diagram() -> Iterator[str]:
    yield "[*] --> scheduled"
    labels: dict[tuple[State, State], list[str]] = {}
    for (source, move), target in _arrows().items():
        labels.setdefault((source, target), []).append(move.value)
    for (source, target), moves in labels.items():
        yield f"{source.word} --> {target.word}: {', '.join(moves)}"
    for state in State:
        if state in deliveries.FINAL and not any(source is state for source, _ in labels):
            yield f"{state.word} --> [*]"


# -------------------------------------------------------------------------------------------------------------- errors


def error_codes() -> str:
    """Return the page of errors: code, HTTP status where there is one, sentence, and what else the class says of itself."""
    statuses: Mapping[type, int] = getattr(_module("campana.web.problems"), "STATUS", {})
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.CampanaError)]
    rows = [
        (_code(kind.code), str(statuses.get(kind, "")), _code(kind.__name__), " ".join(inspect.getdoc(kind).split()))  # type: ignore[union-attr]  # a class without a docstring must stop us
        for kind in sorted(kinds, key=lambda kind: kind.code)
    ]
    return (
        "# Errors\n\nThe code never changes; programs compare it. The sentence is for people. In Python each is a class of\n"
        "`campana.errors`.\n\n" + table(("code", "HTTP", "class", "what it says"), rows)
    )


# ----------------------------------------------------------------------------------------------------------- templates

TEMPLATES = """# Body templates

A webhook's target may hold a `body_template`: the body as JSON, whose strings may hold `{{ path | filter }}`.

    {"channel": "webhook", "at": "2026-12-01T09:00", "timezone": "America/New_York",
     "payload": {"name": "Anna", "amount": 17.5},
     "target": {"url": "https://example.com/hook",
                "body_template": {"text": "Hello {{ payload.name }}, it is {{ nominal.local | time }}",
                                  "amount": "{{ payload.amount }}"}}}

sends `{"text":"Hello Anna, it is 09:00","amount":17.5}`. It is filled in once, when the delivery is made: every attempt sends
the same bytes. A delivery that is shown has the template in its `target`, and in its `payload` what came of it.

- A string that is one `{{ … }}` and nothing else becomes the value itself: a number, a list, an object. Within other text a
  value is put in as text; what is not text is written as JSON spells it.
- There is no logic, and what a value holds is never read as a template: nothing that is put in can break the JSON.
- Names of an object's members are never filled in. Braces that are meant as they stand are written `{{ '{{' }}`.
- Whatever is wrong is refused when the delivery is posted, by its place: 422, with a pointer under `/target/body_template`. That
  includes a path that leads to nothing and has no `default`.

"""


TEMPLATE_PATHS = """## Paths

Names with dots between them, places in lists from 0 (`payload.lines.0` or `payload.lines[0]`), and any other name between
quotes (`payload['my key']`). In place of a path there may be text between quotes, a number, `true`, `false` or `null`.

"""
TEMPLATE_FILTERS = """
## Filters

As many as are wanted, from left to right: `{{ payload.note | trim | truncate:80 }}`. Those that want text take numbers,
`true` and `false` too.

"""


def body_templates() -> str:
    """Return the page of body templates: paths, filters, forms of time, bounds."""
    return (
        TEMPLATES
        + TEMPLATE_PATHS
        + table(("begins with", "what it is", "goes on with"), [(_code(root), said, _members(root)) for root, said in _roots()])
        + TEMPLATE_FILTERS
        + table(
            ("filter", "what it gives", "for example", "gives"),
            [(_code(name), one.says, _code(one.example), _code(one.gives)) for name, one in template_filters.FILTERS.items()],
        )
        + "\n## Forms of `date` and `time`\n\nThey take an RFC 3339 instant. Names are English.\n\n"
        + table(("", "what it gives"), [(_code(f"%{sign}"), said) for sign, (said, _) in template_filters.DIRECTIVES.items()])
        + "\n## Bounds\n\n"
        + table(("what", "at most"), [(what, f"{most:,}") for what, most in _template_bounds().items()])
    )


def _roots() -> Iterable[tuple[str, str]]:
    return [(root, rendering.SAYS[root]) for root in rendering.ROOTS]


def _members(root: str) -> str:
    known = rendering.ROOTS[root]
    return "whatever it holds" if known is None else ", ".join(_code(name) for name in known)


def _template_bounds() -> Mapping[str, int]:
    return {
        "bytes of a template, without blanks": templates.LARGEST,
        "its depth": templates.DEEPEST,
        "expressions in it": templates.MOST_EXPRESSIONS,
        "characters of an expression": template_expressions.LONGEST,
        "steps of a path": template_expressions.MOST_STEPS,
        "filters in an expression": template_expressions.MOST_FILTERS,
        "bytes of the body": templates.LARGEST_BODY,
        "bytes of all bodies of a batch that come from templates": rendering.MOST_AT_ONCE,
    }


# ------------------------------------------------------------------------------------------------------------ settings


def settings(module: ModuleType) -> str:
    """Return the page of settings: the environment variable, what it accepts, its default, and what it is for."""
    fields: Mapping[str, Any] = module.Settings.model_fields
    rows = [
        (_code(module.PREFIX + name.upper()), _accepted(field), _default(field), field.description or "")
        for name, field in fields.items()
    ]
    return "# Settings\n\n" + f"{inspect.getdoc(module)}\n\n" + table(("variable", "accepts", "default", "what it is for"), rows)


_WORDS = {bool: "`true` or `false`", int: "a whole number", float: "a number", str: "text", Path: "a path"}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _accepted(field: Any) -> str:
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    if get_origin(field.annotation) is Literal:
        return ", ".join(_code(value) for value in get_args(field.annotation))
    word = " or ".join(_WORDS.get(kind, "text") for kind in kinds)
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for rule in field.metadata
        for name, sign in _SIGNS.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([word, *bounds])


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "" if value is None else _code(str(value).lower() if isinstance(value, bool) else value)


# ------------------------------------------------------------------------------------------------------------ commands


COMMANDS = """All but `up`, `api` and `engine` end by themselves and work on the database directly, whether Campana runs or not.
What is meant for people goes to standard output, what went wrong to standard error, a line each. `--json` prints JSON alone.
Tables are as wide as the screen (80 columns where there is none; `COLUMNS` says otherwise).

What acts on deliveries takes `--tenant` and `--project`. Without them lists show the tenant `default`, and a delivery that is
named by its id is found wherever it is; with them nothing outside is reached.

The shell completes commands, options and their words: `eval "$(_CAMPANA_COMPLETE=bash_source campana)"` in `~/.bashrc`,
`eval "$(_CAMPANA_COMPLETE=zsh_source campana)"` in `~/.zshrc`, `_CAMPANA_COMPLETE=fish_source campana | source` in
`~/.config/fish/config.fish`.

"""


def commands(module: ModuleType) -> str:
    """Return the page of commands: what each does, how it is called, and its options."""
    root = click.Context(module.root, info_name="campana", **module.root.context_settings)
    ends = table(("exit code", "what it says"), [(str(code), said) for code, said in codes.MEANINGS.items()])
    return "# Commands\n\n" + COMMANDS + ends + "\n" + "\n".join(_command(root))


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    yield f"## {context.command_path}\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    yield f"    {usage}\n"
    yield table(("option", "what it does"), [(_code(name), said) for name, said in options])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command(click.Context(inner, info_name=name, parent=context))


# ----------------------------------------------------------------------------------------------------------------- api


def routes(module: ModuleType) -> str:
    """Return the page of the API's routes, from its OpenAPI document."""
    # The document is a function of the routes alone; no office is needed to describe them.
    document: Mapping[str, Any] = module.build(None).openapi()
    rows = [
        (_code(method.upper()), _code(path), said.get("summary", ""), ", ".join(sorted(said.get("responses", {}))))
        for path, methods in document["paths"].items()
        for method, said in methods.items()
    ]
    return (
        "# Routes of the API\n\nBodies, parameters and answers in full are in `/openapi.json` of a running Campana.\n\n"
        + table(("method", "path", "what it does", "answers"), rows)
    )


# --------------------------------------------------------------------------------------------------------------- pages

FROM_MODULES: Mapping[str, tuple[str, Callable[[ModuleType], str]]] = {
    "settings.md": ("campana.settings", settings),
    "cli.md": ("campana.cli.main", commands),
    "api.md": ("campana.web.app", routes),
}


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        # Only the module itself may be absent: what it imports must be there.
        if missing.name and f"{name}.".startswith(f"{missing.name}."):
            return None
        raise


def pages() -> dict[str, str]:
    """Return every generated page by its name."""
    made = {"states.md": states(), "events.md": kinds(), "errors.md": error_codes(), "templates.md": body_templates()}
    for page, (name, write) in FROM_MODULES.items():
        module = _module(name)
        if module is not None:
            made[page] = write(module)
    return {page: HEAD + text for page, text in made.items()}


def stale(folder: Path) -> Iterator[str]:
    """Yield a diff for every page that is not what the code says now."""
    for name, text in pages().items():
        path = folder / name
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        there, here = kept.splitlines(keepends=True), text.splitlines(keepends=True)
        if kept != text:
            yield "".join(difflib.unified_diff(there, here, f"docs/reference/{name}", "the code"))


def write(folder: Path) -> None:
    """Write every page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where a page is stale")
    parser.add_argument("--folder", type=Path, default=REFERENCE, help="where the pages are")
    asked = parser.parse_args()
    if not asked.check:
        write(asked.folder)
        return 0
    found = list(stale(asked.folder))
    if found:
        print("".join(found))
        print("stale pages: run `make docs`", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
