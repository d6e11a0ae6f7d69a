"""Values as a person wrote them: keywords with their colon, strings with their quotes, maps as maps.

To a checker a keyword and a string of one text are one value, and a map is the set of its pairs, so
that JSON and EDN are alike to it. The types here remember which it was, for sentences only: they are
equal to what they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final

from shalott.checkers.history.concurrent import FAILED, UNKNOWN


class Keyword(str):
    """A keyword of EDN, without its colon: equal to the string of the same text."""

    __slots__ = ()


class EdnMap(frozenset[tuple[Hashable, Hashable]]):
    """The (key, value) pairs of a map: equal to the set of them."""

    __slots__ = ()


class JsonMap(EdnMap):
    """One of JSON, whose text has colons."""

    __slots__ = ()


_QUOTED: Final = re.compile(r'[\\"\t\r\n\b\f]')
_QUOTES: Final = {
    "\\": "\\\\", '"': '\\"', "\t": "\\t", "\r": "\\r", "\n": "\\n", "\b": "\\b", "\f": "\\f",
}  # fmt: skip
_SPECIAL_FLOATS: Final = {"inf": "##Inf", "-inf": "##-Inf", "nan": "##NaN"}
_SYMBOL: Final = re.compile(r"[^\s,()\[\]{}\"';\\#@`~^]+")


def quoted(text: str) -> str:
    return f'"{_QUOTED.sub(lambda met: _QUOTES[met[0]], text)}"'


def value_text(value: Hashable) -> str:
    """``value`` in the syntax that it was written in; "?" of what a crashed operation returned."""
    if value is None:
        return "nil"
    if value is UNKNOWN or value is FAILED:
        return repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        is_keyword = isinstance(value, Keyword) and _SYMBOL.fullmatch(value)
        return f":{value}" if is_keyword else quoted(value)
    if isinstance(value, tuple):
        return f"[{' '.join(map(value_text, value))}]"
    if isinstance(value, EdnMap):
        colon = ": " if isinstance(value, JsonMap) else " "
        pairs = sorted(f"{value_text(key)}{colon}{value_text(each)}" for key, each in value)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, frozenset):
        return f"#{{{' '.join(sorted(map(value_text, value)))}}}"
    if type(value).__name__ == "Decimal":
        return f"{value}M"
    if isinstance(value, float):
        return _SPECIAL_FLOATS.get(str(value), repr(value))
    return str(value)
