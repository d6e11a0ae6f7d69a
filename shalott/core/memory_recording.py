"""The recording of a simulated run: kept in memory, and made a history without a file.

A simulated run lasts a fraction of a second of real time, so nothing needs to survive the harness,
and a thousand of them must not write and parse a thousand files. What is recorded and how it is
paired is the same as in core/recording.py, which reads its lines back column by column:
here the columns are filled as things happen. Contents of ``extra`` are encoded at once, as they are
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History
from shalott.core.op import NEMESIS, Completion, Invocation

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
        self, process: int, node: str, invocation: Invocation, due_ns: int | None = None
    ) -> int:
        index = len(self._process)
        self._process.append(process)
        self._node.append(node)
        self._f.append(invocation.f)
        self._key.append(invocation.key)
        self._value.append(invocation.value)
        self._extra.append(self._text(invocation.extra))
        self._due_ns.append(due_ns)
        self._ends.append(None)
        self._invoke_ns.append(self._stamp_ns())
        return index

    def complete(self, index: int, completion: Completion) -> None:
        if self._process[index] != NEMESIS:
            self.counts[completion.type] += 1
        self._ends[index] = _End(completion, self._text(completion.extra), self._stamp_ns())

    def happened(self, process: int, node: str, f: str, completion: Completion) -> None:
        index = self.invoke(process, node, Invocation(f=f, key=completion.key or ""))
        self.counts["ok"] += process != NEMESIS
        extra = self._text(completion.extra)
        self._ends[index] = _End(completion, extra, self._invoke_ns[index])

    def _text(self, extra: Mapping[str, object] | None) -> str | None:
        return None if extra is None else self._encode(extra).decode()

    def _stamp_ns(self) -> int:
        """Now, and after all that was recorded before: equal times would hide the order."""
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
        ends = [_NO_END if end is None else end for end in self._ends]
        done = [end.completion for end in ends]
        columns: dict[str, Sequence[object]] = {
            "index": range(len(ends)),
            "process": self._process,
            "node": self._node,
            "f": self._f,
            "key": _first_given([each.key for each in done], self._key),
            "value": _first_given([each.value for each in done], self._value),
            "offset": [each.offset for each in done],
            "type": [each.type for each in done],
            "invoke_ns": self._invoke_ns,
            "complete_ns": [end.at_ns for end in ends],
            "redelivered": [each.redelivered for each in done],
            "error": [each.error for each in done],
            "extra": _first_given([end.extra for end in ends], self._extra),
            "due_ns": self._due_ns,
        }
        arrays = [pa.array(columns[field.name], type=field.type) for field in HISTORY_SCHEMA]
        ops = pa.Table.from_arrays(arrays, schema=HISTORY_SCHEMA)
        return History(ops=ops, events=events, complete=self._closed)


class _End(NamedTuple):
    """The end of an operation; ``extra`` as it was when it was recorded, which may change later."""

    completion: Completion
    extra: str | None
    at_ns: int | None


_NO_END = _End(Completion(type="info"), None, None)


def _first_given(ends: Sequence[object], invocations: Sequence[object]) -> list[object]:
    """What the completion said, or else what the invocation said."""
    return [given if end is None else end for end, given in zip(ends, invocations, strict=True)]
