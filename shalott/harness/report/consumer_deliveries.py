"""Deliveries: what settled each, or which channel's end gave it up, and why some came again.

In ``consume`` an acknowledgement names its delivery by channel and tag, one with ``multiple`` (and
a recover) settles every older one of the channel that is not settled yet, and the end of a channel
gives back the rest. In ``group`` a delivery ends with what its listener said of it. A redelivery's
cause is what became of the delivery before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints
from shalott.harness.report.consumer_rows import DEAD_LETTERS, Names, Rows, common, pairs

# What became of a delivery. DONE and those before it are the last that its queue owes a consumer.
NO_ACK, ACKED, DROPPED, REQUEUED, RECOVERED, ENDED, OPEN = range(7)
_LAST = (NO_ACK, ACKED, DROPPED)
_CHANNELS = np.int64(1) << 40  # more than there are tags of one channel
_ENDS_OF_CHANNELS = {
    "channel-closed": "its channel was closed",
    "hung-up": "its client dropped the connection",
    "lost": "its connection was lost",
    "closed": "the load was over",
}
_LISTENERS = {
    "later": "sent back for a retry",
    "suspend": "suspended by an orderly listener",
    "dropped": "its queue was given up meanwhile",
}


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Every delivery of a message, in the history's order.

    ``lane``: the queue (consume) or the group. ``holder``: the consumer, or the member; ``queue``:
    where it was taken from. ``end_ns``: when it ceased to be unacknowledged (NEVER: it did not).
    ``outcome``: what ended it, a position above; ``known``: the broker was known to have heard.
    ``why``: of ENDED, how the channel ended; of a group, what its listener said.
    """

    row: Ints
    lane: Names
    holder: Names
    queue: Names
    value: Ints
    begin_ns: Ints
    end_ns: Ints
    again: Bools  # the flag
    outcome: Codes
    known: Bools
    why: Names

    def __len__(self) -> int:
        return len(self.row)

    @property
    def is_last(self) -> Bools:
        """Whether it was the last that its queue owed anybody."""
        return np.isin(self.outcome, _LAST)


def deliveries_of(rows: Rows) -> Deliveries:
    row = rows.of("deliver")
    row = row[rows.has_value[row]]
    return _of_group(rows, row) if rows.kind == "group" else _of_consume(rows, row)


def _of_group(rows: Rows, row: Ints) -> Deliveries:
    said = rows.names("x_outcome").take(row)
    outcomes = {"success": ACKED, "later": REQUEUED, "suspend": REQUEUED}
    table = np.array([*(outcomes.get(name, ENDED) for name in said.names), ENDED], dtype=np.int32)
    return Deliveries(
        row=row,
        lane=rows.names("x_group").take(row),
        holder=rows.names("x_member").take(row),
        queue=rows.names("key").take(row),
        value=rows.value[row],
        begin_ns=rows.begin_ns[row],
        end_ns=rows.end_ns[row],
        again=rows.flags("redelivered")[row],
        outcome=table[said.codes],
        known=np.ones(len(row), dtype=np.bool_),
        why=said,
    )


def _of_consume(rows: Rows, row: Ints) -> Deliveries:
    queue = rows.names("key").take(row)
    holder = rows.names("x_consumer").take(row)
    end_ns, outcome, known, why = _settled(rows, row)
    at_once = _without_acks(rows, holder)
    end_ns = np.where(at_once, rows.begin_ns[row], end_ns)
    return Deliveries(
        row=row,
        lane=queue,
        holder=holder,
        queue=queue,
        value=rows.value[row],
        begin_ns=rows.begin_ns[row],
        end_ns=end_ns,
        again=rows.flags("redelivered")[row],
        outcome=np.where(at_once, NO_ACK, outcome).astype(np.int32),
        known=at_once | known,
        why=why,
    )


def _without_acks(rows: Rows, holder: Names) -> Bools:
    """Which deliveries went to a consumer that acknowledges nothing."""
    consumers = rows.of("consumer")
    silent = consumers[rows.flags("x_no_ack")[consumers]]
    names = set(rows.names("x_consumer").take(silent).words())
    table = np.array([*(name in names for name in holder.names), False])
    return np.asarray(table[holder.codes])


