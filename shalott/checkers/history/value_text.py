"""Values as a file has them: keywords with their colon, strings with their quotes, maps as maps.

Sentences about a history show its values in the syntax of the file that has them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final

from shalott.checkers.history.column_values import JsonPairs, Keyword, MapPairs, Symbol
from shalott.checkers.history.concurrent import FAILED, UNKNOWN

_QUOTED: Final = re.compile(r'[\\"\t\r\n\b\f]')
_QUOTES: Final = {
    "\\": "\\\\", '"': '\\"', "\t": "\\t", "\r": "\\r", "\n": "\\n", "\b": "\\b", "\f": "\\f",
}  # fmt: skip
_SPECIAL_FLOATS: Final = {"inf": "##Inf", "-inf": "##-Inf", "nan": "##NaN"}
_SYMBOL: Final = re.compile(r"[^\s,()\[\]{}\"';\\#@`~^]+")


def quoted(text: str) -> str:
    return f'"{_QUOTED.sub(lambda met: _QUOTES[met[0]], text)}"'


def value_text(value: Hashable, colon: str = ": ") -> str:
    """``value`` in the syntax that it was written in; "?" of what a crashed operation returned.

    ``colon``: what stands behind a name in an object of JSON.
    """
    if value is None:
        return "nil"
    if value is UNKNOWN or value is FAILED:
        return repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Symbol):
        return str(value)
    if isinstance(value, str):
        is_keyword = isinstance(value, Keyword) and _SYMBOL.fullmatch(value)
        return f":{value}" if is_keyword else quoted(value)
    if isinstance(value, tuple):
        return f"[{' '.join(value_text(each, colon) for each in value)}]"
    if isinstance(value, dict | MapPairs):
        return _map_text(value, colon)
    if isinstance(value, frozenset):
        return f"#{{{' '.join(sorted(value_text(each, colon) for each in value))}}}"
    if type(value).__name__ == "Decimal":
        return f"{value}M"
    if isinstance(value, float):
        return _SPECIAL_FLOATS.get(str(value), repr(value))
    return str(value)


def _map_text(value: MapPairs | dict[Hashable, Hashable], colon: str) -> str:
    between = colon if isinstance(value, JsonPairs) else " "
    items = value.items() if isinstance(value, dict) else value
    pairs = [f"{value_text(key, colon)}{between}{value_text(each, colon)}" for key, each in items]
    return f"{{{', '.join(pairs if isinstance(value, dict) else sorted(pairs))}}}"
