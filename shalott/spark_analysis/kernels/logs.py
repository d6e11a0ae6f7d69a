"""Messages and order of replicated logs, by queue: checkers/logs, as its checker counts them.

A send is an attempt. What counts places there (an offset that holds what no client sent) counts
places here. ``lost`` is what certainly is: a final read that is not whole proves no loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from shalott.checkers.history.columns import Bools, Codes, Ints
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.logs.log_order import Breach, poll_breaches, send_breaches
from shalott.checkers.logs.records import FAIL, INFO, LogHistory, read_log
from shalott.checkers.logs.values import (
    final_reads,
    groups_of_several,
    phantoms,
    placements,
    presence,
    sent_by_record,
    too_early,
)
from shalott.core.history import History
from shalott.spark_analysis.kernels.tables import OPERATIONS_MAX, Row


def log_rows(run: str, history: History, around: Surroundings) -> tuple[list[Row], list[Row]]:
    log = read_log(history)
    if not len(log.sends.row) and not len(log.polls.row):
        return [], []
    lost = list(_message_rows(run, log, around, history.complete))
    return lost, list(order_rows(run, log))


def _message_rows(run: str, log: LogHistory, around: Surroundings, complete: bool) -> Iterator[Row]:
    sends, names = log.sends, log.ops.key.names
    sent = sent_by_record(log)
    found = presence(log, final_reads(log, around, complete), sent)
    told = placements(log)
    twice = groups_of_several(told.value)
    doubled = np.array([told.value[group[0]] for group in twice], dtype=np.int64)
    is_doubled = np.isin(sends.value, doubled)
    acked, failed, unsure = sends.is_acked, sends.outcome == FAIL, sends.outcome == INFO
    masks: dict[str, Bools] = {
        "attempts": np.ones(len(sends.row), dtype=np.bool_),
        "acknowledged": acked,
        "delivered_once": acked & ~found.lost & ~is_doubled,
        "recovered": found.at_end & unsure,
        "lost": found.lost,
        "not_enqueued": ~acked & ~found.at_end & ~(failed & found.read),
        "unseen": found.unseen,
        "lost_on_node": found.on_some,
        "vanished": found.vanished,
    }
    counts = {name: _count(sends.key[mask], len(names)) for name, mask in masks.items()}
    homes = np.array([told.key[group[0]] for group in twice], dtype=np.int64)
    counts["duplicated"] = _count(homes, len(names))
    records = {
        "phantom": phantoms(log, sent),
        "too_early": too_early(log, sent),
        "unexpected": np.flatnonzero(sent == -1),
        "corrupted": np.flatnonzero(sent == -2),
    }
    for name, own in records.items():
        counts[name] = _count(_places(log, own), len(names))
    used = np.unique(np.concatenate((sends.key, log.polls.key)))
    for code in used.tolist():
        row: Row = {"run": run, "queue": names[code], "redelivered": 0}
        row |= {name: int(number[code]) for name, number in counts.items()}
        lost = np.flatnonzero(found.lost & (sends.key == code))
        row["lost_operations"] = _indexes(log, sends.row[lost])
        places = [told.row[group] for group in twice if told.key[group[0]] == code]
        proof = np.concatenate(places) if places else lost[:0]
        row["duplicated_operations"] = _indexes(log, proof)
        for kind in ("phantom", "unexpected"):
            read = records[kind][log.records.key[records[kind]] == code]
            row[f"{kind}_operations"] = _indexes(log, log.records.row[read])
        yield row


def _count(codes: Ints | Codes, size: int) -> Ints:
    return np.bincount(codes, minlength=size)


def _places(log: LogHistory, records: Ints) -> Ints:
    """The queue of each place that some of these records were read at."""
    both = np.stack((log.records.key[records].astype(np.int64), log.records.offset[records]))
    return np.asarray(np.unique(both, axis=1)[0])


def _indexes(log: LogHistory, rows: Ints) -> list[int]:
    return [int(log.ops.index[row]) for row in np.unique(rows)[:OPERATIONS_MAX]]


def order_rows(run: str, log: LogHistory) -> Iterator[Row]:
    """What readers and senders found out of order, and a row for each queue with how many records
    were judged."""
    names = log.ops.key.names
    judged = np.bincount(log.records.key, minlength=len(names))
    by_place: dict[tuple[str, str], list[Breach]] = {}
    for breach in (*poll_breaches(log), *send_breaches(log)):
        by_place.setdefault((breach.key, breach.kind), []).append(breach)
    keys = [names[code] for code in np.unique(log.polls.key)]
    sound = [key for key in keys if not any(place[0] == key for place in by_place)]
    for key in sound:
        yield _order_row(run, key, "", int(judged[names.index(key)]), ())
    for (key, kind), own in sorted(by_place.items()):
        count = int(judged[names.index(key)]) if key in names else 0
        yield _order_row(run, key, kind, count, own, log)


def _order_row(
    run: str, key: str, kind: str, judged: int, own: Iterable[Breach], log: LogHistory | None = None
) -> Row:
    breaches = list(own)
    rows = dict.fromkeys(row for breach in breaches for row in breach.rows)
    proof = [int(log.ops.index[row]) for row in list(rows)[:OPERATIONS_MAX]] if log else []
    return {
        "run": run, "kind": "log", "lane": key, "breach": kind,
        "judged": judged, "count": len(breaches), "operations": proof,
    }  # fmt: skip
