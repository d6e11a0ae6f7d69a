"""Entries whose values are ``[key value]``, as jepsen.independent has them, key by key.

Judges know of one object. Each key becomes a history of its own, as text that entries are read of;
where the file gives no indexes, they are its lines.
"""

from __future__ import annotations

from shalott.checkers.history.value_text import value_text
from shalott.checkers.reading.entries import NEMESIS, Entry, EntrySource
from shalott.checkers.reading.history_files import JEPSEN
from shalott.core.errors import UnreadableHistory


def sources_by_key(source: EntrySource) -> dict[str, EntrySource]:
    """By the key as the file has it. Raises UnreadableHistory: a value has no key."""
    lines: dict[str, list[str]] = {}
    asked: dict[int, str] = {}  # the key of what a process has open
    for entry in source.entries():
        if entry.process == NEMESIS:
            continue
        value = entry.value
        if isinstance(value, tuple) and len(value) == 2:
            key, value = value_text(value[0]), value[1]
        elif entry.type != "invoke" and entry.process in asked:
            key, value = asked[entry.process], None
        else:
            raise UnreadableHistory(
                f"{source.name}, line {entry.line}: the history is keyed, but a value is no"
                f" [key value]: {value_text(value)}"
            )
        asked[entry.process] = key
        lines.setdefault(key, []).append(_line(entry, value_text(value, " ")))
    return {
        key: EntrySource.of_text("".join(each).encode(), JEPSEN, f"{source.name}, key {key}")
        for key, each in lines.items()
    }


def _line(entry: Entry, value: str) -> str:
    index = entry.index if entry.index >= 0 else entry.line
    time = f", :time {entry.time_ns}" if entry.time_ns >= 0 else ""
    error = "" if entry.error is None else f", :error {value_text(entry.error, ' ')}"
    return (
        f"{{:index {index}, :process {entry.process}, :type :{entry.type}, :f :{entry.f},"
        f" :value {value}{time}{error}}}\n"
    )
