"""The anomalies of partitions, as jepsen.tests.kafka names them, and a sentence for each case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from shalott.checkers.checker import Anomaly
from shalott.checkers.engine import CData, lib
from shalott.checkers.partitions.partition_history import NONE, PartitionHistory
from shalott.core.json_value import Json

LISTED_MAX: Final = 6  # values that a sentence lists
DETAILED_MAX: Final = 32  # values that the detail of an anomaly lists


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its code in the engine, how a case is told, and the clauses of a headline.

    ``case``: a sentence with fields (``_FIELDS``); ``twice``: the same, where both messages of the
    case are one.
    """

    name: str
    code: int
    case: str
    words: tuple[str, str]
    twice: str = ""

    def tell(self, history: PartitionHistory, case: CData) -> str:
        sentence = self.twice if self.twice and case.first == case.second else self.case
        return sentence.format_map(_Told(history, case))


def anomaly(history: PartitionHistory, kind: Kind, case: CData) -> Anomaly:
    ops = [history.place(op) for op in (case.other, case.op) if op != NONE]
    return Anomaly(
        kind=kind.name,
        summary=f"key {history.key(case.key)}: {kind.tell(history, case)}",
        operations=tuple(dict.fromkeys(ops)),
        detail={"key": history.key(case.key), **_detail(history, case, kind.code)},
    )


def _detail(history: PartitionHistory, case: CData, code: int) -> dict[str, Json]:
    """What jepsen.tests.kafka tells of a case, besides its operations."""
    if code == lib.SHL_KAFKA_INCONSISTENT:
        return {"offset": case.offset, "index": case.index, "values": _values_at(history, case)}
    if code == lib.SHL_KAFKA_DUPLICATE:
        return {"value": history.value(case.first), "offsets": _offsets_of(history, case)}
    if code == lib.SHL_KAFKA_UNSEEN:
        unseen = history.unseen(case.key, DETAILED_MAX)
        return {"count": case.delta, "messages": [history.value(each) for each in unseen]}
    if code == lib.SHL_KAFKA_LOST:
        index, bound = history.index(case.first), history.index(case.second)
        return {"value": history.value(case.first), "index": index, "max-read-index": bound}
    if case.second == NONE:
        return {"value": history.value(case.first), "offset": case.offset}
    detail: dict[str, Json] = {
        "values": [history.value(case.first), history.value(case.second)],
        "delta": case.delta,
    }
    if case.delta > 1:
        between = history.between(case.first, case.second, DETAILED_MAX)
        detail["skipped"] = [history.value(each) for each in between]
    return detail


def _values_at(history: PartitionHistory, case: CData) -> list[Json]:
    there = (each for offset, each in history.sightings(case.key) if offset == case.offset)
    return [history.value(each) for each in islice(there, DETAILED_MAX)]


def _offsets_of(history: PartitionHistory, case: CData) -> list[Json]:
    return [offset for offset, each in history.sightings(case.key) if each == case.first]


def _listed(texts: list[str], count: int) -> str:
    if count > len(texts):
        return f"{', '.join(texts)} and {count - len(texts):,} more"
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def _skipped(history: PartitionHistory, case: CData) -> str:
    """What stands between the two messages of a skip."""
    between = history.between(case.first, case.second, LISTED_MAX)
    return _listed([history.with_offset(each) for each in between], case.delta - 1)


def _committed(history: PartitionHistory, case: CData) -> str:
    if history.type_of(case.op) == "ok":
        return "was acknowledged"
    return "must have been committed, since another send of its operation was polled,"


def _sighted(history: PartitionHistory, message: int, offset: int) -> str:
    how, op = history.sighting(message, offset)
    return f"({how} at {history.at(op)})"


def _offsets(history: PartitionHistory, case: CData) -> str:
    offsets = [offset for offset, each in history.sightings(case.key) if each == case.first]
    shown = [f"{each} {_sighted(history, case.first, each)}" for each in offsets[:LISTED_MAX]]
    return f"{len(offsets)} offsets: {_listed(shown, len(offsets))}"


def _values(history: PartitionHistory, case: CData) -> str:
    there = [each for offset, each in history.sightings(case.key) if offset == case.offset]
    shown = [
        f"{history.value(each)} {_sighted(history, each, case.offset)}"
        for each in there[:LISTED_MAX]
    ]
    return f"{len(there)} values: {_listed(shown, len(there))}"


def _unseen(history: PartitionHistory, case: CData) -> str:
    one = case.delta == 1
    return f"{case.delta:,} acknowledged {'message was' if one else 'messages were'}"