def _settled(rows: Rows, row: Ints) -> tuple[Ints, Codes, Bools, Names]:
    """When and by what each delivery was settled first; what of its channel's end, and why."""
    channel, tag = rows.names("x_channel"), rows.integers("x_tag", -1)
    said = rows.of("ack", "nack", "reject", "recover")
    upto = rows.integers("x_upto", -1)
    single, many = said[upto[said] < 0], said[upto[said] >= 0]
    lane, tags = channel.codes[row].astype(np.int64), tag[row]
    settler = _earlier(
        rows.begin_ns,
        _single(channel.codes, tag, single, rows.begin_ns, lane, tags),
        _multiple(channel.codes, upto, many, rows.begin_ns, lane, tags),
    )
    ends, why = _channel_ends(rows, channel)
    told_ns = np.where(settler < 0, NEVER, rows.begin_ns[np.maximum(settler, 0)])
    told_ns = np.maximum(told_ns, rows.begin_ns[row])
    ended_ns = np.maximum(ends[lane], rows.begin_ns[row])
    by_end = ended_ns < told_ns
    outcome = np.where(settler < 0, OPEN, _outcomes(rows)[np.maximum(settler, 0)])
    outcome = np.where(by_end, ENDED, outcome)
    ok = rows.names("type")
    known = np.asarray([*(name == "ok" for name in ok.names), False])[ok.codes]
    return (
        np.minimum(told_ns, ended_ns),
        outcome.astype(np.int32),
        (settler >= 0) & ~by_end & known[np.maximum(settler, 0)],
        Names(np.where(by_end, why.codes[lane], -1).astype(np.int32), why.names),
    )


def _single(channel: Codes, tag: Ints, said: Ints, at_ns: Ints, lane: Ints, tags: Ints) -> Ints:
    """The first row that settles each (channel, tag) alone; -1 if none does."""
    said = said[np.argsort(at_ns[said], kind="stable")]
    key = channel[said].astype(np.int64) * _CHANNELS + tag[said]
    keys, first = np.unique(key, return_index=True)
    return _found(keys, said[first], lane * _CHANNELS + tags, exact=True, lane=lane)


def _multiple(channel: Codes, upto: Ints, said: Ints, at_ns: Ints, lane: Ints, tags: Ints) -> Ints:
    """The first row of the channel whose highest tag is at least each tag; -1 if none is."""
    said = said[np.lexsort((at_ns[said], channel[said]))]
    # The highest so far: later rows of a channel settle nothing that an earlier one did.
    key = np.maximum.accumulate(channel[said].astype(np.int64) * _CHANNELS + upto[said])
    return _found(key, said, lane * _CHANNELS + tags, exact=False, lane=lane)


def _found(keys: Ints, rows: Ints, wanted: Ints, *, exact: bool, lane: Ints) -> Ints:
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.searchsorted(keys, wanted)
    inside = np.minimum(place, len(keys) - 1)
    same = keys[inside] == wanted if exact else keys[inside] // _CHANNELS == lane
    return np.where((place < len(keys)) & same & (lane >= 0), rows[inside], -1)


def _earlier(at_ns: Ints, one: Ints, other: Ints) -> Ints:
    """Of two rows (-1: none) the one that began first."""
    first = np.where(one < 0, NEVER, at_ns[np.maximum(one, 0)])
    second = np.where(other < 0, NEVER, at_ns[np.maximum(other, 0)])
    return np.where(second < first, other, one)


def _channel_ends(rows: Rows, channel: Names) -> tuple[Ints, Names]:
    """For each channel (the last place: of none) when it ended, and why."""
    own = rows.of("channel")
    ended = rows.names("x_ended")
    ends = np.full(len(channel.names) + 1, NEVER, dtype=np.int64)
    why = np.full(len(channel.names) + 1, -1, dtype=np.int32)
    ends[channel.codes[own]] = rows.end_ns[own]
    why[channel.codes[own]] = ended.codes[own]
    ends[-1], why[-1] = NEVER, -1
    return ends, Names(why, ended.names)


def _outcomes(rows: Rows) -> Codes:
    """What each row does to the deliveries that it settles."""
    outcome = np.full(len(rows.begin_ns), REQUEUED, dtype=np.int32)
    outcome[rows.of("ack")] = ACKED
    outcome[rows.of("recover")] = RECOVERED
    for_good = rows.of("nack", "reject")
    outcome[for_good[~rows.flags("x_requeue")[for_good]]] = DROPPED
    return outcome


@dataclass(frozen=True, slots=True)
class Again:
    """Deliveries of what had been delivered before in the same lane.

    ``row`` and ``before`` are positions in the deliveries: each, and the one before it.
    """

    row: Ints
    before: Ints


def deliveries_again(found: Deliveries, lane: Codes) -> Again:
    """``lane``: where one message should come once; of a broadcast group each member's own."""
    if not len(found):
        nothing = np.zeros(0, dtype=np.int64)
        return Again(nothing, nothing)
    (message,) = pairs((lane, found.value))
    order = np.lexsort((found.begin_ns, message))
    same = message[order][1:] == message[order][:-1]
    return Again(order[1:][same], order[:-1][same])


