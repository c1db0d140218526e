"""How an engine runs: the numbers, each with its default."""

from dataclasses import dataclass
from datetime import timedelta

from campana.domain import breakers


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator may turn."""

    tick: timedelta = timedelta(seconds=1)
    batch: int = 100
    in_flight: int = 100
    per_host: int = 20
    """How many of them may be under way to one receiver."""
    crowd: int = 40
    """So many deliveries turned away one by one make a crowd, which is put off at once."""
    breaker: breakers.Policy = breakers.DEFAULT
    lease: timedelta = timedelta(seconds=60)
    renewal: timedelta = timedelta(seconds=20)
    run_limit: timedelta = timedelta(minutes=15)
    """How long one claim may be renewed at the most: nothing stays `processing` for ever."""
    send_timeout: timedelta = timedelta(seconds=30)
    grace: timedelta = timedelta(seconds=30)
    retention: timedelta = timedelta(days=90)
    """How long what has ended is kept."""
    closed: frozenset[str] = frozenset()
    """Scopes that are off here whatever the database says."""
    hold: bool = False
    """Begin with the safe hold engaged."""
    group: int = 500
    group_wait: timedelta = timedelta(milliseconds=3)


FRESH = timedelta(seconds=1.9)
"""A send needs a tick that began less than this ago: with the tick's second it is the bound within which stops hold."""
