"""final-reads: whether the nodes of a replicated log show one log when all is healed.

After the heal each node is polled from the beginning until it says that there is no more. What two
of them show is compared by the judge of replicas' logs (checkers/judges/replicas.py): of two reads
one is the other's beginning. Besides, a node that was read to its end has each message that was
acknowledged and that another node has: else it is ``lost-on-node``. What no node has is the judge
of partitions' to tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Checker, Result
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.judge import Limits
from shalott.checkers.judges.replicas import ReplicaLogs
from shalott.checkers.reading.edn import encode
from shalott.checkers.reading.entries import EntrySource
from shalott.core.history import History
from shalott.core.json_value import JsonObject

VALUES_MAX: Final = 8  # values that a sentence lists
DRAIN: Final = "drain"
UNSEEN: Final = "unseen"
_COLUMNS: Final = ("index", "process", "node", "f", "type", "invoke_ns", "error", "extra")


@dataclass(frozen=True, slots=True)
class Row:
    """An operation of the workload of partitions, and what its ``extra`` has as ``value``."""

    index: int
    process: int
    node: str
    f: str
    type: str
    invoke_ns: int
    error: str | None
    extra: JsonObject

    @property
    def mops(self) -> list[object]:
        found = self.extra.get("value")
        return found if isinstance(found, list) else []

    @property
    def sent(self) -> Iterator[tuple[int, int]]:
        """Key and value of each send that is answered."""
        for mop in self.mops:
            if isinstance(mop, list) and mop[0] == "send" and isinstance(mop[2], list):
                yield mop[1], mop[2][1]

    @property
    def polled(self) -> Iterator[tuple[int, int, int]]:
        """Key, offset and value."""
        for mop in self.mops:
            if isinstance(mop, list) and mop[0] == "poll" and len(mop) > 1:
                for key, pairs in mop[1].items():
                    yield from ((int(key), offset, value) for offset, value in pairs)


def rows_of(history: History) -> Iterator[Row]:
    """The clients' operations, in the order of their invocations."""
    columns = [history.ops[name].to_pylist() for name in _COLUMNS]
    for index, process, node, f, kind, begin, error, extra in zip(*columns, strict=True):
        if process >= 0:
            told = msgspec.json.decode(extra) if extra else {}
            yield Row(index, process, node, f, kind or "info", begin, error, told)


@dataclass(slots=True)
class Read:
    """What one node showed of one key, by offset, and the operation that it was shown by last."""

    by_offset: dict[int, int] = field(default_factory=dict)
    place: int = 0

    @property
    def values(self) -> list[int]:
        return [self.by_offset[offset] for offset in sorted(self.by_offset)]


@dataclass(slots=True)
class Reads:
    """``by_key``: of nodes that were read to the end; ``cut``: those that were not."""

    by_key: dict[int, dict[str, Read]] = field(default_factory=dict)
    acked: dict[int, dict[int, int]] = field(default_factory=dict)  # by key and value: operation
    nodes: set[str] = field(default_factory=set)
    cut: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FinalReads:
    name: str = "final-reads"

    def check(self, history: History) -> Result:
        reads = final_reads(history)
        if not reads.nodes:
            why = "No node was read to its end after the heal."
            return Result(checker=self.name, valid="unknown", notes=(why,))
        found: list[Anomaly] = []
        for key, by_node in sorted(reads.by_key.items()):
            found += self._compared(key, by_node)
            found += _lacking(key, by_node, reads)
        doubts = [f"{node} was not read to its end." for node in reads.cut]
        messages = sum(
            len({value for read in by_node.values() for value in read.by_offset.values()})
            for by_node in reads.by_key.values()
        )
        return Result(
            checker=self.name,
            valid=False if found else "unknown" if doubts else True,
            counts={
                "node-count": len(reads.nodes),
                "message-count": messages,
                **{f"{kind}-count": sum(each.kind == kind for each in found) for kind in WORDS},
            },
            anomalies=tuple(found),
            notes=tuple(doubts),
            headline=f"{len(reads.nodes)} nodes show the same {messages:,} messages",
            words=WORDS,
        )

    def _compared(self, key: int, by_node: Mapping[str, Read]) -> list[Anomaly]:
        entries = "".join(
            f"{{:type :{kind} :process {number} :f :read :index {read.place} :value {value}}}\n"
            for number, (node, read) in enumerate(sorted(by_node.items()))
            for kind, value in (("invoke", "nil"), ("ok", _shown(node, read)))
        )
        result = ReplicaLogs().judge(EntrySource.of_text(entries.encode()), Limits())
        return [
            msgspec.structs.replace(each, summary=f"key {key}: {each.summary}")
            for each in result.anomalies
            if each.kind in WORDS
        ]


