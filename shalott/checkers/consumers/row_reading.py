"""From a history to its rows as columns, once for all judges of a run.

Nothing here makes a Python object of a publish, a delivery or an acknowledgement. Consumers and
channels, of which there are few, are read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.consumers.consume_rules import ConsumeRules
from shalott.checkers.consumers.extras import (
    DEATHS,
    Cell,
    Extras,
    Lives,
    Names,
    Said,
    integers,
    lives_of,
    parse,
    places,
)
from shalott.checkers.consumers.rows import (
    ACK,
    FAIL,
    INFO,
    NONE,
    OK,
    RECOVER,
    REJECT,
    REQUEUE,
    Channels,
    Consumers,
    Deliveries,
    Published,
    QueueChange,
    Rows,
    Settlements,
    settle,
)
from shalott.checkers.history.columns import (
    NEVER,
    Bools,
    Codes,
    Ints,
    Operations,
    client_operations,
)
from shalott.core.history import History

SETTLING = ("ack", "nack", "reject", "recover")
PUBLISHES = pa.schema(
    [("to", pa.list_(pa.string())), ("ttl_ms", pa.int64()), ("priority", pa.int64())]
)
DELIVERED = pa.schema(
    [("consumer", pa.string()), ("channel", pa.string()), ("tag", pa.int64()), ("deaths", DEATHS)]
)
SETTLED = pa.schema(
    [
        ("channel", pa.string()),
        ("tag", pa.int64()),
        ("upto", pa.int64()),
        ("multiple", pa.bool_()),
        ("requeue", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class _NameTables:
    queues: Names
    channels: Names
    consumers: Names


def read_rows(history: History, rules: ConsumeRules, ops: Operations | None = None) -> Rows:
    """``ops`` are the history's, if the caller has them already."""
    ops = client_operations(history) if ops is None else ops
    places = None
    if len(ops) != history.ops.num_rows:
        places = np.flatnonzero(history.ops["process"].to_numpy() >= 0)
    extra = Extras(history.ops["extra"], places)
    tables = _NameTables(Names([rule.name for rule in rules.queues]), Names(), Names())
    names, channels, consumers = tables.queues, tables.channels, tables.consumers
    settling, coming = _settling(ops), _coming(ops)
    # The three are most of what reading costs, and none of them holds the interpreter's lock.
    with ThreadPoolExecutor(2) as readers:
        settled = readers.submit(extra.said, settling, SETTLED)
        delivered = readers.submit(extra.said, coming, DELIVERED)
        published = _published(ops, extra, names)
    settlements = _settlements(ops, settling, settled.result(), channels)
    parties = read_consumers(ops, extra, names, channels, consumers)
    deliveries, lives = _deliveries(
        ops, coming, delivered.result(), tables, published, settlements, parties
    )
    changes = read_changes(ops, names, "delete-queue", "declare-queue")
    purges = read_changes(ops, names, "purge-queue")
    emptied, emptied_by = _emptied(ops, names)
    return Rows(
        queues=names.all,
        published=published,
        deliveries=deliveries,
        settlements=settlements,
        consumers=parties.known(consumers.all),
        channels=read_channels(ops, extra, channels, settlements, parties),
        changes=changes,
        purges=purges,
        lives=lives,
        emptied=emptied,
        emptied_by=emptied_by,
        nodes=tuple(ops.node.names[code] for code in np.unique(ops.node.codes)),
    )


def _rows_of(ops: Operations, *names: str) -> Ints:
    return np.flatnonzero(ops.f.among(names))


def _published(ops: Operations, extra: Extras, queues: Names) -> Published:
    rows = np.flatnonzero(ops.f.equal("enqueue") & ops.has_value)
    said, kind = extra.repeated(rows, PUBLISHES)
    keys = queues.codes_of(ops.key, rows)
    row, queue = np.arange(len(rows)), keys
    if said["to"].null_count < len(said):
        row, queue = _routed(said["to"].combine_chunks(), kind, keys, queues)
    which = rows[row]
    kinds = np.array([{"ok": OK, "fail": FAIL}.get(name, INFO) for name in ops.type.names])
    values = np.sort(ops.value[rows])
    return Published(
        index=ops.index[which],
        process=ops.process[which],
        node=ops.node.take(which),
        queue=queue.astype(np.int64),
        value=ops.value[which],
        ack=kinds[ops.type.codes[which]].astype(np.int32),
        invoke_ns=ops.invoke_ns[which],
        complete_ns=ops.complete_ns[which],
        ttl_ms=integers(said["ttl_ms"], NONE)[kind[row]],
        priority=integers(said["priority"], 0)[kind[row]],
        repeated=int((values[1:] == values[:-1]).sum()),
    )


def _routed(to: pa.Array, kind: Ints, keys: Ints, queues: Names) -> tuple[Ints, Ints]:
    """Of each (publish, queue) the position of the publish, and the queue. ``to``: where each kind
    of publish goes, null: to the queue of its key."""
    to = pa.concat_arrays(to.chunks) if isinstance(to, pa.ChunkedArray) else to
    named = np.asarray(pc.is_valid(to).to_numpy(zero_copy_only=False), dtype=np.bool_)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(to), 0).to_numpy(zero_copy_only=False))
    flat = queues.codes_in(pc.list_flatten(to))
    first = np.cumsum(lengths) - lengths
    counts = np.where(named, lengths, 1)[kind]
    row = np.repeat(np.arange(len(keys)), counts)
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    queue = keys[row]
    is_told = named[kind][row]
    queue[is_told] = flat[(first[kind][row] + within)[is_told]]
    return row, queue