# What a sentence may name of its case.
_FIELDS: Final[dict[str, Callable[[PartitionHistory, CData], object]]] = {
    "noun": lambda history, case: history.noun(case.op),
    "op": lambda history, case: history.at(case.op),
    "other": lambda history, case: history.at(case.other),
    "process": lambda history, case: history.process(case.op),
    "first": lambda history, case: history.with_offset(case.first),
    "second": lambda history, case: history.with_offset(case.second),
    "value": lambda history, case: history.value(case.first),
    "offset": lambda history, case: case.offset,
    "skipped": _skipped,
    "committed": _committed,
    "offsets": _offsets,
    "values": _values,
    "unseen": _unseen,
}


@dataclass(frozen=True, slots=True)
class _Told:
    history: PartitionHistory
    case: CData

    def __getitem__(self, field: str) -> object:
        return _FIELDS[field](self.history, self.case)


KINDS: Final = (
    Kind("lost-write", lib.SHL_KAFKA_LOST,
         "{first}, sent at {op}, {committed} and was never polled, though {second} behind it was"
         " ({other})",
         ("a write was lost", "{n} writes were lost")),
    Kind("unseen", lib.SHL_KAFKA_UNSEEN,
         "{unseen} never polled, the first {first}, sent at {op}",
         ("a message was never polled", "{n} messages were never polled")),
    Kind("duplicate", lib.SHL_KAFKA_DUPLICATE, "{value} stands at {offsets}",
         ("a message stands at several offsets", "{n} messages stand at several offsets")),
    Kind("unexpected", lib.SHL_KAFKA_UNWRITTEN,
         "{first} was polled at {other}, and no operation of the history sent it",
         ("a message was polled that was not sent", "{n} messages were polled that were not sent")),
    Kind("G1a", lib.SHL_KAFKA_G1A,
         "{first} was polled at {other}, though the operation that sent it failed ({op})",
         ("an aborted send was polled", "{n} times an aborted send was polled")),
    Kind("precommitted-read", lib.SHL_KAFKA_PRECOMMITTED,
         "the {noun} at {op} polled {first}, which it had sent itself and not yet committed",
         ("a transaction polled its own send", "{n} transactions polled their own sends")),
    Kind("inconsistent-offsets", lib.SHL_KAFKA_INCONSISTENT, "offset {offset} has {values}",
         ("an offset has several values", "{n} offsets have several values")),
    Kind("int-poll-skip", lib.SHL_KAFKA_INT_POLL_SKIP,
         "the {noun} at {op} polled {first} and next {second}, and skipped {skipped} between them",
         ("an operation's polls skipped messages", "{n} times an operation's polls skipped")),
    Kind("int-nonmonotonic-poll", lib.SHL_KAFKA_INT_NONMONOTONIC_POLL,
         "the {noun} at {op} polled {first} and next {second}, which stands before it",
         ("an operation's polls went back", "{n} times an operation's polls went back"),
         "the {noun} at {op} polled {first} twice"),
    Kind("poll-skip", lib.SHL_KAFKA_POLL_SKIP,
         "process {process} polled {first} at {other} and went on at {op} with {second}: it skipped"
         " {skipped}",
         ("a client's polls skipped messages", "{n} times a client's polls skipped messages")),
    Kind("nonmonotonic-poll", lib.SHL_KAFKA_NONMONOTONIC_POLL,
         "process {process} polled {first} at {other} and went back to {second} at {op}",
         ("a client's polls went back", "{n} times a client's polls went back"),
         "process {process} polled {first} at {other} and came back to it again at {op}"),
    Kind("int-send-skip", lib.SHL_KAFKA_INT_SEND_SKIP,
         "the {noun} at {op} sent {first} and next {second}, and {skipped} came between them",
         ("an operation's sends were interleaved", "{n} times sends were interleaved")),
    Kind("int-nonmonotonic-send", lib.SHL_KAFKA_INT_NONMONOTONIC_SEND,
         "the {noun} at {op} sent {first} and next {second}, which stands before it",
         ("an operation's sends were put out of order",
          "{n} times an operation's sends were put out of order"),
         "the {noun} at {op} sent {first} twice"),
    Kind("nonmonotonic-send", lib.SHL_KAFKA_NONMONOTONIC_SEND,
         "process {process} sent {first} at {other} and later, at {op}, {second}, which does not"
         " stand behind it",
         ("a client's sends were put out of order",
          "{n} times a client's sends were put out of order")),
)  # fmt: skip
