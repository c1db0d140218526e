"""Body templates: JSON whose strings may hold `{{ path | filter }}`. No logic and no attributes: names lead into data alone.

A template is read once, into pieces of finished JSON with holes between them. To fill it in is to walk over the pieces, so what
comes out is always JSON: text goes into a hole escaped, a value that has a string to itself goes in as a value. What a value
holds is never read as a template again. Size, depth, the number of holes, the output and the work on the way to it are bounded;
reading and filling in take time in proportion to what is read and written.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campana.domain.template_expressions import BadExpressionError, Expression, Reader
from campana.domain.template_filters import MISSING, dumps, text_of
from campana.errors import Fault, InvalidError

LARGEST = 65_536
"""Characters of a template, written without blanks."""
DEEPEST = 32
MOST_EXPRESSIONS = 500
LARGEST_BODY = 262_144
"""Bytes of what comes of a template."""
WORK = 16
"""How many times the largest body may be read and written on the way, by all filters together."""
MOST_FAULTS = 100

Roots = Mapping[str, Collection[str] | None]
"""Where a path may begin, and what it may go on with; None where that is known only when the template is filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Where a value goes in: as it is where it has the string to itself, else as a part of text."""

    pointer: str
    expression: Expression
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A template that was read: finished JSON, and holes."""

    parts: Sequence[bytes | Hole]


def parse(value: Any, roots: Roots) -> Template:
    """Read a template; raise InvalidError with every fault, each with a JSON pointer into the template."""
    compiler = _Compiler(roots)
    _measure(value)
    compiler.read(value, "", 1)
    if compiler.faults:
        raise InvalidError(*compiler.faults[:MOST_FAULTS])
    return Template(parts=tuple(_merged(compiler.parts)))


def render(template: Template, data: Mapping[str, Any], *, at_most: int = LARGEST_BODY) -> bytes:
    """Fill a template in; raise InvalidError, and nothing else, where that can't be done."""
    meter = _Meter(size=at_most, work=at_most * WORK)
    faults: list[Fault] = []
    written: list[bytes] = []
    for part in template.parts:
        if isinstance(part, bytes):
            meter.write(len(part), "")
            written.append(part)
            continue
        try:
            filled = _fill(part, data, meter)
            meter.write(len(filled), part.pointer)
            written.append(filled)
        except (ValueError, TypeError, RecursionError) as error:
            # Data that is no JSON at all ends here too: numbers without an end, half characters, circles.
            code = error.code if isinstance(error, _UnfilledError) else "invalid"
            faults.append(Fault(pointer=part.pointer, code=code, detail=str(error)[:300]))
            if len(faults) == MOST_FAULTS:
                break
    if faults:
        raise InvalidError(*faults)
    return b"".join(written)


# --------------------------------------------------------------------------------------------------------------- reading


