"""Histories of the benchmarks as files: our Parquet and JSON lines, Jepsen's EDN; and kept in a
cache, as columns, so that a measured process spends no time on drawing them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.histories import Load, make
from shalott.checkers.history.column_values import Words
from shalott.checkers.history.concurrent import INFO, NEVER, NOTHING, ConcurrentHistory, Values

STEP_NS: Final = 1000  # between two events
_TYPES: Final = ("ok", "fail", "info")
_COLUMNS: Final = ("type", "process", "call", "ret", "place")


def cache() -> Path:
    directory = Path(tempfile.gettempdir()) / "shalott-benchmarks"
    directory.mkdir(exist_ok=True)
    return directory


def _stem(model: str, load: Load) -> str:
    violation = f"-{load.violation}-{load.at:g}" if load.violation else ""
    keys = f"-{load.keys}keys" if load.keys > 1 else ""
    return (
        f"{model}-{load.operations}-{load.clients}c-{load.crashed:g}{keys}{violation}-{load.seed}"
    )


def kept(model: str, load: Load, ending: str) -> Path:
    """The file with that history, written if it is not there. Endings: those of ``WRITERS``."""
    path = cache() / f"{_stem(model, load)}.{ending}"
    if not path.exists():
        half = path.with_name(f"half.{path.name}")
        WRITERS[ending](make(model, load), half)
        half.rename(path)
    return path


# --- columns --------------------------------------------------------------------------------------


def write_columns(history: ConcurrentHistory, path: Path) -> None:
    columns: dict[str, Any] = {name: getattr(history, name) for name in _COLUMNS}
    for name in ("f", "key"):
        words = getattr(history, name)
        columns[name], columns[f"{name}_names"] = words.codes, np.array(words.names)
    for name in ("argument", "result"):
        values = getattr(history, name)
        columns[f"{name}_kind"], columns[name] = values.kind, values.number
        columns[f"{name}_forms"] = np.array(repr(values.forms))
    with path.open("wb") as file:
        np.savez(file, **columns)


def read_columns(path: Path) -> ConcurrentHistory:
    import ast

    with np.load(path) as columns:
        values = {
            name: Values(
                columns[f"{name}_kind"],
                columns[name],
                ast.literal_eval(str(columns[f"{name}_forms"])),
            )
            for name in ("argument", "result")
        }
        if values["argument"].forms == values["result"].forms:
            values["result"] = replace(values["result"], forms=values["argument"].forms)
        return ConcurrentHistory(
            f=Words(columns["f"], tuple(columns["f_names"].tolist())),
            key=Words(columns["key"], tuple(columns["key_names"].tolist())),
            call_ns=None,
            ret_ns=None,
            **values,
            **{name: columns[name] for name in _COLUMNS},
        )


# --- files of others ------------------------------------------------------------------------------


def write_parquet(history: ConcurrentHistory, path: Path) -> None:
    """As a run stores it: one value an operation; an empty dequeue failed."""
    import pyarrow as pa  # a process that only reads columns shall not hold it

    from shalott.core.history import HISTORY_SCHEMA, write_history

    def strings(codes: Any, names: tuple[str, ...]) -> Any:
        indices = pa.array(np.asarray(codes, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(indices, pa.array(names)).cast(pa.string())

    n = len(history)
    takes = history.f.equal("dequeue")
    empty = takes & (history.type == 0) & (history.result.kind == NOTHING)
    value = np.where(history.argument.kind == NOTHING, history.result.number, 0)
    value = np.where(history.argument.kind == NOTHING, value, history.argument.number)
    nil = (history.argument.kind == NOTHING) & (history.result.kind == NOTHING)
    ret = np.where(history.ret == NEVER, history.call + 100, history.ret).astype(np.int64)
    columns = {
        "index": pa.array(np.arange(n)),
        "process": pa.array(history.process),
        "node": strings(history.process % 5, ("n1", "n2", "n3", "n4", "n5")),
        "f": strings(history.f.codes, history.f.names),
        "key": strings(history.key.codes, history.key.names),
        "value": pa.array(value, mask=nil),
        "offset": pa.nulls(n, pa.int64()),
        "type": strings(np.where(empty, 1, history.type), _TYPES),
        "invoke_ns": pa.array(history.call.astype(np.int64) * STEP_NS),
        "complete_ns": pa.array(ret * STEP_NS),
        "redelivered": pa.nulls(n, pa.bool_()),
        "error": pa.array(np.where(empty, "empty", ""), mask=~empty),
        "extra": pa.nulls(n, pa.string()),
        "due_ns": pa.nulls(n, pa.int64()),
    }
    arrays = [columns[name] for name in HISTORY_SCHEMA.names]
    write_history(pa.Table.from_arrays(arrays, schema=HISTORY_SCHEMA), path)


def write_edn(history: ConcurrentHistory, path: Path) -> None:
    """As Jepsen writes it: a map an entry."""
    with path.open("w") as file:
        for number, (row, is_call, at) in enumerate(_entries(history)):
            kind = "invoke" if is_call else _TYPES[history.type[row]]
            values = history.argument if is_call or history.type[row] else history.result
            file.write(
                f"{{:process {history.process[row]}, :type :{kind},"
                f" :f :{history.f.names[history.f.codes[row]]}, :value {_edn(values.get(row))},"
                f" :index {number}, :time {at * STEP_NS}}}\n"
            )


def _edn(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, tuple):
        return f"[{' '.join(map(_edn, value))}]"
    return str(value).lower()


def write_recording(history: ConcurrentHistory, path: Path) -> None:
    """As a run records it: JSON lines."""
    with path.open("w") as file:
        file.write('{"index":-1,"type":"begin","at_ns":0}\n')
        for row, is_call, at in _entries(history):
            kind = "invoke" if is_call else _TYPES[history.type[row]]
            start = f'{{"index":{row},"type":"{kind}","at_ns":{at * STEP_NS}'
            values = history.argument if is_call else history.result
            value, f = values.get(row), history.f.names[history.f.codes[row]]
            if is_call:
                start += f',"process":{history.process[row]},"node":"n1","f":"{f}","key":"q"'
            elif value is None and f == "dequeue" and kind == "ok":
                start = start.replace('"ok"', '"fail"') + ',"error":"empty"'
            file.write(start + (f',"value":{value}}}\n' if value is not None else "}\n"))
        file.write(f'{{"index":-1,"type":"end","at_ns":{2 * len(history) * STEP_NS}}}\n')


def _entries(history: ConcurrentHistory) -> Iterator[tuple[int, bool, int]]:
    """(row, whether it is its call, its time) in the order of time; what crashed says so later."""
    n = len(history)
    ends = np.where(history.type == INFO, history.call + 100.5, history.ret)
    times = np.concatenate((history.call, ends))
    order = np.argsort(times, kind="stable")
    for entry, at in zip(order.tolist(), times[order].astype(np.int64).tolist(), strict=True):
        yield entry % n, entry < n, at


WRITERS: Final[dict[str, Callable[[ConcurrentHistory, Path], None]]] = {
    "npz": write_columns,
    "parquet": write_parquet,
    "edn": write_edn,
    "jsonl": write_recording,
}
