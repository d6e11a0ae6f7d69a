"""The story of a loss from a replicated log: its anatomy, and what became of who acknowledged it.

Messages of one queue that one node acknowledged one after the other, all of them lost, are a run
(checkers/history/loss.py). Of each run the nodes' events and the faults tell what happened, step by
step: who acknowledged and whether anybody else was known to have it, what hit that node, who was
elected, who became master with a log that ends earlier, who was deposed, and what was cut off.

By the steps that were seen a run has a cause, a key of CAUSES. None of them excuses anything: what
was acknowledged and is lost makes the run invalid whatever its cause is.
docs/evidence/loss-windows.md says what closes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.base import OPERATIONS_MAX
from shalott.checkers.history.acknowledging import (
    Witnesses,
    acknowledgers,
    answered_by,
    host_of,
    nodes_of_addresses,
)
from shalott.checkers.history.columns import Bools, Ints, Operations
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.history.loss import (
    POSITIONS,
    Run,
    acknowledged_messages,
    counts_by_fault_window,
    counts_by_node,
    lost_runs,
    positions_by_group,
    window_label,
)
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.checkers.history.words import Words
from shalott.checkers.logs.deposed import CAUSES, Scene, what_happened
from shalott.checkers.logs.records import LogHistory
from shalott.core.history import History

STORIES_MAX = 1000
EXAMINED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Answers:
    """The acknowledged sends. ``by``: who acknowledged each; ``group``: whose log each is in."""

    rows: Ints  # positions in the operations
    by: Words
    group: Words
    ops: Operations  # with who acknowledged in place of the client's node


def answers_of(log: LogHistory, history: History, around: Surroundings) -> Answers:
    """Who acknowledged what: by the client's word, or else by what the nodes told."""
    events = read_events(history)
    witnesses = Witnesses.read(events, around)
    rows = log.sends.row[log.sends.is_acked]
    group = _groups(log.ops, rows, witnesses)
    told = _told(log, rows, history, events)
    by = acknowledgers(log.ops, rows, group, witnesses, told)
    return Answers(rows, by, group, answered_by(log.ops, rows, by))


def loss_story(
    log: LogHistory, lost: Bools, answers: Answers, history: History, around: Surroundings
) -> dict[str, Any]:
    """The anatomy of what is gone, as detail. ``lost``: by send; {} if none of them is."""
    is_lost = lost[log.sends.is_acked]
    if not is_lost.any():
        return {}
    ops = answers.ops
    in_order = acknowledged_messages(ops, answers.rows, is_lost)
    by_node = acknowledged_messages(ops, answers.rows, is_lost, by_node=True)
    runs = lost_runs(by_node)
    scene = Scene.read(read_events(history), around)
    groups = [answers.group.names[code] for code in answers.group.codes]
    group_of = dict(zip(answers.rows.tolist(), groups, strict=True))
    stories = [
        _story(ops, run, by_node.row[run.begin : run.end], scene, group_of)
        for run in runs.longest(ops, by_node, EXAMINED_MAX)
    ]
    stories.sort(key=lambda story: (story["cause"] != "unexplained", -story["length"]))
    by_cause: dict[str, int] = {}
    for story in stories:
        by_cause[story["cause"]] = by_cause.get(story["cause"], 0) + story["length"]
    rest = int(runs.lengths.sum()) - sum(by_cause.values())
    queues = positions_by_group(in_order.queue, in_order.at_ns, in_order.is_lost)
    lengths = np.sort(runs.lengths)[::-1]
    return {
        "runs": {
            "count": len(lengths),
            "longest": int(lengths[0]),
            "lengths": [int(length) for length in lengths[:STORIES_MAX]],
        },
        "stories": stories[:STORIES_MAX],
        "by-cause": {**by_cause, "not examined": rest} if rest else by_cause,
        "by-node": counts_by_node(log.ops, in_order),
        "by-acknowledger": counts_by_node(ops, in_order),
        "by-fault-window": counts_by_fault_window(around.injected, in_order),
        "by-queue": {
            ops.key.names[code]: dict(zip(POSITIONS, counts, strict=True))
            for code, counts in queues.items()
        },
    }


def _groups(ops: Operations, rows: Ints, witnesses: Witnesses) -> Words:
    """The group of brokers that has each queue: topics are on one, and controllers are none."""
    known = [group for group in witnesses.groups if group != "controller"]
    topics = [ops.key.names[code].rpartition("/")[0] for code in range(len(ops.key.names))]
    alone = known[0] if len(known) == 1 else ""
    names = tuple(topic if topic in known else alone for topic in topics)
    distinct = tuple(dict.fromkeys(names)) or ("",)
    place = np.array([distinct.index(name) for name in names] or [0], dtype=np.int32)
    return Words(place[ops.key.codes[rows]], distinct)


class _Told(msgspec.Struct):
    broker: str = ""


def _told(log: LogHistory, rows: Ints, history: History, events: Sequence[NodeEvent]) -> Words:
    """Of each row the node whose address the client wrote down. Each text is read once."""
    table = history.ops
    client = np.flatnonzero(table["process"].to_numpy() >= 0)
    texts = table["extra"].take(pa.array(client[rows]))
    if not pa.types.is_dictionary(texts.type):
        texts = pc.dictionary_encode(texts)
    texts = texts.combine_chunks()
    nodes = dict.fromkeys([*log.ops.node.names, *(event.node for event in events)])
    known = nodes_of_addresses(events, tuple(nodes))
    decoder = msgspec.json.Decoder(_Told)
    names = [""]
    for text in texts.dictionary.to_pylist():
        try:
            address = decoder.decode(text).broker
        except msgspec.MsgspecError:
            address = ""
        host = host_of(address)
        names.append(host if host in nodes else known.get(address, ""))
    codes = pc.fill_null(pc.cast(texts.indices, pa.int32()), -1).to_numpy(zero_copy_only=False) + 1
    distinct = tuple(dict.fromkeys(names))
    place = np.array([distinct.index(name) for name in names], dtype=np.int32)
    return Words(place[codes.astype(np.int32)], distinct)


def _story(
    ops: Operations, run: Run, rows: Ints, scene: Scene, group_of: dict[int, str]
) -> dict[str, Any]:
    found = what_happened(scene, group_of[int(rows[0])], run)
    return {
        "queue": run.queue,
        "node": run.node,
        "acknowledged-by": [run.node] if run.node else [],
        "length": run.length,
        "first": int(ops.value[rows[0]]),
        "last": int(ops.value[rows[-1]]),
        "begin_ns": run.begin_ns,
        "end_ns": run.end_ns,
        "window": window_label(scene.around.injected, run.end_ns),
        "cause": found.cause,
        "why": CAUSES[found.cause],
        "steps": [step.detail() for step in found.steps],
        "operations": [int(index) for index in ops.index[rows[:OPERATIONS_MAX]]],
    }
