"""The house's customs that no linter knows, each a function from a file to its complaints."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

MOST_LINES_IN_FILE = 400
MOST_LINES_IN_FUNCTION = 60
EMPTY_NAMES = {"utils", "util", "common", "core", "helpers", "helper", "services", "service", "managers", "manager"}

# What domain may not touch, of the standard library: time, chance, files, networks, threads, and talk.
IMPURE = {
    "asyncio",
    "concurrent",
    "ctypes",
    "ftplib",
    "http",
    "importlib",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "smtplib",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
}

# In pieces, for this file is read too.
REGISTRY_HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "npm" + "js.com",
    "yarn" + "pkg.com",
    "deb.debian" + ".org",
    "security.debian" + ".org",
    "archive.ubuntu" + ".com",
    "crates" + ".io",
    "ruby" + "gems.org",
    "maven.apache" + ".org",
    "proxy.golang" + ".org",
    "ana" + "conda.org",
]

_NOQA = re.compile(r"#\s*noqa\b(?P<rest>.*)", re.IGNORECASE)
_NOQA_REASON = re.compile(r":\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*\s+(?:-|#)\s.*\w{3}")
_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<rest>.*)")
_IGNORE_REASON = re.compile(r"\[[a-z, -]+\]\s+#\s.*\w{3}")


def too_long(source: str) -> Iterator[str]:
    lines = source.count("\n")
    if lines > MOST_LINES_IN_FILE:
        yield f"{lines} lines; expected at most {MOST_LINES_IN_FILE}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_IN_FUNCTION:
                yield f"{node.name} has {lines} lines; expected at most {MOST_LINES_IN_FUNCTION}"


def type_only_imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        named = {ast.Name: "id", ast.Attribute: "attr", ast.alias: "name"}.get(type(node))
        if named and getattr(node, named) == "TYPE_CHECKING":
            yield "TYPE_CHECKING: a type needed from above lives in the wrong layer"


def empty_names(path: Path) -> Iterator[str]:
    for name in sorted(EMPTY_NAMES & {Path(part).stem for part in path.parts}):
        yield f"{name} says nothing of what is in it"


def silence_without_reason(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        for silence, reason, form in (
            (_NOQA, _NOQA_REASON, "# noqa: CODE - reason"),
            (_IGNORE, _IGNORE_REASON, "# type: ignore[code]  # reason"),
        ):
            found = silence.search(token.string)
            if found and not reason.match(found["rest"]):
                yield f"line {token.start[0]}: expected {form}, got {token.string}"


def impure_imports(source: str) -> Iterator[str]:
    for name in _imported(ast.parse(source)):
        first = name.partition(".")[0]
        own = name == "campana" or name.startswith(("campana.domain", "campana.errors"))
        if not own and (first not in sys.stdlib_module_names or {first, name} & IMPURE):
            yield f"domain imports {name}"


def registry_hosts(text: str) -> Iterator[str]:
    for host in REGISTRY_HOSTS:
        if host in text:
            yield f"names the package registry {host}"


def places_in_lock(text: str) -> Iterator[str]:
    """A lock file names versions and hashes; where to get them is each machine's own matter."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"://|file:|\s/\w|--(extra-)?index-url|--find-links|@ ", line):
            yield f"line {number}: expected no address and no path, got {line.strip()}"


def files_of_the_repository(root: Path) -> list[Path]:
    """What is, or would be, committed; everything but hidden folders where there is no git."""
    asked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=False,
        capture_output=True,
        text=True,
    )
    if asked.returncode == 0 and asked.stdout:
        found = [root / name for name in asked.stdout.split("\0") if name]
    else:
        found = [path for path in root.rglob("*") if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    return [path for path in found if path.is_file()]


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            if node.module in {"campana", "urllib"}:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""
