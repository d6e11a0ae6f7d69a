"""From a history to its rows as columns, once for all judges of a run.

Nothing here makes a Python object of a publish, a delivery or an acknowledgement. Consumers and
channels, of which there are few, are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.consumers.rows.extras import DEATHS, Extras, Said, integers
from shalott.checkers.consumers.rows.naming import Names, lives_of, places
from shalott.checkers.consumers.rows.parties import read_changes, read_channels, read_consumers
from shalott.checkers.consumers.rows.rows import (
    FAIL,
    INFO,
    NONE,
    OK,
    Deliveries,
    Published,
    Rows,
)
from shalott.checkers.consumers.rows.rules import ConsumeRules
from shalott.checkers.consumers.rows.settling import (
    ACK,
    RECOVER,
    REJECT,
    REQUEUE,
    Settlements,
    settle,
)
from shalott.checkers.history.columns import NEVER, Ints, Operations, client_operations
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


def read_rows(history: History, rules: ConsumeRules, ops: Operations | None = None) -> Rows:
    """``ops`` are the history's, if somebody has them already."""
    ops = client_operations(history) if ops is None else ops
    places = None
    if len(ops) != history.ops.num_rows:
        places = np.flatnonzero(history.ops["process"].to_numpy() >= 0)
    extra = Extras(history.ops["extra"], places)
    names = Names([rule.name for rule in rules.queues])
    channels, consumers = Names(), Names()
    settling, coming = _settling(ops), _coming(ops)
    # The three are most of what reading costs, and none of them holds the interpreter's lock.
    with ThreadPoolExecutor(2) as readers:
        settled = readers.submit(extra.said, settling, SETTLED)
        delivered = readers.submit(extra.said, coming, DELIVERED)
        published = _published(ops, extra, names)
    settlements = _settlements(ops, settling, settled.result(), channels)
    parties = read_consumers(ops, extra, names, channels, consumers)
    deliveries, lives = _deliveries(
        ops, coming, delivered.result(), names, channels, consumers, published, settlements, parties
    )
    changes = read_changes(ops, names)
    emptied, emptied_by = _emptied(ops, names)
    return Rows(
        queues=names.all,
        published=published,
        deliveries=deliveries,
        settlements=settlements,
        consumers=parties.known(consumers.all),
        channels=read_channels(ops, extra, channels, settlements, parties),
        changes=changes,
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


def _routed(to: Any, kind: Ints, keys: Ints, queues: Names) -> tuple[Ints, Ints]:
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
    """Rows of what came to somebody, in order of when."""
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
    queues: Names,
    channels: Names,
    consumers: Names,
    published: Published,
    settlements: Settlements,
    parties: Any,
) -> tuple[Deliveries, tuple[Any, ...]]:
    is_take = ops.f.equal("dequeue")[rows]
    consumer = np.where(is_take, NONE, said.codes("consumer", consumers))
    channel = np.where(is_take, NONE, said.codes("channel", channels))
    tag = said.integers("tag", NONE)
    queue = queues.codes_of(ops.key, rows)
    value = ops.value[rows]
    odd, lives = lives_of(said.table["deaths"])
    life = np.zeros(len(rows), dtype=np.int32)
    life[said.odd] = odd
    auto = is_take | parties.automatic(consumer)
    message = _messages(published, queue, value, life, lives, queues)
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
    published: Published,
    queue: Ints,
    value: Ints,
    life: Any,
    lives: Sequence[Sequence[Any]],
    queues: Names,
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


def _emptied(ops: Operations, queues: Names) -> tuple[dict[int, Ints], dict[int, Any]]:
    said = ops.f.equal("dequeue") & ops.type.equal("fail") & ops.error.equal("empty")
    rows = np.flatnonzero(said)
    codes = queues.codes_of(ops.key, rows)
    return (
        {int(code): ops.invoke_ns[rows[codes == code]] for code in np.unique(codes)},
        {int(code): ops.node.codes[rows[codes == code]] for code in np.unique(codes)},
    )
