"""Histories put together by hand, for the tests of the checkers. Times are seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from shalott.core.history import HISTORY_SCHEMA, History, events_table

S = 1_000_000_000
NODES = ("n1", "n2", "n3")


def ns(seconds: float) -> int:
    return round(seconds * S)


class Story:
    """Rows of a history, sorted by time when it is told."""

    def __init__(self, queue: str = "q") -> None:
        self.queue = queue
        self.rows: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def row(
        self,
        f: str,
        at: float,
        *,
        kind: str = "ok",
        value: int | None = None,
        offset: int | None = None,
        took: float | None = 0.01,
        process: int = 0,
        node: str = "n1",
        key: str | None = None,
        redelivered: bool | None = None,
        error: str | None = None,
        extra: Mapping[str, Any] | None = None,
        due_ns: int | None = None,
    ) -> Story:
        self.rows.append(
            {
                "process": process,
                "node": node,
                "f": f,
                "key": self.queue if key is None else key,
                "value": value,
                "offset": offset,
                "type": kind,
                "invoke_ns": ns(at),
                "complete_ns": None if took is None else ns(at + took),
                "redelivered": redelivered,
                "error": error,
                "extra": None if extra is None else json.dumps(extra),
                "due_ns": due_ns,
            }
        )
        return self

    def enqueue(self, value: int, at: float, kind: str = "ok", **more: Any) -> Story:
        return self.row("enqueue", at, kind=kind, value=value, **more)

    def dequeue(self, value: int, at: float, redelivered: bool = False, **more: Any) -> Story:
        return self.row("dequeue", at, value=value, redelivered=redelivered, **more)

    def empty(self, at: float, nodes: Sequence[str] = NODES, key: str | None = None) -> Story:
        for node in nodes:
            self.row("dequeue", at, kind="fail", error="empty", node=node, key=key)
        return self

    def around(
        self, f: str, begin: float, end: float | None, kind: str = "ok", **more: Any
    ) -> Story:
        took = None if end is None else end - begin
        return self.row(f, begin, kind=kind, took=took, process=-1, key="", **{"node": "", **more})

    def phase(self, name: str, begin: float, end: float | None) -> Story:
        return self.around("phase", begin, end, extra={"phase": name})

    def phases(self, load: float = 60, heal: float = 62, drain: float = 64) -> Story:
        """The usual ones: load from 0, and the drain that ends at ``drain`` + 2."""
        self.phase("load", 0, load).phase("heal", load, heal)
        return self.phase("settle", heal, drain).phase("drain", drain, drain + 2)

    def fault(
        self,
        number: int,
        kind: str,
        begin: float,
        end: float,
        nodes: Sequence[str] = (),
        links: Sequence[tuple[str, str]] = (),
        **more: Any,
    ) -> Story:
        extra = {
            "fault": number,
            "kind": kind,
            "target": "",
            "nodes": list(nodes),
            "links": [list(link) for link in links],
            "effective_ns": ns(begin),
            "healed_ns": ns(end),
            "proved_effective": True,
            "proved_healed": True,
            **more,
        }
        return self.around(kind, begin, end, "info", extra=extra)

    def stall(self, begin: float, end: float, kind: str = "stopped", **more: Any) -> Story:
        """Noticed when it was over."""
        extra = {"kind": kind, "begin_ns": ns(begin), "end_ns": ns(end), **more}
        return self.around("stall", end, end, "info", extra=extra)

    def observe(self, node: str, at: float, role: str | None, epoch: int = 1, **more: Any) -> Story:
        """``role`` None: it did not answer."""
        claim = {"group": self.queue, "role": role, "epoch": epoch, **more}
        kind, error = ("info", "no answer") if role is None else ("ok", None)
        extra = None if role is None else {"claims": [claim]}
        return self.around("observe", at, at + 0.01, kind, node=node, extra=extra, error=error)

    def event(
        self,
        node: str,
        at: float,
        kind: str,
        role: str = "",
        epoch: int = 0,
        *,
        incarnation: int = 1,
        group: str | None = None,
        boot: float = 1000,
        **detail: Any,
    ) -> Story:
        """The node's own clock is ``boot`` seconds ahead of the run's."""
        self.events.append(
            {
                "at_ns": ns(at + boot),
                "wall_ns": ns(at + 1_700_000_000),
                "run_ns": ns(at),
                "node": node,
                "incarnation": incarnation,
                "group": self.queue if group is None else group,
                "kind": kind,
                "role": role,
                "epoch": epoch,
                "detail": detail or None,
            }
        )
        return self

    def role(self, node: str, at: float, role: str, epoch: int = 1, **more: Any) -> Story:
        return self.event(node, at, "role", role, epoch, **more)

    def acked(
        self,
        node: str,
        begin: float,
        end: float,
        epoch: int = 1,
        /,
        *,
        boot: float = 1000,
        **more: Any,
    ) -> Story:
        """One ``acked`` line, written at its end. ``more`` may say how far the log goes (end)."""
        detail: dict[str, Any] = {
            "first_ns": ns(begin + boot),
            "last_ns": ns(end + boot),
            "count": 9,
        }
        return self.event(node, end, "acked", "master", epoch, boot=boot, **detail, **more)

    def history(self, complete: bool = True) -> History:
        rows = sorted(self.rows, key=lambda row: row["invoke_ns"])
        numbered = [{"index": index, **row} for index, row in enumerate(rows)]
        return History(
            ops=pa.Table.from_pylist(numbered, HISTORY_SCHEMA),
            events=events_table(self.events),
            complete=complete,
        )
