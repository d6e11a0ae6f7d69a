"""Rows: what a client records by itself, under the process that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shalott.core.history import Recorder
from shalott.core.op import OpType


@dataclass(slots=True)
class Rows:
    """Of one process."""

    recorder: Recorder
    process: int
    node: str

    def begin(self, f: str, key: str, extra: Mapping[str, Any], value: int | None = None) -> int:
        return self.recorder.invoke(self.process, self.node, f, key=key, value=value, extra=extra)

    def end(
        self,
        row: int,
        kind: OpType = "ok",
        *,
        offset: int | None = None,
        redelivered: bool | None = None,
        error: str | None = None,
        extra: Mapping[str, Any] | None = None,
        value: int | None = None,
    ) -> None:
        self.recorder.complete(
            row,
            kind,
            value=value,
            offset=offset,
            redelivered=redelivered,
            error=error,
            extra=extra,
        )

    def happened(self, f: str, key: str, extra: Mapping[str, Any], offset: int) -> None:
        self.recorder.happened(self.process, self.node, f, key=key, offset=offset, extra=extra)
