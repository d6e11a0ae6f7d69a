"""The story of a loss from a replicated log: its anatomy, and what became of who acknowledged it.

Messages of one queue that one node acknowledged one after the other, all of them lost, are a run
(checkers/history/loss.py). Of each run the nodes' events and the faults tell what happened, step by
step: who acknowledged and whether anybody else was known to have it, what hit that node, who was
elected, who became master with a log that ends earlier, who was deposed, and what was cut off.

By the steps that were seen a run has a cause, a key of CAUSES. None of them excuses anything: what
was acknowledged and is lost makes the run invalid with any cause. docs/evidence/loss-windows.md
says what closes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.checker import OPERATIONS_MAX
from shalott.checkers.history.acknowledgers import (
    Witnesses,
    acknowledgers,
    answered_by,
    host_of,
    nodes_of_addresses,
)
from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import Bools, Ints, Operations
from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.loss import (
    POSITIONS,
    LossDetail,
    LossStory,
    Run,
    acknowledged_messages,
    counts_by_fault_window,
    counts_by_node,
    lost_runs,
    positions_by_group,
    window_label,
)
from shalott.checkers.history.tenures import NodeEvent, read_events
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
) -> LossDetail:
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
) -> LossStory:
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


# What became of a master of a replicated log that acknowledged messages which are gone.
#
# Read from events (``acked``, ``elected``, ``role``, ``epoch``, ``truncated``) and faults, in the
# order in which things happen: it acknowledges, something hits it, a node is elected, a node
# becomes master with a log that ends earlier, the former one steps down, and cuts its log. Each
# that was seen is a Step with its evidence; the cause is told by which of them were.

S = 1_000_000_000
SLACK_NS = S // 4  # what lines of nodes' logs and the clients' clock may be apart
UNNOTICED_NS = 30 * S  # how long after its end a fault may be the reason of a change of masters
_BEYOND_ALL = 1 << 62  # an epoch

CAUSES = {
    "unflushed": "what was acknowledged had not been flushed, and a loss of power took it",
    "alone": "a master that was cut off went on acknowledging, and another one took its place",
    "asleep": "a master that had been suspended went on acknowledging when it woke up",
    "deposed": "a master acknowledged when another one had taken its place",
    "behind": "who became master did not have all that the one before had acknowledged",
    "unexplained": "no event and no fault explains it",
}


@dataclass(frozen=True, slots=True)
class Step:
    """``event`` is a row of the events, ``operation`` an index of the history; -1: none."""

    says: str
    at_ns: int
    node: str = ""
    event: int = -1
    operation: int = -1

    def detail(self) -> dict[str, object]:
        proof = {"event": self.event, "operation": self.operation}
        told = {"says": self.says, "at_ns": self.at_ns, "node": self.node}
        return told | {name: at for name, at in proof.items() if at >= 0}


@dataclass(frozen=True, slots=True)
class Fate:
    cause: str  # a key of CAUSES
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Of each group its events, in order of time."""

    by_group: dict[str, list[NodeEvent]]
    around: Surroundings

    @staticmethod
    def read(events: Sequence[NodeEvent], around: Surroundings) -> Scene:
        by_group: dict[str, list[NodeEvent]] = {}
        for event in events:
            by_group.setdefault(event.group, []).append(event)
        return Scene(by_group, around)


@dataclass(frozen=True, slots=True)
class _Ack:
    """The word of ``node`` that the run was acknowledged; ``end``: how far its log was then."""

    event: NodeEvent
    end: int


def what_happened(scene: Scene, group: str, run: Run) -> Fate:
    """To the node that acknowledged a run of losses, and so to its messages."""
    events = scene.by_group.get(group, [])
    ack = _acknowledgement(events, run)
    begun = _successor(events, run, ack)
    until_ns = begun.run_ns if begun is not None else scene.around.end_ns
    hits = list(_hits(scene.around, run, ack, until_ns))
    steps = [
        *([_acknowledged(ack, run)] if ack else []),
        *(Step(says, f.invoke_ns, run.node, operation=f.index) for says, f in hits),
    ]
    if begun is not None:
        steps += [*_elected(events, begun), _became(begun, ack)]
        steps += _afterwards(events, run, begun, ack)
    steps.sort(key=lambda step: step.at_ns)
    return Fate(_cause(events, run, begun, ack, [fault for _, fault in hits]), tuple(steps))


def _acknowledgement(events: Sequence[NodeEvent], run: Run) -> _Ack | None:
    """The first word of the node that reaches to the run's end."""
    for event in events:
        if event.kind == "acked" and event.node == run.node:
            first_ns, last_ns = event.bounds_ns("first_ns")[0], event.bounds_ns("last_ns")[1]
            if last_ns >= run.end_ns - SLACK_NS and first_ns <= run.end_ns + SLACK_NS:
                return _Ack(event, int(event.detail.get("end") or 0))
    return None


def _acknowledged(ack: _Ack, run: Run) -> Step:
    event = ack.event
    says = f"{event.node} acknowledged as master, in epoch {event.epoch}"
    if ack.end:
        says += f", its log up to {ack.end}"
    holders = event.detail.get("holders")
    if isinstance(holders, list) and not holders:
        says += ", alone: it knew of no other node that had it"
    return Step(says, run.begin_ns, event.node, event=event.row)


