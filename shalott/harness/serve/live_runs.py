"""Runs that are under way: found in the store, and followed while their recording grows.

A run is in the table when it has ended; until then its directory holds ``history.jsonl``. A store's
directories are listed again when they have changed, and of ten thousand runs only those are looked
into that the table does not name. ``Follower`` is fed with a recording's bytes and tells what is
new; it keeps the operations that are open and a count a second. ``follow`` reads the file and
yields parts until the run has ended.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from shalott.core.op import NEMESIS
from shalott.core.recording import HAPPENED, Record
from shalott.harness.run.store import RECORDING, RESULTS
from shalott.harness.serve.request import Refused, RunPath, StoreFiles, is_live

LOOK_S = 0.5
TAIL_BYTES = 64 << 20  # of a longer recording only so much is read
BLOCK_BYTES = 4 << 20
TROUBLES_MAX = 20  # operations that did not succeed, told in one part
LINE_MAX = 16 << 20
OUTCOMES = ("ok", "fail", "info")
SILENT_NS = 10_000_000_000  # a recording that did not grow for so long: it has no writer any more
_FOUND_MAX = 200


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
        part = LivePart(
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
        return part

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
        told: object = msgspec.json.decode(extra or "null")
    except (msgspec.MsgspecError, RecursionError):
        return ""
    value = told.get(name) if isinstance(told, dict) else None
    return value[:100] if isinstance(value, str) else ""


def _nodes(record: Record) -> str:
    try:
        told: object = msgspec.json.decode(record.extra or "null")
    except (msgspec.MsgspecError, RecursionError):
        return ""
    nodes = told.get("nodes") if isinstance(told, dict) else None
    if isinstance(nodes, list):
        return " ".join(str(node)[:40] for node in nodes[:10])
    return ""


async def follow(
    places: StoreFiles, run: RunPath, *, look_s: float = LOOK_S
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


def _more(places: StoreFiles, run: RunPath, at: int) -> tuple[int, bytes, int]:
    """The file's size, bytes from ``at`` on, and where they begin; of a long recording that is
    begun with, the last part."""
    with places.opened(run, RECORDING) as file:
        size = file.seek(0, 2)
        begin = at
        if at == 0 and size > TAIL_BYTES:
            begin = size - TAIL_BYTES
        file.seek(begin)
        return size, file.read(BLOCK_BYTES), begin


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """``growing``: its recording grew lately; else its harness may have been killed."""

    run: str
    recorded_bytes: int
    quiet_ms: int
    growing: bool


class Found(NamedTuple):
    """``live``: runs under way, the newest first. ``unlisted``: runs that have ended."""

    live: tuple[LiveRun, ...]
    unlisted: int

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.unlisted:
            return ()
        runs_are = "1 run is" if self.unlisted == 1 else f"{self.unlisted:,} runs are"
        return (f"{runs_are} in the store and not in its table: `shalott runs` takes them in.",)


class LiveRuns:
    """Looks for them. Used by several threads at once."""

    def __init__(self, root: Path, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._root = root
        self._wall_ns = wall_ns
        self._lock = threading.Lock()
        self._listed: dict[str, tuple[int, tuple[str, ...]]] = {}

    def find(self, known: Collection[str]) -> Found:
        """What of the store the table does not name (``known``)."""
        found, unlisted = [], 0
        with self._lock:
            for name in self._run_names():
                if name in known:
                    continue
                live = look_at(self._root / name, name, self._wall_ns())
                if live is not None:
                    found.append(live)
                elif (self._root / name / RESULTS).is_file():
                    unlisted += 1
        found.sort(key=lambda each: (each.growing, each.run.rpartition("/")[2]), reverse=True)
        return Found(tuple(found[:_FOUND_MAX]), unlisted)

    def _run_names(self) -> list[str]:
        """NAME/STAMP of each directory two levels down."""
        names = []
        for name in self._inside(""):
            if not name.startswith(("_", ".")) and name != "search":
                names += [f"{name}/{stamp}" for stamp in self._inside(name)]
        return names

    def _inside(self, name: str) -> tuple[str, ...]:
        """The directories in one, as they were listed when it had changed last."""
        path = self._root / name
        try:
            changed_ns = path.stat().st_mtime_ns
            kept = self._listed.get(name)
            # What changed just now may change again within the clock's grain.
            if kept and kept[0] == changed_ns and self._wall_ns() - changed_ns > SILENT_NS:
                return kept[1]
            with os.scandir(path) as entries:
                found = tuple(each.name for each in entries if each.is_dir(follow_symlinks=False))
        except OSError:
            return ()
        self._listed[name] = (changed_ns, found)
        return found


def look_at(path: Path, name: str, wall_ns: int) -> LiveRun | None:
    """The run in that directory, if it is still being recorded."""
    try:
        seen = (path / RECORDING).lstat()
        if (path / RESULTS).exists():
            return None
    except OSError:
        return None
    quiet_ns = max(0, wall_ns - seen.st_mtime_ns)
    return LiveRun(
        run=name,
        recorded_bytes=seen.st_size,
        quiet_ms=quiet_ns // 1_000_000,
        growing=quiet_ns < SILENT_NS,
    )
