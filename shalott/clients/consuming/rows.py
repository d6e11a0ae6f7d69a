"""Rows: what one consumer's client writes into the history under its process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shalott.core.history import Recorder
from shalott.core.op import OpType


@dataclass(frozen=True, slots=True)
class Rows:
    """``docs/reference/consumers.md`` says what they look like."""

    record: Recorder
    process: int
    node: str

    def now_ns(self) -> int:
        return self.record.now_ns()

    def begin(self, f: str, key: str, extra: Mapping[str, Any], value: int | None = None) -> int:
        return self.record.invoke(self.process, self.node, f, key=key, value=value, extra=extra)

    def end(
        self,
        index: int,
        kind: OpType = "ok",
        *,
        error: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.record.complete(index, kind, error=error, extra=extra)

    def deliver(
        self,
        queue: str,
        value: int | None,
        *,
        redelivered: bool,
        error: str | None,
        extra: Mapping[str, Any],
    ) -> None:
        self.record.happened(
            self.process,
            self.node,
            "deliver",
            key=queue,
            value=value,
            redelivered=redelivered,
            error=error,
            extra=extra,
        )
