"""TracedRecorder: a simulated run's recorder that also puts every operation into the trace.

What clients asked and what they were answered is part of what the world saw, so the digest of a
run (cluster/sim/loop/trace.py) covers it. The nemesis records its operations in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from shalott.cluster.sim.loop.trace import Trace
from shalott.core.history import EMPTY_EVENTS, History
from shalott.core.op import OpType
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
        said = _encode((process, node, f, key, value, extra))
        self._trace.event(self._clock_ns(), "invoke", said)
        return self._recorder.invoke(
            process, node, f, key=key, value=value, extra=extra, due_ns=due_ns
        )

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
        elsewhere = () if key is None else (key,)
        said = _encode((index, value, offset, redelivered, error, extra, *elsewhere))
        self._trace.event(self._clock_ns(), kind, said)
        self._recorder.complete(
            index,
            kind,
            key=key,
            value=value,
            offset=offset,
            redelivered=redelivered,
            error=error,
            extra=extra,
        )

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
        said = _encode((process, node, f, key, value, offset, redelivered, error, extra))
        self._trace.event(self._clock_ns(), "happened", said)
        self._recorder.happened(
            process,
            node,
            f,
            key=key,
            value=value,
            offset=offset,
            redelivered=redelivered,
            error=error,
            extra=extra,
        )

    async def keep_flushed(self) -> None:
        await self._recorder.keep_flushed()

    def close(self) -> None:
        self._recorder.close()

    def history(self, events: pa.Table = EMPTY_EVENTS) -> History:
        return self._recorder.history(events)
