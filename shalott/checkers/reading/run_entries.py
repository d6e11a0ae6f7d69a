"""A run's history as judges read it: its clients' operations as entries, a source for each key.

An operation is a row; its invocation and its completion become two entries with the row's index, in
the order of the run's one clock, invocations first where two are equal. What came back corrupted
is of unknown content: it counts as without an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from shalott.checkers.reading.edn import encode
from shalott.checkers.reading.entries import EntrySource
from shalott.core.json_value import Json, JsonObject

if TYPE_CHECKING:
    from shalott.core.history import History

_COLUMNS: Final = (
    *("index", "process", "node", "f", "key", "value", "offset", "type"),
    *("invoke_ns", "complete_ns", "error", "extra"),
)
_CORRUPTED: Final = "corrupted"
REBALANCES: Final = "rebalance_log"


_Events = list[tuple[int, int, str]]  # when, whether it is an end, the entry


def sources_by_key(history: History, fs: tuple[str, ...] = ()) -> Iterator[tuple[str, EntrySource]]:
    """Each key of the clients' operations ``fs`` (() is all), with what was done on it."""
    by_key: dict[str, _Events] = {}
    columns = [history.ops[name].to_pylist() for name in _COLUMNS]
    for index, process, node, f, key, value, offset, kind, begin, end, error, extra in zip(
        *columns, strict=True
    ):
        if process < 0 or (fs and f not in fs):
            continue
        kind = "info" if error == _CORRUPTED else kind
        shown = _shown(value, extra)
        told = f":process {process} :f :{f} :index {index} :node {encode(node)}"
        if offset is not None:
            told += f" :offset {offset}"
        events = by_key.setdefault(key, [])
        asked = "nil" if kind == "ok" and f in ASKS_NOTHING else shown
        events.append((begin, 0, f"{{:type :invoke {told} :time {begin} :value {asked}}}\n"))
        if end is None:
            continue
        why = f" :error {encode(error)}" if error else ""
        why += _moved(extra)
        events.append((end, 1, f"{{:type :{kind} {told} :time {end} :value {shown}{why}}}\n"))
    for key, events in by_key.items():
        events.sort(key=lambda event: event[:2])
        yield key, EntrySource.of_text("".join(line for _, _, line in events).encode())


# What these return is not what they were asked for; all others bring the value that they write.
ASKS_NOTHING: Final = ("read", "generate", "dequeue", "drain", "poll", "get")


def _shown(value: int | None, extra: str | None) -> str:
    if extra and '"value"' in extra:
        told: JsonObject = msgspec.json.decode(extra)
        if "value" in told:
            return edn_of(told["value"])
    return "nil" if value is None else str(value)


def _moved(extra: str | None) -> str:
    """What a group moved while a client polled: of extra, it is all that a judge reads beside."""
    if not extra or f'"{REBALANCES}"' not in extra:
        return ""
    told: JsonObject = msgspec.json.decode(extra)
    return f" :{REBALANCES} {edn_of(told[REBALANCES])}" if REBALANCES in told else ""


def edn_of(value: Json) -> str:
    """A value of JSON as EDN: arrays are vectors, objects maps with strings as keys."""
    if isinstance(value, list):
        return f"[{' '.join(map(edn_of, value))}]"
    if isinstance(value, dict):
        return f"{{{' '.join(f'{encode(key)} {edn_of(each)}' for key, each in value.items())}}}"
    return encode(value)
