"""log: a replicated log's messages, judged as jepsen/src/jepsen/tests/kafka.clj judges Kafka's.

Reads the sends and polls (records.py) and finds: lost-write, lost-on-node, vanished, duplicate,
inconsistent-offsets, shared-offset, phantom, unexpected, too-early, corrupted (values.py);
poll-skip, nonmonotonic-poll, nonmonotonic-send, reordered (log_order.py). Each makes the run
invalid, but lost-on-node after a heal from which the cluster had not settled; stored-twice: a
message that lies at no more places than its client sent it to, as a library that retries does; and
committed-twice: a transaction's, which upstream's manual allows, as brokers ask again. Of
transactions it finds two things more: decided-twice, undecided.

``unseen`` messages, and a final read that is not whole, make a run "unknown": who did not read to
the end of every queue at every node can't say that nothing was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.history.columns import Bools, Ints
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.checkers.history.loss import LossDetail, window_label
from shalott.checkers.logs.log_loss_story import Answers, answers_of, loss_story
from shalott.checkers.logs.log_order import Breach, poll_breaches, send_breaches
from shalott.checkers.logs.records import LogHistory, read_log
from shalott.checkers.logs.values import (
    FinalReads,
    Placements,
    Presence,
    final_reads,
    groups_of_several,
    kinds_of_copies,
    phantoms,
    placements,
    presence,
    sent_by_record,
    too_early,
)
from shalott.core.history import History

KINDS = (
    *("lost-write", "lost-on-node", "vanished", "unseen"),
    *("duplicate", "stored-twice", "committed-twice", "inconsistent-offsets", "shared-offset"),
    *("phantom", "unexpected", "too-early", "corrupted", "decided-twice", "undecided"),
    *("poll-skip", "nonmonotonic-poll", "nonmonotonic-send", "reordered"),
)
NOTES_MAX = 8
_EXCUSED = ("unseen", "stored-twice", "committed-twice")


@dataclass(frozen=True, slots=True)
class ReplicatedLog:
    name: str = "log"

    def check(self, history: History) -> Result:
        around = read_surroundings(history)
        log = read_log(history)
        final = final_reads(log, around, history.complete)
        sent = sent_by_record(log)
        found = presence(log, final, sent)
        missing = found.lost | found.on_some | found.vanished | found.unseen
        answers = answers_of(log, history, around) if missing.any() else None
        # What is on some nodes only is told in its place: its copies are not what was promised.
        gone = found.lost if found.lost.any() or not final.settled else found.on_some
        loss = loss_story(log, gone, answers, history, around) if answers else {}
        anomalies = [
            *(_missing(log, found, final, around, answers, loss) if answers else ()),
            *_misplaced(log, placements(log)),
            *_unfounded(log, sent),
            *_of_transactions(log, final),
            *_breaches(log, [*poll_breaches(log), *send_breaches(log)]),
        ]
        counts = {f"{kind}-count": 0 for kind in KINDS}
        for anomaly in anomalies:
            counts[f"{anomaly.kind}-count"] = anomaly.detail["count"]
        excused = (*_EXCUSED, *(() if final.settled else ("lost-on-node",)))
        broken = [anomaly.kind for anomaly in anomalies if anomaly.kind not in excused]
        notes = _notes(log, final, counts)
        return Result(
            checker=self.name,
            valid=False if broken else ("unknown" if notes else True),
            counts={**_totals(log, found), **counts},
            anomalies=tuple(anomalies),
            notes=notes,
            detail={"broken": broken, "unread": _unread(final), **({"loss": loss} if loss else {})},
        )


def _totals(log: LogHistory, found: Presence) -> dict[str, int | float]:
    outcomes = np.bincount(log.sends.outcome, minlength=3)
    return {
        "attempt-count": len(log.sends.row),
        "acknowledged-count": int(outcomes[0]),
        "failed-count": int(outcomes[1]),
        "indeterminate-count": int(outcomes[2]),
        "poll-count": len(log.polls.row),
        "record-count": len(log.records.row),
        "final-count": int(found.at_end.sum()),
        "recovered-count": int((found.at_end & (log.sends.outcome == 2)).sum()),
    }


def _notes(log: LogHistory, final: FinalReads, counts: dict[str, int]) -> tuple[str, ...]:
    notes = [
        f"The final read of {key} at {node} is not whole: {reason}."
        for (node, key), reason in list(final.missing.items())[:NOTES_MAX]
    ]
    if len(final.missing) > NOTES_MAX:
        notes.append(f"And so are {len(final.missing) - NOTES_MAX} more final reads.")
    if counts["unseen-count"]:
        notes.append(f"{counts['unseen-count']} acknowledged messages were read by no client.")
    if log.malformed:
        notes.append(f"{log.malformed} sends and polls were not recorded as they should be.")
    if log.undecided:
        notes.append(
            f"{log.undecided} transactions were committed, and no broker said that none waits."
        )
    if not len(log.sends.row):
        notes.append("Nothing was sent.")
    if not final.settled and counts["lost-on-node-count"]:
        notes.append(
            "The cluster had not settled, so what some node lacks at the end may yet come there."
        )
    return tuple(notes)


def _unread(final: FinalReads) -> list[list[str]]:
    return [[node, key, reason] for (node, key), reason in final.missing.items()]


# -- what is missing -------------------------------------------------------------------------------


def _missing(
    log: LogHistory,
    found: Presence,
    final: FinalReads,
    around: Surroundings,
    answers: Answers,
    loss: LossDetail,
) -> list[Anomaly]:
    some = np.flatnonzero(found.on_some)
    nodes = f"{found.at_nodes[some[0]] if len(some) else 0} of {len(final.nodes)} nodes"
    told = (
        ("lost-write", found.lost, _why_lost(log, found)),
        ("lost-on-node", found.on_some, f"{nodes} have it at the end"),
        ("vanished", found.vanished, _VANISHED),
        ("unseen", found.unseen, "no client read it, and not all was read"),
    )
    of_loss = "lost-write" if found.lost.any() else "lost-on-node"
    anomalies = []
    for kind, mask, why in told:
        if not mask.any():
            continue
        anomaly = _of_sends(log, around, kind, mask, why, answers)
        if loss and kind == of_loss:
            first = loss["stories"][0]
            story = {name: first[name] for name in ("cause", "why", "steps", "acknowledged-by")}
            anomaly = msgspec.structs.replace(anomaly, detail={**anomaly.detail, **story})
        anomalies.append(anomaly)
    return anomalies


_VANISHED = "a client read it, it was never acknowledged, and no node has it at the end"


def _why_lost(log: LogHistory, found: Presence) -> str:
    """Of the first lost one: what is there instead."""
    rows = np.flatnonzero(found.lost)
    if not len(rows):
        return ""
    first, records = rows[0], log.records
    there = (records.key == log.sends.key[first]) & (records.offset == log.sends.offset[first])
    others = np.unique(records.value[there & records.is_sound])
    others = others[others != log.sends.value[first]]
    if len(others):
        return f"its offset holds message {others[-1]} now"
    was_read = "a client had read it; " if found.read[first] else ""
    return f"{was_read}no node's log has it at the end"


def _of_sends(
    log: LogHistory, around: Surroundings, kind: str, mask: Bools, why: str, answers: Answers
) -> Anomaly:
    """One anomaly for all sends of a kind; the sentence tells the first one's story."""
    members = np.flatnonzero(mask)
    ops, sends, first = log.ops, log.sends, members[0]
    row, key = sends.row[first], ops.key.names[sends.key[first]]
    offset = f"offset {sends.offset[first]} of {key}" if sends.offset[first] >= 0 else key
    at_ns = int(ops.invoke_ns[row])
    story = (
        f"message {sends.value[first]} at {offset}, {_sent_how(log, answers, int(first))}"
        f" at {at_ns / 1e9:.1f} s, {window_label(around.injected, at_ns)}; {why}"
    )
    return _anomaly(log, kind, len(members), story, sends.row[members], sends.value[members])