def _successor(events: Sequence[NodeEvent], run: Run, ack: _Ack | None) -> NodeEvent | None:
    """Who became master after the run, or during it, or before it unnoticed by the node: another
    node, or that one in another life. The first whose log ends earlier, if any does: a node that
    dies takes its last words of what it acknowledged with it."""
    found: NodeEvent | None = None
    epoch = _own_epoch(events, run, ack)
    for event in events:
        if event.kind not in ("role", "epoch") or event.role != "master":
            continue
        if ack is None:
            is_later = event.run_ns >= run.begin_ns or event.epoch > epoch
            same_life = event.node == run.node
        else:
            same_life = (event.node, event.incarnation) == (run.node, ack.event.incarnation)
            again = event.node == run.node and event.incarnation > ack.event.incarnation
            is_later = event.epoch > ack.event.epoch or again
        if same_life or not is_later:
            continue
        end = event.detail.get("end")
        if ack is not None and ack.end and isinstance(end, int) and end < ack.end:
            return event
        found = found or event
    return found


def _hits(
    around: Surroundings, run: Run, ack: _Ack | None, until_ns: int
) -> Iterator[tuple[str, Fault]]:
    """Faults of the node that were in force from the run on until there was another master, and
    losses of power that it had come back from."""
    again = ack is not None and ack.event.incarnation > 1
    for fault in around.injected:
        near = fault.invoke_ns <= until_ns and fault.end_ns + UNNOTICED_NS >= run.begin_ns
        if not near or not _touches(fault, run.node):
            continue
        over = fault.end_ns < run.begin_ns
        if fault.takes_power:
            if not over or again:
                yield f"{run.node} lost its power: fault {fault.name}", fault
        elif fault.takes_processes:
            if not over:
                yield f"{run.node} ended: fault {fault.name}", fault
        elif fault.suspends:
            yield f"{run.node} was suspended: fault {fault.name}", fault
        elif fault.is_partition and not over:
            yield f"{run.node} was cut off: fault {fault.name}", fault


def _touches(fault: Fault, node: str) -> bool:
    return node in fault.nodes or any(node in link for link in fault.links)


def _elected(events: Sequence[NodeEvent], begun: NodeEvent) -> Iterator[Step]:
    for event in events:
        is_own = event.detail.get("master") == begun.node and event.epoch == begun.epoch
        if event.kind == "elected" and is_own:
            members = event.detail.get("set")
            of = f" out of {{{', '.join(map(str, members))}}}" if members else ""
            yield Step(
                f"the controllers' leader {event.node} elected {begun.node} for epoch"
                f" {event.epoch}{of}",
                event.run_ns,
                event.node,
                event=event.row,
            )
            return


def _became(begun: NodeEvent, ack: _Ack | None) -> Step:
    again = ack is not None and ack.event.node == begun.node
    says = f"{begun.node} {'came back as' if again else 'became'} master in epoch {begun.epoch}"
    end = begun.detail.get("end")
    if isinstance(end, int):
        says += f" with a log that ends at {end}"
        if ack is not None and ack.end > end:
            says += f", before {ack.end}"
    return Step(says, begun.run_ns, begun.node, event=begun.row)


def _afterwards(
    events: Sequence[NodeEvent], run: Run, begun: NodeEvent, ack: _Ack | None
) -> Iterator[Step]:
    """How the former master heard of it, and what was cut off anybody's log because of it."""
    epoch = ack.event.epoch if ack is not None else -1
    elected = [step.at_ns for step in _elected(events, begun)]
    since_ns = min([begun.run_ns, *elected])
    for event in events:
        was = event.node == run.node and event.run_ns >= since_ns and run.node != begun.node
        if was and event.kind == "role" and event.role != "master":
            now = f": it is a {event.role} now" if event.role not in ("", "none") else ""
            yield Step(f"{event.node} was deposed{now}", event.run_ns, event.node, event=event.row)
            break
    end = ack.end if ack is not None else 0
    for event in events:
        if event.kind != "truncated" or event.run_ns < run.begin_ns or event.epoch < epoch:
            continue
        before, to = event.detail.get("from"), event.detail.get("to")
        if isinstance(to, int) and (event.node == run.node or not end or to < end):
            says = f"{event.node} cut its log from {before} down to {to}"
            yield Step(says, event.run_ns, event.node, event=event.row)


def _own_epoch(events: Sequence[NodeEvent], run: Run, ack: _Ack | None) -> int:
    """In which the node acknowledged the run: its own last one until then; if it was never seen as
    master, none that anybody could be beyond."""
    if ack is not None:
        return ack.event.epoch
    own = [
        event.epoch
        for event in events
        if event.node == run.node
        and (event.kind, event.role) == ("role", "master")
        and event.run_ns <= run.begin_ns
    ]
    return max(own, default=_BEYOND_ALL)


def _was_deposed(events: Sequence[NodeEvent], run: Run, ack: _Ack | None) -> bool:
    """Whether another node was elected, or was master, in a later epoch, before the node
    acknowledged the run."""
    before = [event for event in events if event.run_ns <= run.begin_ns]
    epoch = _own_epoch(events, run, ack)
    return any(
        event.epoch > epoch
        and (
            (event.kind == "elected" and event.detail.get("master") not in (None, run.node))
            or (event.node != run.node and (event.kind, event.role) == ("role", "master"))
        )
        for event in before
    )


def _cause(
    events: Sequence[NodeEvent],
    run: Run,
    begun: NodeEvent | None,
    ack: _Ack | None,
    hits: Sequence[Fault],
) -> str:
    if any(fault.takes_power for fault in hits):
        return "unflushed"
    if begun is None:
        return "unexplained"
    if any(f.is_partition and f.invoke_ns <= run.end_ns + SLACK_NS for f in hits):
        return "alone"
    if any(f.suspends and f.invoke_ns <= run.end_ns for f in hits):
        return "asleep"
    if _was_deposed(events, run, ack):
        return "deposed"
    end = begun.detail.get("end")
    shorter = ack is not None and isinstance(end, int) and end < ack.end
    return "behind" if shorter or (ack is None and hits) else "unexplained"
