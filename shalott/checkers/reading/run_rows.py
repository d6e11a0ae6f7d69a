"""Entries of others' histories as a history of ours (core/history.py): a row an operation.

What our columns have no place for is not lost: ``extra`` of each row holds its entries as EDN, by
which own_entries.py gives them back as they were. Times are made to grow from entry to entry, by a
nanosecond where they don't, so that the order stays; times of the wall clock begin at 0.

What Jepsen's nemesis did becomes faults as a report draws them: from ``:start`` to ``:stop``, from
``:start-x`` to ``:stop-x``, from ``:kill`` to ``:start``, and so on. Those are rows of their own,
as ``drawn`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from shalott.checkers.history.column_values import Keyword
from shalott.checkers.reading.edn import EdnMap, encode, json_encode
from shalott.core.history import ENTRIES_KEY, HISTORY_SCHEMA
from shalott.core.op import NEMESIS

_WALL_CLOCK_NS: Final = 10**15  # a test of two weeks is none
_ENDS: Final = {"start": "stop", "kill": "start", "pause": "resume", "partition": "heal",
                "bump-clock": "reset-clock", "strobe-clock": "reset-clock"}  # fmt: skip
_OWN_WORDS: Final = (Keyword("begun"), Keyword("healed"))  # own_entries.py says so of our faults
_PREFIX: Final = "start-"
BEGIN, END, DRAWN = "edn", "edn_end", "drawn"  # of ``extra``: a row's entries; it has none

Row = dict[str, str | int | bool | None]


def rows_of_entries(entries: Iterable[EdnMap], nodes: Sequence[str] = ()) -> pa.Table:
    """``entries``: each as its whole map. ``nodes``: names by which a fault's nodes are told."""
    rows = _Rows(frozenset(nodes))
    for entry in entries:
        rows.take(entry)
    columns = {name: [row.get(name) for row in rows.rows] for name in HISTORY_SCHEMA.names}
    return pa.table(columns, schema=HISTORY_SCHEMA).replace_schema_metadata({ENTRIES_KEY: b"edn"})