def _sent_how(log: LogHistory, answers: Answers, send: int) -> str:
    row = log.sends.row[send]
    through = log.ops.node.names[log.ops.node.codes[row]]
    if not log.sends.is_acked[send]:
        return f"sent through {through}"
    by = answers.ops.node.names[answers.ops.node.codes[row]]
    if not by:
        return f"acknowledged to a client of {through}"
    return f"acknowledged by {by}" + ("" if by == through else f" to a client of {through}")


# -- what is where it should not be ----------------------------------------------------------------


_COPIES = {
    "duplicate": "",
    "stored-twice": "; its client had sent it so often",
    "committed-twice": "; it is a transaction's, of which upstream promises no more",
}


def _misplaced(log: LogHistory, told: Placements) -> list[Anomaly]:
    names, anomalies = log.ops.key.names, []
    twice = groups_of_several(told.value)
    kinds = kinds_of_copies(log, told, twice)
    for kind, why in _COPIES.items():
        own = [places for places, its in zip(twice, kinds, strict=True) if its == kind]
        if own:
            places = ", ".join(f"{told.offset[at]} of {names[told.key[at]]}" for at in own[0][:4])
            story = f"message {told.value[own[0][0]]} at offsets {places}{why}"
            anomalies.append(_of_places(log, told, kind, own, story))
    shared = groups_of_several(told.key, told.offset)
    if shared:
        story = f"offset {told.offset[shared[0][0]]} of {names[told.key[shared[0][0]]]} was"
        values = " and ".join(str(told.value[at]) for at in shared[0][:4])
        story += f" message {values}"
        anomalies.append(_of_places(log, told, "inconsistent-offsets", shared, story))
    sent = np.flatnonzero(told.is_sent)
    both = [sent[at] for at in groups_of_several(told.key[sent], told.offset[sent])]
    if both:
        first = both[0]
        story = (
            f"messages {' and '.join(str(told.value[at]) for at in first[:4])} were both"
            f" acknowledged at offset {told.offset[first[0]]} of {names[told.key[first[0]]]}"
        )
        anomalies.append(_of_places(log, told, "shared-offset", both, story))
    return anomalies