def _settling(ops: Operations) -> Ints:
    rows = _rows_of(ops, *SETTLING)
    return np.asarray(rows[~ops.type.equal("fail")[rows]])


def _settlements(ops: Operations, rows: Ints, said: Said, channels: Names) -> Settlements:
    tag, upto = said.integers("tag", NONE), said.integers("upto", NONE)
    several = said.truths("multiple") | (upto >= 0)
    several |= ops.f.equal("recover")[rows]
    upto = np.where(several, np.where(upto >= 0, upto, tag), NONE)
    requeue = said.truths("requeue")
    kind = np.where(ops.f.equal("ack")[rows], ACK, np.where(requeue, REQUEUE, REJECT))
    kind = np.where(ops.f.equal("recover")[rows], RECOVER, kind)
    ok = ops.type.equal("ok")[rows]
    return Settlements(
        index=ops.index[rows],
        channel=said.codes("channel", channels),
        tag=np.where(several, NONE, tag),
        upto=upto,
        kind=kind.astype(np.int32),
        ok=ok,
        sent_ns=ops.invoke_ns[rows],
        done_ns=np.where(ok, ops.complete_ns[rows], NEVER),
    )


def _coming(ops: Operations) -> Ints:
    """Rows of what came to a consumer, in order of when."""
    damaged = ops.error.equal("corrupted") & ~ops.has_value
    came = (ops.f.equal("dequeue") & (ops.has_value | damaged)) | ops.f.equal("deliver")
    rows = np.flatnonzero(came & (~ops.type.equal("fail") | damaged))
    at_ns = _came_ns(ops, rows)
    if len(rows) and (np.diff(at_ns) < 0).any():
        rows = rows[np.argsort(at_ns, kind="stable")]
    return rows


def _came_ns(ops: Operations, rows: Ints) -> Ints:
    return np.where(ops.complete_ns[rows] == NEVER, ops.invoke_ns[rows], ops.complete_ns[rows])


def _deliveries(
    ops: Operations,
    rows: Ints,
    said: Said,
    names: _NameTables,
    published: Published,
    settlements: Settlements,
    parties: Parties,
) -> tuple[Deliveries, Lives]:
    is_take = ops.f.equal("dequeue")[rows]
    consumer = np.where(is_take, NONE, said.codes("consumer", names.consumers))
    channel = np.where(is_take, NONE, said.codes("channel", names.channels))
    tag = said.integers("tag", NONE)
    queue = names.queues.codes_of(ops.key, rows)
    value = ops.value[rows]
    odd, lives = lives_of(said.table["deaths"])
    life = np.zeros(len(rows), dtype=np.int32)
    life[said.odd] = odd
    auto = is_take | parties.automatic(consumer)
    message = _messages(published, queue, value, life, lives, names.queues)
    message[~ops.has_value[rows]] = NONE
    found = Deliveries(
        index=ops.index[rows],
        begin_ns=ops.invoke_ns[rows],
        at_ns=_came_ns(ops, rows),
        queue=queue,
        value=value,
        damaged=~ops.has_value[rows],
        flagged=ops.redelivered[rows],
        taken=is_take,
        consumer=consumer,
        channel=channel,
        tag=tag,
        life=life,
        message=message,
        settled=settle(channel, tag, auto, settlements),
    )
    return found, lives


def _messages(
    published: Published, queue: Ints, value: Ints, life: Codes, lives: Lives, queues: Names
) -> Ints:
    """Which message each copy is. One that died is that of the queue where it died first, of those
    that it was published to."""
    where = places(published.queue, published.value, len(queues.all))
    message = where(queue, value)
    message[life > 0] = NONE
    for code in range(1, len(lives)):
        own = np.flatnonzero(life == code)
        for death in lives[code]:  # the earliest is the last, and is looked up last
            origin = queues.code(death.queue)
            found = where(np.full(len(own), origin), value[own])
            message[own] = np.where(found >= 0, found, message[own])
    return message


def _emptied(ops: Operations, queues: Names) -> tuple[dict[int, Ints], dict[int, Codes]]:
    said = ops.f.equal("dequeue") & ops.type.equal("fail") & ops.error.equal("empty")
    rows = np.flatnonzero(said)
    codes = queues.codes_of(ops.key, rows)
    return (
        {int(code): ops.invoke_ns[rows[codes == code]] for code in np.unique(codes)},
        {int(code): ops.node.codes[rows[codes == code]] for code in np.unique(codes)},
    )


# Consumers, channels, and queues that are deleted: the rows of a history that are few.

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
    said: Cell

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
        unknown = Party(NONE, NONE, NONE, NEVER, NEVER, {})
        all_ = [self.by_code.get(code, unknown) for code in range(len(names))]

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
    ops: Operations, extra: Extras, channels: Names, settlements: Settlements, parties: Parties
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


def read_changes(ops: Operations, queues: Names, *names: str) -> tuple[QueueChange, ...]:
    """Those of these operations."""
    rows = np.flatnonzero(ops.f.among(names))
    codes = queues.codes_of(ops.key, rows)
    gone, failed = ~ops.f.equal("declare-queue"), ops.type.equal("fail")
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
