"""The machine under the bench: who used how much of it, and the lock that keeps two timed runs apart."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "campana-bench"
HERTZ = os.sysconf("SC_CLK_TCK")
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
_PARENT, _TIMES = 1, slice(11, 15)  # fields of /proc/<pid>/stat after the name


class BenchError(Exception):
    """A run can't be made, or what it measured does not count; the sentence says why."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the lock of timed runs: another bench of this user waits until this one's run is over."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ----------------------------------------------------------------------------------------------------------- usage


def family(pids: Iterable[int]) -> list[int]:
    """Return these processes and all that descend from them."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _fields(path):
            children.setdefault(int(fields[_PARENT]), []).append(int(path.name))
    found, waiting = [], list(pids)
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def cpu(pids: Iterable[int]) -> float:
    """Return the CPU seconds that these processes and their descendants, ended ones included, have used."""
    return sum(sum(map(int, _fields(Path(f"/proc/{pid}"))[_TIMES])) for pid in family(pids)) / HERTZ


def memory(pids: Iterable[int]) -> float:
    """Return the megabytes that these processes hold, shared pages divided among those who share them."""
    found = 0
    for pid in family(pids):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            found += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found / 1024


def busy() -> float:
    """Return the CPU seconds that the whole machine has worked since it started."""
    user, nice, system, _idle, _waiting, *rest = map(int, Path("/proc/stat").read_text("ascii").split(maxsplit=11)[1:9])
    return (user + nice + system + sum(rest)) / HERTZ


def alive(pids: Iterable[int]) -> bool:
    """Say whether all of these processes still run."""
    return all(_fields(Path(f"/proc/{pid}"))[:1] not in ([], ["Z"]) for pid in pids)


def _fields(process: Path) -> list[str]:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@dataclass(slots=True)
class Usage:
    """CPU seconds from its making to `take`: of the workers, of the database, and of others who had no business here."""

    workers: Sequence[int]
    servers: Sequence[int]
    receiver: int
    _before: tuple[float, float, float, float] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        self._before = self._now()

    def take(self) -> dict[str, float]:
        """Return what was used since."""
        workers, servers, ours, everything = (after - before for after, before in zip(self._now(), self._before, strict=True))
        return {
            "cpu_workers": round(workers, 2),
            "cpu_database": round(servers, 2),
            "cpu_foreign": round(max(0.0, everything - workers - servers - ours), 2),
        }

    def _now(self) -> tuple[float, float, float, float]:
        # workers may be children of the bench, so they are taken out of what is its own
        bench = sum(sum(map(int, _fields(Path(f"/proc/{pid}"))[_TIMES][:2])) for pid in (os.getpid(), self.receiver))
        return cpu(self.workers), cpu(self.servers), bench / HERTZ, busy()


# ------------------------------------------------------------------------------------------------------- processes


@contextlib.contextmanager
def running(
    commands: Sequence[Sequence[str]], *, env: dict[str, str], log: Path, folder: Path | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run these programs, what they say going to `log`; at the end each has ended, asked first."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("ab") as said:
            for command in commands:
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    cwd=folder,
                    start_new_session=True,
                    preexec_fn=_end_with_us,  # noqa: PLW1509 - the bench has no threads when it starts programs
                )
                processes.append(process)
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            _end(process)


def _end_with_us() -> None:
    # even if the bench is killed and can't end them itself
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(command: Sequence[str], *, env: dict[str, str], log: Path, folder: Path | None = None) -> str:
    """Return what a program wrote to its standard output; raise BenchError with the end of its log if it failed."""
    with log.open("ab") as said:
        done = subprocess.run(
            command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=said, check=False, cwd=folder, timeout=600
        )
    if done.returncode:
        raise BenchError(f"{' '.join(map(str, command[:4]))} failed ({done.returncode}); {log.name} ends with:\n{tail(log)}")
    return done.stdout.decode()


def tail(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text(errors="replace")[-1500:]


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which that part of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def describe() -> str:
    """Return one line on the machine and what runs on it."""
    with contextlib.suppress(OSError):
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else "unknown processor"
        return f"{os.cpu_count()} cores ({model}), Python {sys.version.split()[0]}"
    return f"{os.cpu_count()} cores, Python {sys.version.split()[0]}"
