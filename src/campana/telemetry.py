"""What happened, told after it is durable: log lines now, and whoever else listens.

One line per event, its name first, ids as fields. Levels as operators expect them: INFO for work and success, WARNING for a
retry, ERROR for what wants a person, DEBUG for lost races. Where thousands fail at once the log gets the first lines of each
second and the number of the rest; counters and listeners hear of each.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

import structlog

Listener = Callable[[str, dict[str, Any]], None]

MOST_A_SECOND = 100
"""Lines of one name from WARNING upwards that the log gets within a second."""


class Telemetry:
    """Log lines, counters, and listeners."""

    def __init__(self, log: Any = None, steady: Callable[[], float] | None = None) -> None:
        """Log to structlog unless told otherwise, and without a clock whatever comes."""
        self._log = log if log is not None else structlog.get_logger("campana")
        self._steady = steady
        self._lately: dict[str, tuple[int, int]] = {}
        self._listeners: list[Listener] = []
        self.counts: Counter[str] = Counter()

    def listen(self, listener: Listener) -> None:
        """Tell this function of every event from now on."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Tell this function no more."""
        self._listeners.remove(listener)

    def is_on(self, level: int) -> bool:
        """Say whether a line of that level would be written or heard: hot paths ask before they build one."""
        return bool(self._listeners) or self._log.is_enabled_for(level)

    def emit(self, level: int, name: str, **fields: Any) -> None:
        """Count the event, log it, and tell the listeners."""
        self.counts[name] += 1
        if self._log.is_enabled_for(level) and self._has_room(level, name):
            self._log.log(level, name, **fields)
        for listener in tuple(self._listeners):
            listener(name, fields)

    def _has_room(self, level: int, name: str) -> bool:
        if self._steady is None or level < logging.WARNING:
            return True
        second = int(self._steady())
        then, lines = self._lately.get(name, (second, 0))
        if then != second:
            if lines > MOST_A_SECOND:
                self._log.log(logging.WARNING, "log.left_out", of=name, lines=lines - MOST_A_SECOND)
            lines = 0
        self._lately[name] = second, lines + 1
        return lines < MOST_A_SECOND

    def store_call(self, name: str, seconds: float, *, failed: bool) -> None:
        """Record one store call: the span that tests and production see alike."""
        self.counts[f"store.{name}"] += 1
        if self._listeners or failed:
            self.emit(logging.DEBUG, "store.call", function=name, seconds=round(seconds, 6), failed=failed)

    def store_retry(self, name: str, attempt: int, error: BaseException) -> None:
        """Record that a transaction is run again."""
        self.emit(logging.WARNING, "store.retry", function=name, attempt=attempt, error=str(error)[:300])

    def commit_lost(self, name: str) -> None:
        """Record that a COMMIT was not answered."""
        self.emit(logging.WARNING, "store.commit_lost", function=name)


class _Forward(logging.Handler):
    """What libraries log becomes a line like ours; their stack traces stay out of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's message under its logger's name."""
        log = structlog.get_logger("campana")
        log.log(record.levelno, "library.said", logger=record.name, message=record.getMessage()[:500])


def configure(*, level: str = "INFO", form: str = "auto", stream: TextIO | None = None) -> None:
    """Set up the log: pretty on a terminal, JSON elsewhere, unless `form` says which."""
    out = stream or sys.stderr
    pretty = form == "pretty" or (form == "auto" and out.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(repr_native_str=True) if pretty else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    libraries = logging.getLogger()
    libraries.handlers = [_Forward()]
    libraries.setLevel(logging.WARNING)
