"""A recording, read as it grows: what the page of a live run tells, one part at a time.

``Follower`` is fed with bytes and is asked for what is new; it keeps the operations that are open
and a count a second. ``follow`` reads the file and yields parts until the run has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from shalott.core.op import NEMESIS
from shalott.core.recording import HAPPENED, Record
from shalott.harness.fleet.serve.asked import Refused
from shalott.harness.fleet.serve.places import Places, RunPlace, is_live
from shalott.harness.run.store import RECORDING

LOOK_S = 0.5
TAIL_BYTES = 64 << 20  # of a longer recording only so much is read
BLOCK_BYTES = 4 << 20
TROUBLES_MAX = 20  # operations that did not succeed, told in one part
LINE_MAX = 16 << 20
OUTCOMES = ("ok", "fail", "info")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    at_ns: int
    type: str
    f: str
    node: str
    error: str


class LivePart(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed since the part before. ``seconds``: [second, ok, fail, info] of those that
    grew; ``faults``: those under way; ``ended``: nothing more will come."""

    at_ns: int
    bytes: int
    seconds: tuple[tuple[int, int, int, int], ...]
    totals: dict[str, int]
    open: int
    phase: str
    faults: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    skipped_bytes: int = 0
    damaged_lines: int = 0
    ended: bool = False


class Follower:
    """``skipped_bytes``: of the recording's beginning, which was not read."""

    def __init__(self, skipped_bytes: int = 0) -> None:
        self._rest = bytearray()
        self._decoder = msgspec.json.Decoder(Record)
        self._open: dict[int, Record] = {}
        self._seconds: dict[int, list[int]] = {}
        self._grown: dict[int, None] = {}
        self._troubles: list[Trouble] = []
        self._phase = ""
        self._at_ns = 0
        self._bytes = skipped_bytes
        self._skipped = skipped_bytes
        self._damaged = 0
        self.totals = dict.fromkeys(OUTCOMES, 0)
        self.ended = False

    def feed(self, data: bytes) -> None:
        """More of the file. A torn last line waits for its end."""
        self._bytes += len(data)
        self._rest += data
        whole = self._rest.rfind(b"\n") + 1
        lines, self._rest = bytes(self._rest[:whole]), self._rest[whole:]
        for line in lines.splitlines():
            try:
                self._take(self._decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._damaged += 1
        if len(self._rest) > LINE_MAX:
            self._rest.clear()
            self._damaged += 1

    def part(self, *, ended: bool = False) -> LivePart:
        """What is new since the last part."""
        self.ended = self.ended or ended
        seconds = tuple((at, *self._seconds[at]) for at in self._grown)
        told = LivePart(
            at_ns=self._at_ns,
            bytes=self._bytes,
            seconds=tuple((at, ok, fail, info) for at, ok, fail, info in seconds),
            totals=dict(self.totals),
            open=sum(record.process != NEMESIS for record in self._open.values()),
            phase=self._phase,
            faults=tuple(sorted(self._faults())),
            troubles=tuple(self._troubles[-TROUBLES_MAX:]),
            skipped_bytes=self._skipped,
            damaged_lines=self._damaged,
            ended=self.ended,
        )
        self._grown.clear()
        self._troubles.clear()
        return told

    def _faults(self) -> list[str]:
        return [
            f"{record.f} {_nodes(record)}".strip()
            for record in self._open.values()
            if record.process == NEMESIS
            and record.f not in ("phase", "probe", "observe", "trigger", "stall", "operator")
        ]

    def _take(self, record: Record) -> None:
        self._at_ns = max(self._at_ns, record.at_ns)
        if record.type == "invoke":
            self._open[record.index] = record
            if record.process == NEMESIS and record.f == "phase":
                self._phase = _named(record.extra, "phase") or self._phase
        elif record.type == "end":
            self.ended = True
        elif record.type in OUTCOMES:
            begun = self._open.pop(record.index, None)
            if begun is not None and begun.process != NEMESIS:
                self._count(record.type, record, begun)
        elif record.type == HAPPENED and record.process not in (None, NEMESIS):
            self._count("ok", record, record)

    def _count(self, outcome: str, record: Record, begun: Record) -> None:
        second = record.at_ns // 1_000_000_000
        own = self._seconds.setdefault(second, [0, 0, 0])
        own[OUTCOMES.index(outcome)] += 1
        self._grown[second] = None
        self.totals[outcome] += 1
        if outcome != "ok" and record.error != "empty":
            self._troubles.append(
                Trouble(
                    at_ns=record.at_ns,
                    type=outcome,
                    f=begun.f or "",
                    node=begun.node or "",
                    error=(record.error or "")[:200],
                )
            )
            del self._troubles[:-TROUBLES_MAX]


def _named(extra: str | None, name: str) -> str:
    try:
        told: Any = msgspec.json.decode(extra or "null")
    except (msgspec.MsgspecError, RecursionError):
        return ""
    value = told.get(name) if isinstance(told, dict) else None
    return value[:100] if isinstance(value, str) else ""


def _nodes(record: Record) -> str:
    try:
        told: Any = msgspec.json.decode(record.extra or "null")
    except (msgspec.MsgspecError, RecursionError):
        return ""
    nodes = told.get("nodes") if isinstance(told, dict) else None
    if isinstance(nodes, list):
        return " ".join(str(node)[:40] for node in nodes[:10])
    return ""


async def follow(
    places: Places, run: RunPlace, *, look_s: float = LOOK_S
) -> AsyncIterator[LivePart]:
    """A part whenever the recording has grown, and one with ``ended`` at the end."""
    follower: Follower | None = None
    at = 0
    silent = True
    while True:
        live = await asyncio.to_thread(is_live, run)
        try:
            size, data, begin = await asyncio.to_thread(_more, places, run, at)
        except Refused:  # it was replaced by history.parquet
            size, data, begin = at, b"", at
        if follower is None:
            follower = Follower(begin)
            at = begin
        follower.feed(data)
        at += len(data)
        if data or silent:
            silent = False
            yield follower.part()
        if at >= size and not live:
            yield follower.part(ended=True)
            return
        if at >= size:
            await asyncio.sleep(look_s)


def _more(places: Places, run: RunPlace, at: int) -> tuple[int, bytes, int]:
    """The file's size, bytes from ``at`` on, and where they begin; of a long recording that is
    begun with, the last part."""
    with places.opened(run, RECORDING) as file:
        size = file.seek(0, 2)
        begin = at
        if at == 0 and size > TAIL_BYTES:
            begin = size - TAIL_BYTES
        file.seek(begin)
        return size, file.read(BLOCK_BYTES), begin
