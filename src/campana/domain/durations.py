"""Durations as people write them: `90s`, `5m`, `24h`, `7d`, `1w`, or ISO 8601 (`PT5M`, `P1DT12H`)."""

import re
from datetime import timedelta
from decimal import Decimal

LONGEST = timedelta(days=36_525)
# Decimal and in microseconds: a float would lose the last digits of a long duration.
_MICROS = {"ms": 1_000, "s": 10**6, "m": 60 * 10**6, "h": 3_600 * 10**6, "d": 86_400 * 10**6, "w": 604_800 * 10**6}
_SHORT = re.compile(r"([0-9]{1,13}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_ISO = re.compile(
    r"P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?"
)


def parse(text: str) -> timedelta:
    """Read a duration; a unit is always required, negative ones and those over a hundred years are refused."""
    short = _SHORT.fullmatch(text)
    if short:
        return _bounded(Decimal(short[1]) * _MICROS[short[2]], text)
    iso = _ISO.fullmatch(text) if len(text) > 2 else None  # noqa: PLR2004 - a bare `P` or `PT` names no length
    if not iso:
        message = f"expected a duration such as 90s, 5m, 24h, 7d or PT5M, got {text[:60]!r}"
        raise ValueError(message)
    parts = zip(iso.groups(), ("w", "d", "h", "m", "s"), strict=True)
    return _bounded(sum((Decimal(part or 0) * _MICROS[unit] for part, unit in parts), Decimal(0)), text)


def _bounded(micros: Decimal, text: str) -> timedelta:
    if micros > LONGEST // timedelta(microseconds=1):
        message = f"expected a duration of at most a hundred years, got {text!r}"
        raise ValueError(message)
    return timedelta(microseconds=round(micros))


def show(length: timedelta) -> str:
    """Return the shortest short form that `parse` reads back to the same length."""
    micros = length // timedelta(microseconds=1)
    for unit in ("w", "d", "h", "m", "s", "ms"):
        size = _MICROS[unit]
        if micros >= size and micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{Decimal(micros).scaleb(-6):.6f}".rstrip("0").rstrip(".") + "s"
