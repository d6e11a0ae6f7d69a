"""Our own runs as entries of EDN: a row of the history is an invocation and what came of it.

In the order of the run's one clock, invocations first where two are equal. The value of a row is
its column ``value``, unless ``extra`` has one under "value". ``key``, ``node``, ``offset``,
``error`` and ``extra`` are fields beside it. What the nemesis did begins and is healed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shalott.checkers.reading.edn import encode
from shalott.checkers.reading.run_entries import REBALANCES
from shalott.core.errors import UnreadableHistory
from shalott.core.json_value import Json
from shalott.core.recording import recover

_MAGIC: Final = b"PAR1"
_NEEDED: Final = ("process", "f", "type", "invoke_ns", "complete_ns")
_COLUMNS: Final = (*_NEEDED, "index", "node", "key", "value", "offset", "error", "redelivered",
                   "extra")  # fmt: skip
_ABOUT_FAULTS: Final = ("probe", "trigger")  # which name one, and are none
_ROWS_AT_ONCE: Final = 1 << 14
_ASKS_NOTHING: Final = frozenset({"read", "generate", "dequeue", "drain", "poll", "get", "remove",
                                  "pop", "deliver"})  # fmt: skip


def edn_of_own(path: Path, notes: list[str]) -> Generator[bytes, None, None]:
    """The entries of a history.parquet or a history.jsonl. Raises UnreadableHistory."""
    yield from edn_of_table(_table(path, notes))


def _table(path: Path, notes: list[str]) -> pa.Table:
    try:
        with path.open("rb") as begun:
            if begun.read(len(_MAGIC)) != _MAGIC:
                history = recover(path)
                if not history.complete:
                    notes.append("the recording was cut short: its end is missing")
                notes.extend(history.damage)
                return history.ops
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UnreadableHistory(f"cannot read {path}: {error}") from error
    missing = [name for name in _NEEDED if name not in table.column_names]
    if missing:
        raise UnreadableHistory(f"{path} is no history: it has no column {', '.join(missing)}")
    return table


def edn_of_table(table: pa.Table) -> Iterator[bytes]:
    """The entries of a history's operations, in the order of time."""
    n = table.num_rows
    begin = np.asarray(table["invoke_ns"].combine_chunks())
    end = np.asarray(table["complete_ns"].fill_null(-1).combine_chunks())
    ended = np.flatnonzero(end >= 0)
    times = np.concatenate([begin, end[ended]])
    is_end = np.concatenate([np.zeros(n, np.int8), np.ones(len(ended), np.int8)])
    rows = np.concatenate([np.arange(n), ended])
    order = np.lexsort((is_end, times))
    names = [name for name in _COLUMNS if name in table.column_names]
    for at in range(0, len(order), _ROWS_AT_ONCE):
        piece = order[at : at + _ROWS_AT_ONCE]
        taken = table.select(names).take(pa.array(rows[piece])).to_pylist()
        lines = map(_entry, taken, rows[piece].tolist(), is_end[piece].tolist())
        yield "".join(lines).encode("utf-8", "backslashreplace")


def _entry(row: dict[str, object], place: int, is_end: int) -> str:
    is_nemesis = row["process"] == -1
    process = ":nemesis" if is_nemesis else row["process"]
    index = row.get("index", place)
    kind = row["type"] if is_end else "invoke"
    told = f"{{:index {index}, :process {process}"
    f, extra = str(row["f"]), row.get("extra")
    more = "".join(
        f", :{name} {encode(row[name])}"
        for name in ("node", "key", "offset", "redelivered")
        if row.get(name) not in (None, "") and (is_end or name in ("node", "key"))
    )
    told_more: Json = msgspec.json.decode(str(extra)) if extra else None
    if isinstance(told_more, dict) and ("edn" in told_more or "drawn" in told_more):
        text = told_more.get("edn_end" if is_end else "edn")  # another's, as run_rows.py has it
        return "" if text is None else f"{text}\n"
    value = _shown(row.get("value"), told_more)
    if is_nemesis:
        is_fault = isinstance(told_more, dict) and "fault" in told_more and f not in _ABOUT_FAULTS
        kind, value = "info", (":healed" if is_end else ":begun") if is_fault else "nil"
    elif not is_end and f in _ASKS_NOTHING:
        value = "nil"
    if row.get("error") and is_end:
        more += f", :error {_word(str(row['error']))}"
    if isinstance(told_more, dict) and REBALANCES in told_more and is_end:
        more += f", :{REBALANCES} {edn_of_json(told_more[REBALANCES])}"
    if told_more is not None and is_end | is_nemesis:
        more += f", :extra {edn_of_json(told_more)}"
    time = row["complete_ns"] if is_end else row["invoke_ns"]
    return f"{told}, :type :{kind}, :f {_word(f)}, :value {value}, :time {time}{more}}}\n"


def _word(text: str) -> str:
    return f":{text}" if text.replace("-", "").replace("_", "").isalnum() else encode(text)


def _shown(value: object, told: Json) -> str:
    if isinstance(told, dict) and "value" in told:
        return edn_of_json(told["value"])
    return "nil" if value is None else str(value)


def edn_of_json(value: Json) -> str:
    """A value of JSON as EDN: arrays are vectors, objects maps with strings as keys."""
    if isinstance(value, list):
        return f"[{' '.join(map(edn_of_json, value))}]"
    if isinstance(value, dict):
        pairs = (f"{encode(key)} {edn_of_json(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return encode(value)
