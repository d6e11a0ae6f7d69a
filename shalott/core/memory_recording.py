"""The recording of a simulated run: kept in memory, and made a history without a file.

A simulated run lasts a fraction of a second of real time, so nothing needs to survive the harness,
and a thousand of them must not write and parse a thousand files. What is recorded and how it is
paired is the same as in core/recording.py, which reads its lines back column by column:
here the columns are filled as things happen. Contents of ``extra`` are encoded at once, as they are
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History
from shalott.core.op import NEMESIS, OpType

# (type, at_ns, key, value, offset, redelivered, error, extra) of a completion
_End = tuple[str, int, str | None, int | None, int | None, bool | None, str | None, str | None]
_NO_END: _End = ("info", 0, None, None, None, None, None, None)

# Where pandas is installed, pyarrow imports it at the first array that it makes. It does so here:
# later a simulation may run, whose fence stops what opens files.
pa.array((), pa.null())


class MemoryRecorder:
    """A RunRecorder (core/recording.py) on the clocks that it is given."""

    def __init__(self, clock_ns: Callable[[], int], wall_ns: Callable[[], int]) -> None:
        self.counts: dict[str, int] = {"ok": 0, "fail": 0, "info": 0}  # client operations only
        self._clock_ns = clock_ns
        self._encode = msgspec.json.Encoder().encode
        self._closed = False
        self._process: list[int] = []
        self._node: list[str] = []
        self._f: list[str] = []
        self._key: list[str] = []
        self._value: list[int | None] = []
        self._invoke_ns: list[int] = []
        self._extra: list[str | None] = []
        self._due_ns: list[int | None] = []
        self._ends: list[_End | None] = []
        self._origin_ns = clock_ns()
        self._last_ns = -1
        self.start_wall_ns = wall_ns()

    def now_ns(self) -> int:
        return self._clock_ns() - self._origin_ns

    def invoke(
        self,
        process: int,
        node: str,
        f: str,
        *,
        key: str = "",
        value: int | None = None,
        extra: Mapping[str, Any] | None = None,
        due_ns: int | None = None,
    ) -> int:
        index = len(self._process)
        self._process.append(process)
        self._node.append(node)
        self._f.append(f)
        self._key.append(key)
        self._value.append(value)
        self._extra.append(None if extra is None else self._encode(extra).decode())
        self._due_ns.append(due_ns)
        self._ends.append(None)
        self._invoke_ns.append(self._stamp_ns())
        return index

    def complete(
        self,
        index: int,
        kind: OpType,
        *,
        key: str | None = None,
        value: int | None = None,
        offset: int | None = None,
        redelivered: bool | None = None,
        error: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        text = None if extra is None else self._encode(extra).decode()
        if self._process[index] != NEMESIS:
            self.counts[kind] += 1
        self._ends[index] = (kind, self._stamp_ns(), key, value, offset, redelivered, error, text)

    def happened(
        self,
        process: int,
        node: str,
        f: str,
        *,
        key: str = "",
        value: int | None = None,
        offset: int | None = None,
        redelivered: bool | None = None,
        error: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        index = self.invoke(process, node, f, key=key)
        text = None if extra is None else self._encode(extra).decode()
        self.counts["ok"] += process != NEMESIS
        now_ns = self._invoke_ns[index]
        self._ends[index] = ("ok", now_ns, None, value, offset, redelivered, error, text)

    def _stamp_ns(self) -> int:
        """Now, and after whatever was recorded before: equal times would hide the order."""
        self._last_ns = max(self._clock_ns() - self._origin_ns, self._last_ns + 1)
        return self._last_ns

    def flush(self) -> None:
        """Nothing to do: memory is all there is."""

    async def keep_flushed(self) -> None:
        """Wait until cancelled, as a run expects of what keeps its recording safe."""
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        self._closed = True

    def history(self, events: pa.Table = EMPTY_EVENTS) -> History:
        """What was recorded so far, one row an operation. ``complete`` if it was closed."""
        ended = [_NO_END if end is None else end for end in self._ends]
        kinds, at_ns, keys, values, offsets, redelivered, errors, extras = (
            zip(*ended, strict=True) if ended else ((),) * len(_NO_END)
        )
        columns: dict[str, Any] = {
            "index": range(len(ended)),
            "process": self._process,
            "node": self._node,
            "f": self._f,
            "key": _first_given(keys, self._key),
            "value": _first_given(values, self._value),
            "offset": offsets,
            "type": kinds,
            "invoke_ns": self._invoke_ns,
            "complete_ns": [
                None if end is None else ns for end, ns in zip(self._ends, at_ns, strict=True)
            ],
            "redelivered": redelivered,
            "error": errors,
            "extra": _first_given(extras, self._extra),
            "due_ns": self._due_ns,
        }
        arrays = [pa.array(columns[field.name], type=field.type) for field in HISTORY_SCHEMA]
        ops = pa.Table.from_arrays(arrays, schema=HISTORY_SCHEMA)
        return History(ops=ops, events=events, complete=self._closed)


def _first_given(ends: Any, invocations: list[Any]) -> list[Any]:
    """What the completion said, or else what the invocation said."""
    return [given if end is None else end for end, given in zip(ends, invocations, strict=True)]
