"""What can be asked for, checked field by field: the one place where outside input becomes values of ours."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, WithJsonSchema

from campana.domain import durations, instants
from campana.errors import Fault, InvalidError

LONGEST_NAME = 255
UUID_SPELLED = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""One spelling: UUID() would also read braces, `urn:uuid:`, underscores and the digits of other scripts."""
MOST_ENTRIES = 100
"""What can be listed in a field holds fewer; `_FREE` fields hold what they like."""
_FREE = {"payload", "target"}
MOST_FAULTS = 100
"""More are not told: an answer must not outgrow the question."""


class BadError(ValueError):
    """A value that has the right type and is not acceptable; `code` says why, for programs."""

    def __init__(self, code: str, detail: object) -> None:
        self.code = code
        super().__init__(str(detail))


def _duration(text: str) -> str:
    try:
        durations.parse(text)
    except ValueError as error:
        raise BadError("duration", error) from None
    return text


def _instant(text: str) -> str:
    try:
        instants.parse(text)
    except ValueError as error:
        raise BadError("instant", error) from None
    return text


def _id(text: str) -> str:
    if not UUID_SPELLED.fullmatch(text):
        raise BadError("id", f"expected an id such as 0199f0c2-5b6e-7d3a-9c1f-2a4b6c8d0e1f, got {text!r}")
    return text


def _positive(text: str) -> str:
    if durations.parse(_duration(text)) <= timedelta(0):
        raise BadError("duration", f"expected a duration longer than nothing, got {text!r}")
    return text


PositiveLength = Annotated[
    str,
    StringConstraints(max_length=60),
    AfterValidator(_positive),
    WithJsonSchema({"type": "string", "maxLength": 60, "examples": ["60s", "5m", "PT5M"]}),
]
At = Annotated[
    str, StringConstraints(max_length=60), AfterValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
Id = Annotated[str, StringConstraints(max_length=36), AfterValidator(_id), WithJsonSchema({"type": "string", "format": "uuid"})]
Key = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=63)]
STATUSES = Literal[
    "scheduled", "processing", "in_progress", "pending_retry", "completed", "dead_letter", "declined", "skipped", "cancelled"
]
OUTCOMES = Literal["failed", "timed_out", "ambiguous", "no_answer", "busy", "voicemail", "rescheduled"]


class Strict(BaseModel):
    """Refuses what it does not know, and what is of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RetryWanted(Strict):
    """When to try again; what is left out follows the installation's defaults."""

    max_attempts: int | None = Field(None, ge=1, le=1_000, description="How many attempts at the most")
    backoff: Literal["exponential", "linear", "fixed"] | None = Field(None, description="How the delay grows")
    base: PositiveLength | None = Field(None, description="The first delay")
    cap: PositiveLength | None = Field(None, description="The longest delay; at least `base`, if left out")
    jitter: float | None = Field(None, ge=0, le=1, description="Fraction by which a delay may be shorter or longer")
    delays: dict[OUTCOMES, PositiveLength] | None = Field(None, description="Delay by outcome")
    only: Annotated[list[OUTCOMES], Field(max_length=20)] | None = Field(
        None, description="Outcomes that are retried; left out, all that can be"
    )
    enabled: bool | None = Field(None, description="False: never try again")


class DeliveryWanted(Strict):
    """One thing to be delivered."""

    channel: Literal["webhook", "python", "log"] = Field(description="How it is delivered")
    target: dict[str, Any] = Field(description="Where it goes, by channel: `{url, ...}`, `{handler}` or `{message}`")
    payload: Any = Field(None, description="Any JSON; a webhook's body, or the data of its `body_template`")
    at: Annotated[str, StringConstraints(max_length=60)] | None = Field(
        None, description="When: an RFC 3339 instant, or a local time with `timezone`; now if left out"
    )
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(None, description="IANA zone of a local `at`")
    late: Literal["send", "skip"] | None = Field(
        None, description="What to do if `at` is over a minute ago; left out, it is refused"
    )
    recipient: Key | None = Field(None, description="Who is reached, as you call them")
    dedupe_key: Key | None = Field(None, description="A second delivery with the same key is the first one")
    retry: RetryWanted | None = Field(None, description="When to try again")
    on_ambiguous: Literal["retry", "hold", "reconcile"] | None = Field(
        None, description="After an attempt that may have had effect"
    )
    expires_at: At | None = Field(None, description="Not sent from this instant on")
    expires_after: PositiveLength | None = Field(None, description="Not sent from so long after it is due")
    priority: Literal["urgent", "normal", "bulk"] = Field("normal", description="Who goes first among what is due")
    project: Key | None = Field(None, description="Project by name; the key's own, else `default`, if left out")
    labels: dict[Label, Annotated[str, StringConstraints(max_length=255)]] = Field(
        default_factory=dict, max_length=32, description="Words of your own to find it by"
    )


class RescheduleWanted(Strict):
    """When something is to be sent instead."""

    at: Annotated[str, StringConstraints(max_length=60)] = Field(
        description="When: an RFC 3339 instant, or a local time with `timezone`"
    )
    timezone: Annotated[str, StringConstraints(max_length=64)] | None = Field(None, description="IANA zone of a local `at`")
    late: Literal["send"] | None = Field(None, description="Send now if `at` is over a minute ago; left out, it is refused")


class ResolveWanted(Strict):
    """What a person found out about an attempt that may have had effect."""

    effect: Literal["sent", "not_sent"] = Field(
        description="`sent`: it had its effect and is completed; `not_sent`: it had none and is sent again"
    )
    note: Annotated[str, StringConstraints(max_length=500)] | None = Field(None, description="Words for the record")


