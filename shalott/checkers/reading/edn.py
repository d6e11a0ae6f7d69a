"""EDN values (https://github.com/edn-format/edn) to hashable Python values, and back.

Only single values come here, each distinct one once: entries are read by the engine
(engine/read_edn.c). Keywords become Keyword, strings str, vectors and lists tuple, sets frozenset,
maps MapPairs (history/column_values.py); a tag is left out and its value kept.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final

from shalott.checkers.history.column_values import JsonPairs, Keyword, MapPairs, Symbol
from shalott.checkers.history.value_text import value_text

__all__ = [
    "KEYED_COMMENT",
    "SHORT",
    "EdnError",
    "EdnMap",
    "Keyword",
    "Symbol",
    "as_value",
    "decode",
    "encode",
    "json_encode",
    "json_value",
]


class EdnError(ValueError):
    """A value is malformed: says how."""


_TOKEN: Final = re.compile(
    r"""[\s,]+                          # space
      | ;[^\n]*                         # a comment
      | (?P<string>\#?"(?:[^"\\]|\\.)*")
      | (?P<character>\\.[^\s,()\[\]{}";]*)
      | (?P<discard>\#_)
      | (?P<set>\#\{)
      | (?P<tag>\#[^\s,()\[\]{}";\#][^\s,()\[\]{}";]*)
      | (?P<bracket>[()\[\]{}])
      | (?P<atom>\#\#[^\s,()\[\]{}";]+
                  |[^\s,()\[\]{}";\\\#][^\s,()\[\]{}";\\]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?\d+N?")
_FLOAT: Final = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
_RATIO: Final = re.compile(r"([+-]?\d+)/(\d+)")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {
    "t": "\t", "r": "\r", "n": "\n", "b": "\b", "f": "\f", "\\": "\\", '"': '"',
}  # fmt: skip
_CHARACTERS: Final = {
    "newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f",
    "backspace": "\b",
}  # fmt: skip
_SPECIAL: Final = {
    "nil": None, "true": True, "false": False,
    "##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan"),
}  # fmt: skip
# The first line of what ``shalott export`` writes with keyed values; it is read back by it.
KEYED_COMMENT: Final = "; values are [key value]"
SHORT: Final = 64  # of a vector of numbers that is not worth the tokens
_CLOSERS: Final = {"(": ")", "[": "]", "{": "}", "#{": "}"}


def decode(text: str) -> Hashable:
    """The one value that ``text`` holds. Raises EdnError."""
    if len(text) > 1 and text[0] == text[-1] == '"' and text.count('"') == 2 and "\\" not in text:
        return text[1:-1]
    if text[:1] == ":" and len(text) > 1:
        return Keyword(text[1:])
    if text[:1] == "[" and text[-1] == "]" and len(text) <= SHORT and text.isascii():
        words = text[1:-1].split()
        if all(word.isdecimal() for word in words):
            return tuple(map(int, words))
    return _Decoder(text).only()


class EdnMap(dict[Hashable, Hashable]):
    """A map that may be a key or a member of a set. It is not to be changed."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def encode(value: Hashable) -> str:
    """``value`` as EDN."""
    return value_text(value, colon=" ")


class _Decoder:
    """The tokens of one value, taken from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def only(self) -> Hashable:
        value = self._value()
        if self._peek() is not None:
            raise EdnError(f"{self._shown()} stands behind a value")
        return value

    def _shown(self) -> str:
        rest = self._text[self._at :]
        return repr(rest if len(rest) <= 40 else rest[:37] + "...")

    def _peek(self) -> re.Match[str] | None:
        """The next token that means something, the discarded left out; None: there is none."""
        while self._at < len(self._text):
            token = _TOKEN.match(self._text, self._at)
            if token is None:
                raise EdnError(f"{self._shown()} is no value")
            if token.lastgroup is None:
                self._at = token.end()
            elif token.lastgroup == "discard":
                self._at = token.end()
                self._value()
            else:
                return token
        return None

    def _value(self) -> Hashable:
        token = self._peek()
        if token is None:
            raise EdnError("a value is missing")
        text = token[0]
        if token.lastgroup == "bracket" and text not in _CLOSERS:
            raise EdnError(f"a value is missing before {text!r}")
        self._at = token.end()
        if token.lastgroup in ("bracket", "set"):
            return self._collection(text)
        if token.lastgroup == "tag":
            return self._value()
        if token.lastgroup == "string":
            return text[2:-1] if text[0] == "#" else _unescaped(text[1:-1])
        return _character(text[1:]) if token.lastgroup == "character" else _atom(text)

    def _collection(self, opener: str) -> Hashable:
        values: list[Hashable] = []
        while (token := self._peek()) is not None:
            if token[0] == _CLOSERS[opener] and token.lastgroup == "bracket":
                self._at = token.end()
                return _collected(opener, values)
            values.append(self._value())
        raise EdnError(f"{opener!r} is not closed")


def _collected(opener: str, values: list[Hashable]) -> Hashable:
    if opener in "([":
        return tuple(values)
    if opener == "#{":
        return frozenset(values)
    if len(values) % 2:
        raise EdnError("a map has a key without a value")
    return MapPairs(zip(values[::2], values[1::2], strict=True))


def _atom(text: str) -> Hashable:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INTEGER.fullmatch(text):
        return _integer(text.removesuffix("N"))
    if _FLOAT.fullmatch(text):
        return _decimal(text[:-1]) if text.endswith("M") else float(text)
    ratio = _RATIO.fullmatch(text)
    if ratio and (denominator := _integer(ratio[2])):
        return Fraction(_integer(ratio[1]), denominator)
    if text[0] in "0123456789" or text in (":", "::"):
        raise EdnError(f"{text!r} is no value")
    return Keyword(text[1:]) if text[0] == ":" else text


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:  # sys.set_int_max_str_digits: it would take too long to read
        raise EdnError(f"{text[:20]}… is a number of {len(text):,} digits") from error


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise EdnError(f"{text[:40]}M has an exponent that is too large") from error


def _character(text: str) -> str:
    if len(text) == 1:
        return text
    if text in _CHARACTERS:
        return _CHARACTERS[text]
    if re.fullmatch(r"u[0-9a-fA-F]{4}", text):
        return chr(int(text[1:], 16))
    if re.fullmatch(r"o[0-7]{1,3}", text):
        return chr(int(text[1:], 8))
    raise EdnError(f"\\{text} is no character")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(escape: re.Match[str]) -> str:
    name = escape[1]
    if name in _ESCAPES:
        return _ESCAPES[name]
    if name[0] == "u" and len(name) == 5:
        return chr(int(name[1:], 16))
    if name[0] in "01234567":
        return chr(int(name, 8))
    raise EdnError(f"\\{name} is no escape in a string")


# JSON values to the hashable Python values that EDN's become (edn.py), for one meaning of both.
#
# Arrays become tuples, objects JsonPairs, equal to the maps of EDN. JSON has no sets: an array is a
# set to a model that wants one.


def json_value(text: str) -> Hashable:
    """The one value that ``text`` holds. Raises EdnError: it is malformed."""
    import json  # most recordings hold integers only

    try:
        return as_value(json.loads(text))
    except ValueError as error:
        raise EdnError(f"{text[:40]!r} is no value: {error}") from error


def json_encode(value: Hashable) -> str:
    """``value`` as JSON; what JSON has not (sets, keys that are no strings) as an array or by its
    text."""
    import json

    if isinstance(value, EdnMap):
        named = (
            (key if isinstance(key, str) else encode(key), each) for key, each in value.items()
        )
        pairs = (f"{json.dumps(str(key))}: {json_encode(each)}" for key, each in named)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, frozenset):
        return f"[{', '.join(sorted(json_encode(each) for each in value))}]"
    if isinstance(value, tuple):
        return f"[{', '.join(json_encode(each) for each in value)}]"
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(str(value))


def as_value(value: object) -> Hashable:
    """What Python's parsers give, as a value of a history: also Arrow's lists, dicts and bytes."""
    if isinstance(value, list | tuple):
        return tuple(as_value(each) for each in value)
    if isinstance(value, dict):
        return JsonPairs((name, as_value(each)) for name, each in value.items())
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    known: Hashable = value
    return known