class _Rows:
    def __init__(self, nodes: frozenset[str]) -> None:
        self.rows: list[Row] = []
        self._nodes = nodes
        self._open: dict[object, Row] = {}  # by process
        self._faults: dict[str, list[Row]] = {}  # by the f that ends them
        self._last: tuple[str, Row | None] | None = None  # what the nemesis said, and its fault
        self._now_ns = -1
        self._base_ns: int | None = None
        self._fault_count = 0

    def take(self, entry: EdnMap) -> None:
        at_ns = self._tick(entry.get("time"))
        if entry.get("process") == "nemesis":
            self._take_nemesis(entry, at_ns)
            return
        process = entry.get("process", 0)
        kind = str(entry.get("type"))
        row = None if kind == "invoke" else self._open.pop(process, None)
        if row is None:
            row = self._row(entry, at_ns)
            if kind == "invoke":
                self._open[process] = row
                return
        row["type"] = "ok" if kind == "ok" else "fail" if kind == "fail" else "info"
        row["complete_ns"] = at_ns
        if row["extra"] != (own := _extra(entry)):
            row["extra"] = _joined(row["extra"], own)
        if isinstance(entry.get("value"), int | None) and kind == "ok":
            row["value"] = _int64(entry.get("value"))
        if entry.get("error") is not None:
            row["error"] = _told(entry["error"])
        row["offset"] = _int64(entry.get("offset"))

    def _tick(self, time: object) -> int:
        if isinstance(time, int):
            if self._base_ns is None:
                self._base_ns = time if time > _WALL_CLOCK_NS or time < 0 else 0
            time -= self._base_ns
        self._now_ns = max(self._now_ns + 1, time if isinstance(time, int) else 0)
        return self._now_ns

    def _row(self, entry: EdnMap, at_ns: int) -> Row:
        process = entry.get("process", 0)
        row: Row = {
            "index": len(self.rows),
            "process": process if isinstance(process, int) else NEMESIS,
            "node": _told(entry.get("node", "")),
            "f": str(entry.get("f", "txn")),
            "key": _told(entry.get("key", "")),
            "value": _int64(entry.get("value")),
            "type": "info",
            "invoke_ns": at_ns,
            "extra": _extra(entry),
        }
        self.rows.append(row)
        return row

    def _take_nemesis(self, entry: EdnMap, at_ns: int) -> None:
        """It says everything twice: what it will do, and what came of it."""
        f = str(entry.get("f", ""))
        self._row(entry, at_ns)["f"] = "nemesis"
        if self._last is not None and self._last[0] == f:
            if self._last[1] is not None:
                self._name_nodes(self._last[1], entry)
            self._last = None
            return
        if entry.get("value") in _OWN_WORDS:  # of our own runs: each is told apart
            self._take_own(entry, f, at_ns)
            return
        ended = self._faults.pop(f, [])
        for fault in ended:
            fault["complete_ns"] = at_ns
        ends = f"stop-{f.removeprefix(_PREFIX)}" if f.startswith(_PREFIX) else _ENDS.get(f, "")
        begun = self._fault(entry, f, ends, at_ns) if ends and not ended else None
        self._last = f, begun

    def _take_own(self, entry: EdnMap, f: str, at_ns: int) -> None:
        told = entry.get("extra")
        fault = encode(told.get("fault")) if isinstance(told, EdnMap) else ""
        if entry.get("value") == _OWN_WORDS[0]:
            self._fault(entry, f, f"{f} {fault}", at_ns)
            return
        for begun in self._faults.pop(f"{f} {fault}", []):
            begun["complete_ns"] = at_ns

    def _fault(self, entry: EdnMap, f: str, ends: str, at_ns: int) -> Row:
        kind = str(entry.get("fault") or f.removeprefix(_PREFIX))
        row = self._row(entry, at_ns)
        told = {DRAWN: True, "fault": self._fault_count, "kind": kind, "target": ""}
        row |= {"f": kind, "extra": msgspec.json.encode(told).decode(), "value": None}
        self._fault_count += 1
        self._faults.setdefault(ends, []).append(row)
        self._name_nodes(row, entry)
        return row

    def _name_nodes(self, fault: Row, entry: EdnMap) -> None:
        told = msgspec.json.decode(str(fault["extra"]), type=dict[str, object])
        more = entry.get("extra")
        named = more.get("nodes") if isinstance(more, EdnMap) else entry.get("value")
        if found := sorted(_names(named) & self._nodes):
            told["nodes"] = found
        fault["extra"] = msgspec.json.encode(told).decode()


def _names(value: object) -> set[str]:
    """The strings in a value, as a nemesis tells its targets."""
    if isinstance(value, str):
        return {str(value)}
    if isinstance(value, Mapping):
        return {name for pair in value.items() for each in pair for name in _names(each)}
    if isinstance(value, tuple | frozenset):
        return {name for each in value for name in _names(each)}
    return set()


def _int64(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -(2**63) <= value < 2**63 else None


def _told(value: object) -> str:
    return str(value) if isinstance(value, str) else encode(value)


def _extra(entry: EdnMap) -> str:
    text = msgspec.json.encode(encode(entry)).decode()
    value = entry.get("value")
    if value is None or _int64(value) is not None:
        return f'{{"{BEGIN}":{text}}}'
    return f'{{"value":{json_encode(value)},"{BEGIN}":{text}}}'


def _joined(begin: object, end: str) -> str:
    """``extra`` of a row whose end was told, too."""
    told = msgspec.json.decode(str(begin), type=dict[str, object])
    ended = msgspec.json.decode(end, type=dict[str, object])
    told[END] = ended.pop(BEGIN)
    return msgspec.json.encode(told | ended).decode()