def lanes_of_messages(rows: Rows, found: Deliveries) -> Codes:
    """Where each message should come once: its queue, its group, or a broadcast group's member."""
    if rows.kind == "consume":
        return found.lane.codes
    members = rows.of("member")
    wide = members[rows.flags("x_broadcast")[members]]
    groups = set(rows.names("x_group").take(wide).words())
    is_wide = np.array([*(name in groups for name in found.lane.names), False])[found.lane.codes]
    (groups_codes, holders), _ = common(found.lane, found.holder)
    return np.where(is_wide, holders, groups_codes).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead letters of groups as polls found them, one row a record."""

    lane: Names
    value: Ints
    at_ns: Ints


def group_dead_letters(rows: Rows) -> Letters:
    """What lies in the groups' dead letters."""
    names, polls = rows.names("key"), rows.of("poll")
    groups = tuple(name.partition(DEAD_LETTERS)[2].rpartition("/")[0] for name in names.names)
    records = rows.table["x_records"].combine_chunks().take(pa.array(polls))
    poll = polls[pc.list_parent_indices(records).to_numpy()]
    values = pc.fill_null(pc.list_element(pc.list_flatten(records), 1), 0)
    value = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)
    return Letters(Names(names.codes[poll], groups), value, rows.begin_ns[poll])


def dead_letters(rows: Rows) -> list[tuple[str, str, int]]:
    """(queue it died in, reason, messages) by what deliveries and dequeues say of deaths."""
    carriers = rows.of("deliver", "dequeue")
    carriers = carriers[rows.has_value[carriers]]
    deaths = rows.table["x_deaths"].combine_chunks().take(carriers)
    flat = pc.list_flatten(deaths)
    table = pa.table(
        {
            "queue": flat.field("queue"),
            "reason": flat.field("reason"),
            "value": rows.value[carriers][pc.list_parent_indices(deaths).to_numpy()],
        }
    )
    counted = table.group_by(["queue", "reason"]).aggregate([("value", "count_distinct")])
    return sorted(
        (row["queue"] or "", row["reason"] or "", row["value_count_distinct"])
        for row in counted.to_pylist()
    )


@dataclass(frozen=True, slots=True)
class Cause:
    """``flagged``: redelivered (consume), reconsumed (group)."""

    words: str
    flagged: int
    bare: int

    @property
    def total(self) -> int:
        return self.flagged + self.bare


def causes_of(kind: str, found: Deliveries, again: Again) -> list[Cause]:
    """Each cause with how often, the most frequent first."""
    if not len(again.row):
        return []
    codes, names = _codes(kind, found, again)
    flagged = found.again[again.row]
    with_flag = np.bincount(codes[flagged], minlength=len(names))
    without = np.bincount(codes[~flagged], minlength=len(names))
    causes = [
        Cause(name, int(yes), int(no))
        for name, yes, no in zip(names, with_flag, without, strict=True)
        if yes or no
    ]
    return sorted(causes, key=lambda cause: (-cause.total, cause.words))


def _codes(kind: str, found: Deliveries, again: Again) -> tuple[Ints, list[str]]:
    before = again.before
    outcome, known = found.outcome[before], found.known[before]
    early = found.end_ns[before] > found.begin_ns[again.row]
    why = found.why.codes[before]
    if kind == "group":
        names = [_LISTENERS.get(name, "") for name in found.why.names]
        base = ["its member died", "while another member was at it",
                "consumed, but its offset was not kept"]  # fmt: skip
        code = np.full(len(before), 0)
        code = np.where(outcome == ACKED, 2, code)
        said = np.array([*(bool(name) for name in names), False])[why]
        code = np.where(said, len(base) + why, code)
        # Until the listener of the one before returned; what it said later does not count.
        code = np.where(early & (found.end_ns[before] < NEVER), 1, code)
        return code, [*base, *names]
    names = [_ENDS_OF_CHANNELS.get(name, f"its channel ended: {name}") for name in found.why.names]
    base = [
        "nacked or rejected, and requeued",
        "recovered",
        "acknowledged, and the broker had heard it",
        "acknowledged, and it is unknown whether the broker heard it",
        "refused for good",
        "delivered without acknowledgements",
        "while another consumer had it",
    ]
    code = np.full(len(before), 6)
    for place, wanted in ((0, REQUEUED), (1, RECOVERED), (3, ACKED),
                          (4, DROPPED), (5, NO_ACK)):  # fmt: skip
        code = np.where(outcome == wanted, place, code)
    code = np.where((outcome == ACKED) & known, 2, code)
    code = np.where(outcome == ENDED, len(base) + why, code)
    # A broker may notice that a connection is gone long before its client does.
    return np.where(early & (outcome != ENDED), 6, code), [*base, *names]
