"""What stands between `{{` and `}}` in a body template: a path or a literal, and filters.

    expression = (path | literal) { "|" name [":" literal { "," literal }] } "}}"
    path       = name { "." name | "." digits | "[" digits "]" | "[" text "]" }
    literal    = 'text' | "text" | number | true | false | null

Blanks may stand between any two words. Text has no escapes: what holds one kind of quote is written in the other.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from campana.domain.template_filters import FILTERS, Bound

LONGEST = 1_000
"""Characters of an expression."""
MOST_STEPS = 32
MOST_FILTERS = 10

# Blanks of ASCII alone: one that can't be seen must not change what a template means.
_BLANKS = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[^\W\d][\w-]*")
_DIGITS = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,9})?(?![\w.])")
_WORDS = {"true": True, "false": False, "null": None}


class BadExpressionError(ValueError):
    """An expression that can't be read; `code` says why, for programs."""

    def __init__(self, code: str, detail: str) -> None:
        """Keep both."""
        self.code = code
        super().__init__(detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A filter with its arguments."""

    name: str
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """Where a value comes from, and what is done to it."""

    path: Sequence[str]
    literal: Any
    """The value itself, where there is no path."""
    filters: Sequence[Call]


class Reader:
    """Reads one expression; `at` is where it stands, also after a fault."""

    def __init__(self, text: str, at: int) -> None:
        """Stand behind the braces that open it."""
        self.at = at
        self.is_over = False
        """True once the closing braces were read: what is wrong then is what the expression says, not how it is spelled."""
        # Nothing beyond is ever looked at, so that a template without ends is not read again and again.
        self._text = text[at : at + LONGEST]
        self._begin = at

    def expression(self) -> Expression:
        """Read up to and with the closing braces."""
        path, literal = self._value()
        calls: list[tuple[str, list[Any]]] = []
        while self._take("|"):
            calls.append(self._call())
            if len(calls) > MOST_FILTERS:
                raise BadExpressionError("too_many", f"expected at most {MOST_FILTERS} filters in an expression")
        if not self._take("}}"):
            raise self._unexpected("expected `}}`, or `|` and a filter")
        self.is_over = True
        return Expression(path=path, literal=literal, filters=[_bind(name, arguments) for name, arguments in calls])

    def _value(self) -> tuple[tuple[str, ...], Any]:
        read, literal = self._literal()
        if read:
            return (), literal
        name = self._match(_NAME)
        if name is None:
            raise self._unexpected("expected a path such as payload.name")
        if name in _WORDS:
            return (), _WORDS[name]
        path = [name]
        while (step := self._step()) is not None:
            path.append(step)
            if len(path) > MOST_STEPS:
                raise BadExpressionError("too_deep", f"expected a path of at most {MOST_STEPS} steps")
        return tuple(path), None

    def _step(self) -> str | None:
        if self._take("."):
            step = self._match(_NAME) or self._match(_DIGITS)
            if step is None:
                raise self._unexpected("expected a name or a place in a list after the dot")
            return step
        if not self._take("["):
            return None
        step = self._match(_DIGITS)
        if step is None:
            step = self._text_literal()
        if step is None:
            raise self._unexpected("expected a place in a list, or a name between quotes")
        if not self._take("]"):
            raise self._unexpected("expected `]`")
        return step

    def _call(self) -> tuple[str, list[Any]]:
        name = self._match(_NAME)
        if name is None:
            raise self._unexpected("expected the name of a filter")
        arguments: list[Any] = []
        if self._take(":"):
            arguments.append(self._argument())
            while self._take(","):
                arguments.append(self._argument())
        return name, arguments

    def _argument(self) -> Any:
        read, literal = self._literal()
        if read:
            return literal
        word = self._match(_NAME)
        if word not in _WORDS:
            raise self._unexpected("expected text between quotes, a number, true, false or null")
        return _WORDS[word]

    def _literal(self) -> tuple[bool, Any]:
        text = self._text_literal()
        if text is not None:
            return True, text
        number = self._match(_NUMBER)
        if number is not None:
            return True, float(number) if "." in number else int(number)
        return False, None

    def _text_literal(self) -> str | None:
        for quote in ("'", '"'):
            if self._take(quote):
                place = self._place
                end = self._text.find(quote, place)
                if end < 0:
                    raise self._unexpected(f"expected a closing {quote}")
                self.at = self._begin + end + 1
                return self._text[place:end]
        return None

    @property
    def _place(self) -> int:
        return self.at - self._begin

    def _skip(self) -> None:
        found = _BLANKS.match(self._text, self._place)
        if found:
            self.at = self._begin + found.end()

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._skip()
        found = pattern.match(self._text, self._place)
        if found is None:
            return None
        self.at = self._begin + found.end()
        return found[0]

    def _take(self, sign: str) -> bool:
        self._skip()
        if not self._text.startswith(sign, self._place):
            return False
        self.at += len(sign)
        return True

    def _unexpected(self, expected: str) -> BadExpressionError:
        self._skip()
        rest = self._text[self._place : self._place + 20]
        if not rest:
            end = f"nothing within {LONGEST} characters" if len(self._text) == LONGEST else "the end of the text"
            return BadExpressionError("template_syntax", f"{expected}, got {end}")
        sign = "" if rest[0].isascii() else f" (U+{ord(rest[0]):04X})"
        return BadExpressionError("template_syntax", f"{expected}, got {rest!r}{sign}")


def _bind(name: str, arguments: Sequence[Any]) -> Call:
    if name not in FILTERS:
        raise BadExpressionError("unknown_filter", f"expected one of the filters {', '.join(FILTERS)}, got {name[:40]!r}")
    try:
        return Call(name=name, bound=FILTERS[name].bind(arguments))
    except ValueError as error:
        raise BadExpressionError("filter_argument", f"`{name}`: {error}") from None