def _of_places(
    log: LogHistory, told: Placements, kind: str, groups: Sequence[Ints], story: str
) -> Anomaly:
    members = np.concatenate(groups[:OPERATIONS_MAX])
    found = _anomaly(log, kind, len(groups), story, told.row[members], told.value[members])
    if kind != "stored-twice":
        return found
    return msgspec.structs.replace(found, detail={**found.detail, "by": "client"})


def _unfounded(log: LogHistory, sent: Ints) -> list[Anomaly]:
    """Records that should not have been there to be read."""
    kinds = {
        "phantom": (phantoms(log, sent), "although its send had certainly failed"),
        "too-early": (too_early(log, sent), "before it was sent"),
        "unexpected": (np.flatnonzero(sent == -1), "although no client had sent it"),
        "corrupted": (np.flatnonzero(sent == -2), "with a body that fails its CRC"),
    }
    anomalies = []
    for kind, (records, how) in kinds.items():
        if not len(records):
            continue
        first, table, ops = records[0], log.records, log.ops
        node = ops.node.names[ops.node.codes[table.row[first]]]
        what = "a message" if kind == "corrupted" else f"message {table.value[first]}"
        where = f"offset {table.offset[first]} of {ops.key.names[table.key[first]]}"
        story = f"{what} was read at {where} from {node}, {how}"
        places = len(np.unique(np.stack((table.key[records], table.offset[records])), axis=1).T)
        rows = _with_sends(log, sent, records)
        anomalies.append(_anomaly(log, kind, places, story, rows, np.unique(table.value[records])))
    return anomalies


def _of_transactions(log: LogHistory, final: FinalReads) -> list[Anomaly]:
    """What our own client was told of its ends (records.py)."""
    found, told, sends = [], log.settling, log.sends
    if told.twice:
        rows = sends.row[np.isin(sends.value, told.twice)]
        story = f"brokers accepted a decision of {told.twice[0]} after another had been accepted"
        values = np.array(told.twice, dtype=np.int64)
        found.append(_anomaly(log, "decided-twice", len(told.twice), story, rows, values))
    if told.undecided and final.settled:
        story = "long after the heal, with producers there, a broker had not decided it"
        rows, values = np.array([told.row]), sends.value[:0]
        found.append(_anomaly(log, "undecided", told.undecided, story, rows, values))
    return found


def _with_sends(log: LogHistory, sent: Ints, records: Ints) -> Ints:
    """Rows of the records' sends, where there are any, and of who read them."""
    some = records[: OPERATIONS_MAX // 2]
    known = sent[some][sent[some] >= 0]
    return np.unique(np.concatenate((log.sends.row[known], log.records.row[some])))


def _breaches(log: LogHistory, found: Sequence[Breach]) -> list[Anomaly]:
    by_kind: dict[str, list[Breach]] = {}
    for breach in found:
        by_kind.setdefault(breach.kind, []).append(breach)
    return [_of_breaches(log, kind, own) for kind, own in sorted(by_kind.items())]


def _of_breaches(log: LogHistory, kind: str, own: Sequence[Breach]) -> Anomaly:
    rows = dict.fromkeys(row for breach in own[:OPERATIONS_MAX] for row in breach.rows)
    return Anomaly(
        kind=kind,
        summary=_summary(kind, len(own), own[0].sentence),
        operations=tuple(int(log.ops.index[row]) for row in list(rows)[:OPERATIONS_MAX]),
        detail={"count": len(own), "keys": sorted(dict.fromkeys(b.key for b in own))},
    )


def _anomaly(
    log: LogHistory, kind: str, count: int, story: str, rows: Ints, values: Ints
) -> Anomaly:
    operations = log.ops.index[rows[:OPERATIONS_MAX]]
    keys = np.unique(log.ops.key.codes[rows])
    return Anomaly(
        kind=kind,
        summary=_summary(kind, count, story),
        operations=tuple(int(index) for index in np.unique(operations)),
        detail={
            "count": count,
            "values": [int(value) for value in values[:OPERATIONS_MAX]],
            "keys": [log.ops.key.names[code] for code in keys],
        },
    )


def _summary(kind: str, count: int, story: str) -> str:
    return f"{count} {kind}: {story}" if count == 1 else f"{count} {kind}, the first: {story}"
