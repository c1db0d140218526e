"""The processes under test: started, killed, frozen, and started again whenever they end, as a supervisor would."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


async def pause(seconds: float) -> None:
    """That long has passed: load and faults come at their own pace, whatever the system under test does meanwhile."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A process that ended without being told to."""

    name: str
    at: float
    code: int
    had_started: bool
    said: str


class Program:
    """One program under supervision; each of its lives has a log of its own."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path, *, ready: str = "") -> None:
        """Nothing runs yet; `ready` is what a life's log contains once it has started."""
        self.name = name
        self.deaths: list[Death] = []
        self.killed: dict[Path, float] = {}
        self._command = command
        self._env = {**os.environ, **env}
        self._folder = folder
        self._ready = ready
        self._lives = 0
        self._is_wanted = True
        self._is_killed = False
        self._process: asyncio.subprocess.Process | None = None
        self._supervision: asyncio.Task[None] | None = None

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.{self._lives:03}.log"

    @property
    def is_up(self) -> bool:
        """Say whether it runs and has said that it is ready."""
        running = self._process is not None and self._process.returncode is None
        return running and self._ready in self.log.read_text(errors="replace")

    async def start(self) -> None:
        """It runs, and will be started again until `stop`."""
        await self._live()
        self._supervision = asyncio.create_task(self._supervise())

    def kill(self) -> bool:
        """It has ended at once; False if it was not running."""
        self._is_killed = True
        self.killed[self.log] = time.time()
        return self._signal(signal.SIGKILL)

    def freeze(self) -> bool:
        """It stands still; False if it was not running."""
        return self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on, as if no time had passed for it."""
        self._signal(signal.SIGCONT)

    async def stop(self, *, within: float = 15) -> int | None:
        """It has ended in good order; its exit code, or None if it had to be killed."""
        self._is_wanted = False
        code = None
        if self._process is not None:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                code = await asyncio.wait_for(self._process.wait(), within)
            self._signal(signal.SIGKILL)
            await self._process.wait()
        if self._supervision is not None:
            await self._supervision
        return code

    def _signal(self, number: signal.Signals) -> bool:
        if self._process is None or self._process.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
            return True
        return False

    async def _live(self) -> None:
        self._lives += 1
        self._is_killed = False
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, cwd=self._folder
            )

    async def _supervise(self) -> None:
        while (process := self._wanted_process()) is not None:
            code = await process.wait()
            if self._wanted_process() is None:
                return
            if not self._is_killed:
                said = self.log.read_text(errors="replace")
                had_started = bool(self._ready) and self._ready in said
                self.deaths.append(
                    Death(name=self.log.name, at=time.time(), code=code, had_started=had_started, said=said[-1500:])
                )
                await pause(0.3)
            if self._wanted_process() is not None:
                await self._live()

    def _wanted_process(self) -> asyncio.subprocess.Process | None:
        return self._process if self._is_wanted else None
