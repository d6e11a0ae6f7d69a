"""TracedRecorder: a simulated run's recorder that also puts every operation into the trace.

What clients asked and what they were answered is part of what the world saw, so the digest of a
run (cluster/sim/loop/trace.py) covers it. The nemesis records its operations in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa

from shalott.cluster.sim.loop.trace import Trace
from shalott.core.history import EMPTY_EVENTS, History
from shalott.core.op import Completion, Invocation
from shalott.core.recording import RunRecorder

_encode = msgspec.json.Encoder().encode


class TracedRecorder:
    """A RunRecorder that hands everything on to ``recorder``. ``clock_ns``: the virtual time."""

    def __init__(self, recorder: RunRecorder, trace: Trace, clock_ns: Callable[[], int]) -> None:
        self.counts = recorder.counts
        self.start_wall_ns = recorder.start_wall_ns
        self._recorder = recorder
        self._trace = trace
        self._clock_ns = clock_ns

    def now_ns(self) -> int:
        return self._recorder.now_ns()

    def invoke(
        self, process: int, node: str, invocation: Invocation, due_ns: int | None = None
    ) -> int:
        asked = (invocation.f, invocation.key, invocation.value, invocation.extra)
        self._trace.event(self._clock_ns(), "invoke", _encode((process, node, *asked)))
        return self._recorder.invoke(process, node, invocation, due_ns)

    def complete(self, index: int, completion: Completion) -> None:
        elsewhere = () if completion.key is None else (completion.key,)
        text = _encode((index, *_said(completion), *elsewhere))
        self._trace.event(self._clock_ns(), completion.type, text)
        self._recorder.complete(index, completion)

    def happened(self, process: int, node: str, f: str, completion: Completion) -> None:
        text = _encode((process, node, f, completion.key or "", *_said(completion)))
        self._trace.event(self._clock_ns(), "happened", text)
        self._recorder.happened(process, node, f, completion)

    async def keep_flushed(self) -> None:
        await self._recorder.keep_flushed()

    def close(self) -> None:
        self._recorder.close()

    def history(self, events: pa.Table = EMPTY_EVENTS) -> History:
        return self._recorder.history(events)


def _said(completion: Completion) -> tuple[object, ...]:
    return (
        completion.value,
        completion.offset,
        completion.redelivered,
        completion.error,
        completion.extra,
    )
