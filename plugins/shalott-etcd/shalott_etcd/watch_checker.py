"""watches: whether watches of a run kept what etcd says of them, and revisions too.

    before-start    an event from before the revision that was asked for
    went-back       an event again, or one older than what its stream had told (ordered, unique)
    missed          an event left out between two of one stream (reliable)
    progress-ahead  a stream told that it had come to a revision, and had left out an event of
                    before it (bookmarkable)
    disagree        one revision is two different writes, or one write has two revisions
    revision-back   a write's revision is not above that of one which was acknowledged before it
                    began

What happened at a revision is known from acknowledged writes and from every stream.
https://etcd.io/docs/latest/learning/api_guarantees
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

import shalott.api as api

KEPT = 5  # anomalies of one kind that are told
Write = tuple[str, object]  # a key, and its value; None for a delete
WORDS = {
    "before-start": (
        "a watch told an event from before its start",
        "watches told {n} events from before their start",
    ),
    "went-back": ("a watch went back in time", "watches went back {n} times"),
    "missed": ("a watch left an event out", "watches left {n} events out"),
    "progress-ahead": (
        "a watch's progress was ahead of its events",
        "watches' progress was ahead of their events {n} times",
    ),
    "disagree": ("what happened at a revision differs", "{n} revisions are different writes"),
    "revision-back": ("a write's revision went back", "{n} writes' revisions went back"),
}


@dataclass(slots=True)
class Row:
    index: int
    process: int
    node: str
    f: str
    key: str
    value: int | None
    revision: int | None
    begin_ns: int
    end_ns: int | None
    extra: Mapping[str, object]


@dataclass(slots=True)
class Found:
    """``happened``: what is known of each revision, and the operation that told it first."""

    happened: dict[int, tuple[Write, Row]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    anomalies: list[api.Anomaly] = field(default_factory=list)

    def say(self, kind: str, summary: str, *rows: Row) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= KEPT:
            operations = tuple(dict.fromkeys(row.index for row in rows))
            self.anomalies.append(api.Anomaly(kind=kind, summary=summary, operations=operations))

    def tell(self, revision: int, write: Write, row: Row) -> None:
        known, first = self.happened.setdefault(revision, (write, row))
        if known != write:
            self.say(
                "disagree",
                f"revision {revision} is {_named(known)} to {first.node}"
                f" and {_named(write)} to {row.node}",
                first,
                row,
            )


@dataclass(frozen=True, slots=True)
class Watches:
    name: str = "watches"

    def check(self, history: api.History) -> api.Result:
        rows = list(_rows(history))
        found = Found()
        writes = [row for row in rows if row.revision is not None]
        for row in writes:
            assert row.revision is not None
            found.tell(row.revision, (row.key, row.value), row)
        watched = [row for row in rows if row.f == "watch"]
        told = 0
        for row in watched:
            for revision, *write in _told(row):
                if write:
                    told += 1
                    found.tell(revision, (str(write[0]), write[1]), row)
        _look_at_revisions(writes, found)
        known = sorted(found.happened)
        streams: dict[tuple[int, object], list[Row]] = {}
        for row in watched:
            streams.setdefault((row.process, row.extra.get("stream")), []).append(row)
        for of_one in streams.values():
            _look_at_stream(of_one, known, found)
        few = not told or len(writes) < 2
        counts = {f"{kind}-count": found.counts[kind] for kind in WORDS}
        return api.Result(
            checker=self.name,
            valid=False if found.anomalies else "unknown" if few else True,
            counts={
                "write-count": len(writes),
                "stream-count": len(streams),
                "event-count": told,
                **counts,
            },
            anomalies=tuple(found.anomalies),
            notes=("Too little was written or watched.",) if few else (),
            headline=f"{len(streams):,} watches told {told:,} events in order and left none out",
            words=WORDS,
        )


def _named(write: Write) -> str:
    key, value = write
    return f"a delete of {key}" if value is None else f"{key} = {value}"


def _rows(history: api.History) -> Iterator[Row]:
    names = ("index", "process", "node", "f", "key", "value", "offset", "invoke_ns", "complete_ns")
    columns = [history.ops[name].to_pylist() for name in names]
    types, extras = (history.ops[name].to_pylist() for name in ("type", "extra"))
    for told, kind, extra in zip(zip(*columns, strict=True), types, extras, strict=True):
        if told[1] >= 0 and kind == "ok":
            yield Row(*(*told, msgspec.json.decode(extra) if extra else {}))


def _told(row: Row) -> Sequence[list]:  # type: ignore[type-arg]
    told = row.extra.get("told")
    return told if isinstance(told, list) else []


def _look_at_revisions(writes: Sequence[Row], found: Found) -> None:
    by_write: dict[Write, Row] = {}
    for row in writes:
        first = by_write.setdefault((row.key, row.value), row)
        if row.value is not None and first.revision != row.revision:
            what = _named((row.key, row.value))
            found.say("disagree", f"{what} is at {first.revision} and {row.revision}", first, row)
    ended = sorted(
        (row for row in writes if row.end_ns is not None), key=lambda row: row.end_ns or 0
    )
    newest: list[Row] = []  # of those that had ended by then, the one with the highest revision
    for row in ended:
        above = newest[-1] if newest else row
        newest.append(row if (row.revision or 0) >= (above.revision or 0) else above)
    ends = [row.end_ns or 0 for row in ended]
    for row in writes:
        place = bisect_left(ends, row.begin_ns)
        before = newest[place - 1] if place else None
        if before is not None and (row.revision or 0) <= (before.revision or 0):
            found.say(
                "revision-back",
                f"a write on {row.node} has revision {row.revision}, after {before.revision}"
                f" was acknowledged by {before.node}",
                before,
                row,
            )


def _look_at_stream(rows: Sequence[Row], known: Sequence[int], found: Found) -> None:
    """``known``: every revision of which it is known that it was a write, in order."""
    start = int(str(rows[0].extra.get("start")))
    where = f"a watch of {rows[0].node} from {start}"
    seen = start - 1
    for row in rows:
        for revision, *write in _told(row):
            left_out = bisect_left(known, seen + 1), bisect_left(known, revision + (not write))
            lacking = known[left_out[0] : left_out[1]]
            if not write:
                if lacking:
                    said = f"{where} said that it had come to {revision}, without {lacking[0]}"
                    found.say("progress-ahead", said, row, found.happened[lacking[0]][1])
                continue
            if revision < start:
                found.say("before-start", f"{where} told revision {revision}", row)
            elif revision <= seen:
                found.say("went-back", f"{where} told {revision} after {seen}", row)
            elif lacking:
                said = f"{where} told {revision} after {seen}, without {lacking[0]}"
                found.say("missed", said, row, found.happened[lacking[0]][1])
            seen = max(seen, revision)
