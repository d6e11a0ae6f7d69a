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
    """One kind: its code in the engine, how a case is told, and the clauses of a headline."""

    name: str
    code: int
    tell: Callable[[PartitionHistory, CData], str]
    words: tuple[str, str]


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


def _lost(history: PartitionHistory, case: CData) -> str:
    how = (
        "was acknowledged"
        if history.type_of(case.op) == "ok"
        else "must have been committed, since another send of its operation was polled,"
    )
    return (
        f"{history.with_offset(case.first)}, sent at {history.at(case.op)}, {how} and was never"
        f" polled, though {history.with_offset(case.second)} behind it was"
        f" ({history.at(case.other)})"
    )


def _duplicate(history: PartitionHistory, case: CData) -> str:
    offsets = [offset for offset, each in history.sightings(case.key) if each == case.first]
    shown = []
    for offset in offsets[:LISTED_MAX]:
        how, op = history.sighting(case.first, offset)
        shown.append(f"{offset} ({how} at {history.at(op)})")
    return (
        f"{history.value(case.first)} stands at {len(offsets)} offsets:"
        f" {_listed(shown, len(offsets))}"
    )


def _aborted(history: PartitionHistory, case: CData) -> str:
    return (
        f"{history.with_offset(case.first)} was polled at {history.at(case.other)}, though the"
        f" operation that sent it failed ({history.at(case.op)})"
    )


def _precommitted(history: PartitionHistory, case: CData) -> str:
    return (
        f"the {history.noun(case.op)} at {history.at(case.op)} polled"
        f" {history.with_offset(case.first)}, which it had sent itself and not yet committed"
    )


def _inconsistent(history: PartitionHistory, case: CData) -> str:
    there = [each for offset, each in history.sightings(case.key) if offset == case.offset]
    shown = []
    for message in there[:LISTED_MAX]:
        how, op = history.sighting(message, case.offset)
        shown.append(f"{history.value(message)} ({how} at {history.at(op)})")
    return f"offset {case.offset} has {len(there)} values: {_listed(shown, len(there))}"


def _int_poll_skip(history: PartitionHistory, case: CData) -> str:
    return (
        f"the {history.noun(case.op)} at {history.at(case.op)} polled"
        f" {history.with_offset(case.first)} and next {history.with_offset(case.second)}, and"
        f" skipped {_skipped(history, case)} between them"
    )


def _int_nonmonotonic_poll(history: PartitionHistory, case: CData) -> str:
    begin = f"the {history.noun(case.op)} at {history.at(case.op)} polled"
    if case.first == case.second:
        return f"{begin} {history.with_offset(case.first)} twice"
    return (
        f"{begin} {history.with_offset(case.first)} and next"
        f" {history.with_offset(case.second)}, which stands before it"
    )


def _poll_skip(history: PartitionHistory, case: CData) -> str:
    return (
        f"process {history.process(case.op)} polled {history.with_offset(case.first)} at"
        f" {history.at(case.other)} and went on at {history.at(case.op)} with"
        f" {history.with_offset(case.second)}: it skipped {_skipped(history, case)}"
    )


def _nonmonotonic_poll(history: PartitionHistory, case: CData) -> str:
    back = "to it again" if case.first == case.second else history.with_offset(case.second)
    verb = "came back" if case.first == case.second else "went back to"
    return (
        f"process {history.process(case.op)} polled {history.with_offset(case.first)} at"
        f" {history.at(case.other)} and {verb} {back} at {history.at(case.op)}"
    )


def _int_send_skip(history: PartitionHistory, case: CData) -> str:
    return (
        f"the {history.noun(case.op)} at {history.at(case.op)} sent"
        f" {history.with_offset(case.first)} and next {history.with_offset(case.second)}, and"
        f" {_skipped(history, case)} came between them"
    )


def _int_nonmonotonic_send(history: PartitionHistory, case: CData) -> str:
    begin = f"the {history.noun(case.op)} at {history.at(case.op)} sent"
    if case.first == case.second:
        return f"{begin} {history.with_offset(case.first)} twice"
    return (
        f"{begin} {history.with_offset(case.first)} and next"
        f" {history.with_offset(case.second)}, which stands before it"
    )


def _nonmonotonic_send(history: PartitionHistory, case: CData) -> str:
    return (
        f"process {history.process(case.op)} sent {history.with_offset(case.first)} at"
        f" {history.at(case.other)} and later, at {history.at(case.op)},"
        f" {history.with_offset(case.second)}, which does not stand behind it"
    )


def _unseen(history: PartitionHistory, case: CData) -> str:
    number = "1 acknowledged message was" if case.delta == 1 else (
        f"{case.delta:,} acknowledged messages were"
    )  # fmt: skip
    return (
        f"{number} never polled, the first {history.with_offset(case.first)}, sent at"
        f" {history.at(case.op)}"
    )


def _unexpected(history: PartitionHistory, case: CData) -> str:
    return (
        f"{history.with_offset(case.first)} was polled at {history.at(case.other)}, and no"
        " operation of the history sent it"
    )


KINDS: Final = (
    Kind("lost-write", lib.SHL_KAFKA_LOST, _lost, ("a write was lost", "{n} writes were lost")),
    Kind("unseen", lib.SHL_KAFKA_UNSEEN, _unseen,
         ("a message was never polled", "{n} messages were never polled")),
    Kind("duplicate", lib.SHL_KAFKA_DUPLICATE, _duplicate,
         ("a message stands at several offsets", "{n} messages stand at several offsets")),
    Kind("unexpected", lib.SHL_KAFKA_UNWRITTEN, _unexpected,
         ("a message was polled that was not sent", "{n} messages were polled that were not sent")),
    Kind("G1a", lib.SHL_KAFKA_G1A, _aborted,
         ("an aborted send was polled", "{n} times an aborted send was polled")),
    Kind("precommitted-read", lib.SHL_KAFKA_PRECOMMITTED, _precommitted,
         ("a transaction polled its own send", "{n} transactions polled their own sends")),
    Kind("inconsistent-offsets", lib.SHL_KAFKA_INCONSISTENT, _inconsistent,
         ("an offset has several values", "{n} offsets have several values")),
    Kind("int-poll-skip", lib.SHL_KAFKA_INT_POLL_SKIP, _int_poll_skip,
         ("an operation's polls skipped messages", "{n} times an operation's polls skipped")),
    Kind("int-nonmonotonic-poll", lib.SHL_KAFKA_INT_NONMONOTONIC_POLL, _int_nonmonotonic_poll,
         ("an operation's polls went back", "{n} times an operation's polls went back")),
    Kind("poll-skip", lib.SHL_KAFKA_POLL_SKIP, _poll_skip,
         ("a client's polls skipped messages", "{n} times a client's polls skipped messages")),
    Kind("nonmonotonic-poll", lib.SHL_KAFKA_NONMONOTONIC_POLL, _nonmonotonic_poll,
         ("a client's polls went back", "{n} times a client's polls went back")),
    Kind("int-send-skip", lib.SHL_KAFKA_INT_SEND_SKIP, _int_send_skip,
         ("an operation's sends were interleaved", "{n} times sends were interleaved")),
    Kind("int-nonmonotonic-send", lib.SHL_KAFKA_INT_NONMONOTONIC_SEND, _int_nonmonotonic_send,
         ("an operation's sends were put out of order",
          "{n} times an operation's sends were put out of order")),
    Kind("nonmonotonic-send", lib.SHL_KAFKA_NONMONOTONIC_SEND, _nonmonotonic_send,
         ("a client's sends were put out of order",
          "{n} times a client's sends were put out of order")),
)  # fmt: skip
