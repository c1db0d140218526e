"""How a command ends: what its exit code says."""

from collections.abc import Mapping

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
ENDED_OTHERWISE = 4
NOT_YET = 5
INTERRUPTED = 130

MEANINGS: Mapping[int, str] = {
    DONE: "done; a delivery that was waited for is `completed`",
    FAILED: "failed or refused, or the database can't be used; what is printed says why",
    USAGE: "called wrongly; nothing was done",
    NOT_FOUND: "there is no such delivery, tenant, project or switch",
    ENDED_OTHERWISE: "a delivery that was waited for ended otherwise: `dead_letter`, `declined`, `skipped` or `cancelled`",
    NOT_YET: "a delivery that was waited for had not ended in time",
    INTERRUPTED: "interrupted (Ctrl-C); what was done stays done",
}