@dataclass(frozen=True, slots=True)
class PolledToTheEnd:
    """What the judge of logs says. But a message is not accused of having never been polled where
    no node was read to its end: it may stand there."""

    judge: Checker

    @property
    def name(self) -> str:
        return self.judge.name

    def check(self, history: History) -> Result:
        result = self.judge.check(history)
        broken = result.detail.get("broken", ())
        if UNSEEN not in broken or final_reads(history).nodes:
            return result
        left = [kind for kind in broken if kind != UNSEEN]
        return msgspec.structs.replace(
            result,
            valid=False if left else "unknown",
            anomalies=tuple(each for each in result.anomalies if each.kind != UNSEEN),
            notes=(
                "No node was read to its end: what was never polled may stand there.",
                *result.notes,
            ),
            detail={**result.detail, "broken": left},
        )


WORDS: Final = {
    "diverged": ("two nodes' logs went apart", "nodes' logs went apart, {n} times"),
    "gap": ("a node's log has a gap", "nodes' logs have gaps, {n} times"),
    "reordered": ("two nodes have two orders", "nodes differ in order, {n} times"),
    "lost-on-node": ("a node lacks acknowledged messages", "nodes lack acknowledged messages"),
}


def final_reads(history: History) -> Reads:
    """What each node showed in the drain to a process that was assigned the keys then."""
    reads = Reads()
    drain = read_surroundings(history).phase(DRAIN)
    begin_ns = None if drain is None else drain.begin_ns
    seen: dict[tuple[str, int], dict[int, Read]] = {}
    for row in rows_of(history):
        if row.type == "ok":
            for key, value in row.sent:
                reads.acked.setdefault(key, {})[value] = row.index
        if begin_ns is None or row.invoke_ns < begin_ns:
            continue
        reader = (row.node, row.process)
        if row.f == "assign" and row.type == "ok":
            seen[reader] = {}
        elif row.f == "poll" and reader in seen:
            for key, offset, value in row.polled:
                read = seen[reader].setdefault(key, Read())
                read.by_offset[offset], read.place = value, row.index
            if row.type == "fail" and row.error == "empty":
                reads.nodes.add(row.node)
                for key, read in seen[reader].items():
                    reads.by_key.setdefault(key, {})[row.node] = read
    reads.cut = sorted({node for node, _ in seen} - reads.nodes)
    for by_node in reads.by_key.values():
        for node in reads.nodes:
            by_node.setdefault(node, Read())  # it said that there is no more, and showed nothing
    return reads


def _shown(node: str, read: Read) -> str:
    values = " ".join(map(str, read.values))
    return f"{{:node {encode(node)} :log [{values}]}}"


def _lacking(key: int, by_node: Mapping[str, Read], reads: Reads) -> Iterator[Anomaly]:
    acked = reads.acked.get(key, {})
    has = {node: set(read.by_offset.values()) for node, read in by_node.items()}
    anywhere = set().union(*has.values()) & set(acked)
    for node, own in sorted(has.items()):
        if lacks := sorted(anywhere - own):
            others = sorted(other for other in has if lacks[0] in has[other])
            listed = ", ".join(map(str, lacks[:VALUES_MAX]))
            more = f" and {len(lacks) - VALUES_MAX:,} more" if len(lacks) > VALUES_MAX else ""
            yield Anomaly(
                kind="lost-on-node",
                summary=f"key {key}: {node} lacks {listed}{more}, which were acknowledged and are"
                f" on {', '.join(others)}",
                operations=tuple(acked[value] for value in lacks[:OPERATIONS_MAX]),
                detail={"node": node, "key": key, "count": len(lacks)},
            )