class LettersWanted(Strict):
    """Which dead letters are meant; what is left out does not narrow."""

    channel: Key | None = Field(None, description="Only on this channel")
    recipient: Key | None = Field(None, description="Only to this recipient")
    project: Key | None = Field(None, description="Only of this project, by name")
    dedupe_key: Key | None = Field(None, description="Only with this key")
    provider_call_id: Key | None = Field(None, description="Only with this id of the provider")
    schedule_id: Id | None = Field(None, description="Only made by this schedule")
    due_from: At | None = Field(None, description="Due at this instant or later")
    due_to: At | None = Field(None, description="Due before this instant")
    labels: dict[Label, Annotated[str, StringConstraints(max_length=255)]] = Field(
        default_factory=dict, max_length=32, description="Only with all of these words of yours"
    )


class ListWanted(LettersWanted):
    """Which deliveries a list shows; what is left out does not narrow."""

    status: list[STATUSES] = Field(default_factory=list, max_length=9, description="Only in one of these states")


class CancelManyWanted(LettersWanted):
    """Which deliveries are to be cancelled; at least one filter is needed."""

    status: list[Literal["scheduled", "processing", "in_progress", "pending_retry"]] = Field(
        default_factory=list, max_length=4, description="Only in one of these states; left out, in any that has not ended"
    )


PRIORITIES: Mapping[str, int] = {"urgent": 0, "normal": 1, "bulk": 2}
PRIORITY_WORDS = {number: word for word, number in PRIORITIES.items()}


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[M]):
    """What could be read, with a stand-in for each field that could not; `unread` names those, and `faults` says why."""

    wanted: M
    unread: frozenset[str]
    faults: list[Fault]


def read_delivery(said: Any) -> Reading[DeliveryWanted]:
    """Read as much of a delivery as can be read."""
    return read(DeliveryWanted, said, {"channel": "log", "target": {}})


def read(model: type[M], said: Any, stand_ins: Mapping[str, Any]) -> Reading[M]:
    """Read as much as can be read, so that whoever checks the rest can tell all faults at once."""
    crowded: list[Fault] = []
    if isinstance(said, dict):
        said, crowded = _sparse(model, said)
    try:
        if not crowded:
            return Reading(wanted=model.model_validate(said), unread=frozenset(), faults=[])
        model.model_validate(said)
        told = []
    except ValidationError as error:
        told = error.errors(include_url=False)
    if not isinstance(said, dict):
        raise InvalidError(*faults(told[:MOST_FAULTS]))
    gone = {fault.pointer.split("/")[1] for fault in crowded}
    told = [one for one in told if one["type"] != "missing" or str(one["loc"][0]) not in gone]
    found = crowded + faults(told[:MOST_FAULTS])
    unread = frozenset(str(one["loc"][0]) for one in told) | gone
    legible = {name: value for name, value in said.items() if name not in unread}
    needed = {name: value for name, value in stand_ins.items() if name in unread}
    return Reading(wanted=model.model_validate(legible | needed), unread=unread, faults=found)


def _sparse(model: type[BaseModel], said: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Leave out what holds more than anybody reads: else each of a hundred thousand bad entries is told, and then cut off."""
    known = {name: value for name, value in said.items() if name in model.model_fields}
    others = dict(islice(((name, value) for name, value in said.items() if name not in known), MOST_FAULTS))
    crowded: list[Fault] = []
    for name, value in list(known.items()):
        inner = {name: value} | ({f"{name}/{_escaped(one)}": two for one, two in value.items()} if _is_few(value) else {})
        for place, entry in inner.items() if name not in _FREE else ():
            if isinstance(entry, dict | list) and len(entry) > MOST_ENTRIES:
                said_of_it = f"expected far fewer entries, got {len(entry)}"
                crowded.append(Fault(pointer=f"/{place}", code="too_long", detail=said_of_it))
                known.pop(name, None)
    return known | others, crowded


def _is_few(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MOST_ENTRIES


def faults(errors: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Return what pydantic found as pointers, codes and sentences."""
    return [
        Fault(
            pointer="".join(f"/{_escaped(part)}" for part in error["loc"] if part != "[key]"),
            code=_code(error),
            detail=_sentence(error),
        )
        for error in errors
    ]


def _code(error: Mapping[str, Any]) -> str:
    kind = str(error["type"])
    if kind == "value_error" and isinstance(bad := error["ctx"]["error"], BadError):
        return bad.code
    # One name for one mistake, whoever found it: what a program compares must not tell which library we use.
    if kind.endswith("_type"):
        return "wrong_type"
    return {"extra_forbidden": "unknown_field", "missing": "required", "literal_error": "not_one_of"}.get(kind, kind)


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "a list",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
}


def _sentence(error: Mapping[str, Any]) -> str:
    kind, given = str(error["type"]), error.get("ctx", {})
    match kind:
        case "missing":
            return "this field is required"
        case "extra_forbidden":
            return "there is no such field"
        case "value_error":
            return str(given["error"])
        case "string_too_long":
            return f"expected at most {given['max_length']} characters, got {len(error['input'])}"
        case "string_too_short":
            return "expected some text, got none"
        case "too_long":
            return f"expected at most {given['max_length']} entries, got {len(error['input'])}"
        case _ if kind in _EXPECTED:
            return f"expected {_EXPECTED[kind].format(**given)}, got {_shown(error['input'])}"
        case _:
            return str(error["msg"])


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return repr(value[:60])
        case int() | float():
            return str(value) if abs(value) < 1e18 else "a very large number"  # noqa: PLR2004 - longer than anybody reads
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return type(value).__name__


def _escaped(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
