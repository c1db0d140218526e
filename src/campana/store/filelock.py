"""One engine per SQLite file: an OS lock on a file beside it, which dies with its process whatever kills it."""

import fcntl
import os
from pathlib import Path
from typing import Self

from sqlalchemy import make_url

from campana.errors import LockedError


class FileLock:
    """Held from `take` until `give_back` or the process's end."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def take(cls, url: str) -> Self:
        """Take the lock of the file behind this URL, or raise LockedError with the holder's process id."""
        path = Path(str(make_url(url).database) + ".engine-lock")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise LockedError(
                f"another engine (process {holder}) already runs on {path.with_suffix('').name}: stop it first, "
                "or use a database server for several engines"
            ) from None
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        return cls(handle)

    def give_back(self) -> None:
        """Let the next engine take over."""
        os.close(self._handle)
