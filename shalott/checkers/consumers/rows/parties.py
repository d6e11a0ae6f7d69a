"""Consumers, channels, and queues that are deleted: the rows of a history that are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shalott.checkers.consumers.rows.extras import Extras, parse
from shalott.checkers.consumers.rows.naming import Names
from shalott.checkers.consumers.rows.rows import NONE, Channels, Consumers, QueueChange
from shalott.checkers.consumers.rows.settling import Settlements
from shalott.checkers.history.columns import NEVER, Bools, Ints, Operations

CONSUMER = pa.schema(
    [
        ("consumer", pa.string()),
        ("channel", pa.string()),
        ("prefetch", pa.int64()),
        ("global", pa.bool_()),
        ("exclusive", pa.bool_()),
        ("priority", pa.int64()),
        ("cancel_on_failover", pa.bool_()),
        ("no_ack", pa.bool_()),
        ("active_ns", pa.int64()),
        ("leaving_ns", pa.int64()),
        ("ended", pa.string()),
    ]
)
CHANNEL = pa.schema([("channel", pa.string()), ("ended", pa.string())])


@dataclass(frozen=True, slots=True)
class Party:
    """One consumer, as its row says it."""

    index: int
    queue: int
    channel: int
    begin_ns: int
    end_ns: int
    said: Mapping[str, Any]

    def at(self, name: str) -> int:
        when = self.said.get(name)
        return NEVER if when is None else int(when)


@dataclass(frozen=True, slots=True)
class Parties:
    """The consumers that have rows, by code."""

    by_code: Mapping[int, Party]

    def automatic(self, consumer: Ints) -> Bools:
        """Deliveries to consumers that acknowledge nothing."""
        codes = [code for code, party in self.by_code.items() if party.said.get("no_ack")]
        return np.isin(consumer, codes) if codes else np.zeros(len(consumer), dtype=np.bool_)

    def known(self, names: Sequence[str]) -> Consumers:
        nobody = Party(NONE, NONE, NONE, NEVER, NEVER, {})
        all_ = [self.by_code.get(code, nobody) for code in range(len(names))]

        def integers(values: Sequence[int]) -> Ints:
            return np.array(values, dtype=np.int64)

        def flags(name: str) -> Bools:
            return np.array([bool(each.said.get(name)) for each in all_], dtype=np.bool_)

        return Consumers(
            name=tuple(names),
            index=integers([each.index for each in all_]),
            queue=integers([each.queue for each in all_]),
            channel=integers([each.channel for each in all_]),
            prefetch=integers([each.said.get("prefetch") or 0 for each in all_]),
            shared=flags("global"),
            exclusive=flags("exclusive"),
            priority=integers([each.said.get("priority") or 0 for each in all_]),
            cancel_on_failover=flags("cancel_on_failover"),
            no_ack=flags("no_ack"),
            begin_ns=integers([each.begin_ns for each in all_]),
            active_ns=integers([each.at("active_ns") for each in all_]),
            leaving_ns=integers([each.at("leaving_ns") for each in all_]),
            end_ns=integers([each.end_ns for each in all_]),
            ended=tuple(each.said.get("ended") or "" for each in all_),
        )


def read_consumers(
    ops: Operations, extra: Extras, queues: Names, channels: Names, consumers: Names
) -> Parties:
    rows = np.flatnonzero(ops.f.equal("consumer"))
    told = parse(extra.take(rows), CONSUMER).to_pylist()
    keys = queues.codes_of(ops.key, rows)
    found: dict[int, Party] = {}
    for row, queue, said in zip(rows, keys, told, strict=True):
        found[consumers.code(said["consumer"])] = Party(
            index=int(ops.index[row]),
            queue=int(queue),
            channel=channels.code(said["channel"]),
            begin_ns=int(ops.invoke_ns[row]),
            end_ns=int(ops.complete_ns[row]),
            said=said,
        )
    found.pop(NONE, None)
    return Parties(found)


def read_channels(
    ops: Operations,
    extra: Extras,
    channels: Names,
    settlements: Settlements,
    parties: Parties,
) -> Channels:
    """Every channel that anything names."""
    rows = np.flatnonzero(ops.f.equal("channel"))
    told = parse(extra.take(rows), CHANNEL).to_pylist()
    codes = [channels.code(said["channel"]) for said in told]
    names = channels.all
    end_ns = np.full(len(names), NEVER, dtype=np.int64)
    ended, error = [""] * len(names), [""] * len(names)
    alive_ns = _last_answers(len(names), settlements, parties)
    for row, code, said in zip(rows, codes, told, strict=True):
        if code == NONE:
            continue
        end_ns[code] = ops.complete_ns[row]
        ended[code] = said["ended"] or ""
        error[code] = ops.error.names[ops.error.codes[row]]
    return Channels(names, end_ns, tuple(ended), tuple(error), alive_ns)


def _last_answers(count: int, settlements: Settlements, parties: Parties) -> Ints:
    """When something was sent on each channel last that was answered later."""
    alive_ns = np.full(count, -1, dtype=np.int64)
    known = settlements.ok & (settlements.channel >= 0)
    np.maximum.at(alive_ns, settlements.channel[known], settlements.sent_ns[known])
    for party in parties.by_code.values():
        sent = [party.begin_ns] if party.at("active_ns") != NEVER else []
        sent += [party.at("leaving_ns")] if party.said.get("ended") == "cancelled" else []
        for at_ns in sent:
            if party.channel != NONE and at_ns != NEVER:
                alive_ns[party.channel] = max(int(alive_ns[party.channel]), at_ns)
    return alive_ns


def read_changes(ops: Operations, queues: Names) -> tuple[QueueChange, ...]:
    rows = np.flatnonzero(ops.f.among(("delete-queue", "declare-queue")))
    codes = queues.codes_of(ops.key, rows)
    gone, failed = ops.f.equal("delete-queue"), ops.type.equal("fail")
    unsure = ~ops.type.equal("ok")
    return tuple(
        QueueChange(
            index=int(ops.index[row]),
            queue=int(code),
            gone=bool(gone[row]),
            begin_ns=int(ops.invoke_ns[row]),
            end_ns=NEVER if unsure[row] else int(ops.complete_ns[row]),
            failed=bool(failed[row]),
        )
        for row, code in zip(rows, codes, strict=True)
    )
