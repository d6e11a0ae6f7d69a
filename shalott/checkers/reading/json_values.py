"""JSON values to the hashable Python values that EDN's become (edn.py), for one meaning of both.

Arrays become tuples, objects frozensets of (name, value) pairs. JSON has no sets: an array is a
set to a model that wants one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from shalott.checkers.reading.edn import EdnError


def json_value(text: str) -> Hashable:
    """The one value that ``text`` holds. Raises EdnError: it is malformed."""
    import json  # most recordings hold integers only

    try:
        return as_value(json.loads(text))
    except ValueError as error:
        raise EdnError(f"{text[:40]!r} is no value: {error}") from error


def as_value(value: Any) -> Hashable:
    """What Python's parsers give, as a value of a history: also Arrow's lists, dicts and bytes."""
    if isinstance(value, list | tuple):
        return tuple(as_value(each) for each in value)
    if isinstance(value, dict):
        return frozenset((name, as_value(each)) for name, each in value.items())
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    known: Hashable = value
    return known