def _measure(value: Any) -> None:
    try:
        size = len(dumps(value).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidError(Fault(pointer="", code="invalid", detail=f"expected JSON: {str(error)[:200]}")) from None
    if size > LARGEST:
        detail = f"expected a template of at most {LARGEST} bytes, got {size}"
        raise InvalidError(Fault(pointer="", code="too_large", detail=detail))


class _Compiler:
    """Walks over a template and writes down pieces and holes; goes on after a fault."""

    def __init__(self, roots: Roots) -> None:
        self.parts: list[str | Hole] = []
        self.faults: list[Fault] = []
        self._roots = roots
        self._expressions = 0

    def read(self, value: Any, pointer: str, depth: int) -> None:
        """Read one value of the template."""
        if isinstance(value, str):
            self._read_text(value, pointer)
        elif not isinstance(value, dict | list | tuple):
            self.parts.append(dumps(value))
        elif depth > DEEPEST:
            self._fault(pointer, "too_deep", f"expected a template that is nested at most {DEEPEST} deep")
        elif isinstance(value, dict):
            self._read_object(value, pointer, depth)
        else:
            self._each("[", "]", value, lambda place, one: self.read(one, f"{pointer}/{place}", depth + 1))

    def _read_object(self, value: Mapping[Any, Any], pointer: str, depth: int) -> None:
        def member(_: int, name: Any) -> None:
            its = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
            if not isinstance(name, str) or "{{" in name:
                self._fault(its, "template_syntax", "expected a plain name: only values are filled in")
                return
            self.parts.append(f"{dumps(name)}:")
            self.read(value[name], its, depth + 1)

        self._each("{", "}", list(value), member)

    def _each(self, begin: str, end: str, every: Sequence[Any], write: Callable[[int, Any], None]) -> None:
        self.parts.append(begin)
        for place, one in enumerate(every):
            if place:
                self.parts.append(",")
            write(place, one)
        self.parts.append(end)

    def _read_text(self, text: str, pointer: str) -> None:
        start, at = 0, text.find("{{")
        if at < 0:
            self.parts.append(dumps(text))
            return
        pieces: list[str | Hole] = []
        while at >= 0:
            pieces.append(text[start:at])
            expression, start = self._expression(text, at, pointer)
            if start < 0:
                return
            if expression is not None:
                is_whole = at == 0 and start == len(text)
                pieces.append(Hole(pointer=pointer, expression=expression, is_whole=is_whole))
            at = text.find("{{", start)
        pieces.append(text[start:])
        if isinstance(hole := pieces[1], Hole) and hole.is_whole:
            self.parts.append(hole)
            return
        self.parts += ['"', *(dumps(one)[1:-1] if isinstance(one, str) else one for one in pieces), '"']

    def _expression(self, text: str, at: int, pointer: str) -> tuple[Expression | None, int]:
        """Return the expression at this place and where it ends; after a fault None, and where to go on, or -1."""
        self._expressions += 1
        if self._expressions > MOST_EXPRESSIONS:
            if self._expressions == MOST_EXPRESSIONS + 1:
                self._fault(pointer, "too_many", f"expected at most {MOST_EXPRESSIONS} expressions in a template")
            return None, -1
        reader = Reader(text, at + 2)
        try:
            expression = reader.expression()
            self._check(expression)
        except BadExpressionError as error:
            self._fault(pointer, error.code, str(error))
            end = reader.at - 2 if reader.is_over else text.find("}}", reader.at)
            return None, (end + 2 if end >= 0 else -1)
        return expression, reader.at

    def _check(self, expression: Expression) -> None:
        if not expression.path:
            return
        first = expression.path[0]
        if first not in self._roots:
            raise BadExpressionError(
                "unknown_path", f"expected a path that begins with {_listed(self._roots)}, got {first[:40]!r}"
            )
        known = self._roots[first]
        if known is not None and len(expression.path) > 1 and expression.path[1] not in known:
            its = expression.path[1][:40]
            raise BadExpressionError("unknown_path", f"expected one of {_listed(known)} in `{first}`, got {its!r}")

    def _fault(self, pointer: str, code: str, detail: str) -> None:
        self.faults.append(Fault(pointer=pointer, code=code, detail=detail))


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


def _merged(parts: Sequence[str | Hole]) -> Iterator[bytes | Hole]:
    plain: list[str] = []
    for part in parts:
        if isinstance(part, str):
            plain.append(part)
        else:
            yield "".join(plain).encode()
            plain = []
            yield part
    yield "".join(plain).encode()


# ------------------------------------------------------------------------------------------------------------ filling in


class _UnfilledError(ValueError):
    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


class _Meter:
    """What may still be written and worked; whoever goes past it is stopped at once."""

    def __init__(self, *, size: int, work: int) -> None:
        self._most = size
        self._size = size
        self._work = work

    def write(self, size: int, pointer: str) -> None:
        """Count bytes of the body."""
        self._size -= size
        if self._size < 0:
            raise InvalidError(Fault(pointer=pointer, code="too_large", detail=f"expected a body of at most {self._most} bytes"))

    def work(self, size: int, pointer: str) -> None:
        """Count characters that a filter reads or writes."""
        self._work -= size
        if self._work < 0:
            detail = f"expected filters that read and write less than {WORK} times the largest body, {self._most} bytes"
            raise InvalidError(Fault(pointer=pointer, code="too_large", detail=detail))


def _fill(hole: Hole, data: Mapping[str, Any], meter: _Meter) -> bytes:
    expression = hole.expression
    value = follow(data, expression.path) if expression.path else expression.literal
    for call in expression.filters:
        if value is MISSING and call.name != "default":
            raise _missing(expression)
        meter.work(_size(value), hole.pointer)
        try:
            value = call.bound(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise _UnfilledError("invalid", f"`{call.name}`: {str(error)[:200]}") from None
        meter.work(_size(value), hole.pointer)
    if value is MISSING:
        raise _missing(expression)
    if hole.is_whole:
        return dumps(value).encode()
    return dumps(text_of(value))[1:-1].encode()


def _size(value: Any) -> int:
    # What is no text is written once, by `json`, and counted then.
    return len(value) if isinstance(value, str) else 1


def _missing(expression: Expression) -> _UnfilledError:
    path = ".".join(expression.path)[:100]
    return _UnfilledError("missing_value", f"there is nothing at `{path}`: give it a `default`, or the data that it needs")


def follow(data: Any, path: Sequence[str]) -> Any:
    """Return what a path leads to: members of objects and places in lists, never attributes; MISSING where there is nothing."""
    value: Any = data
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step, MISSING)
        elif isinstance(value, list | tuple) and step.isascii() and step.isdigit():
            value = value[int(step)] if int(step) < len(value) else MISSING
        else:
            return MISSING
    return value
