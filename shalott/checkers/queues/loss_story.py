"""The story of a loss: its anatomy put together with its likely cause, for total-queue's result.

Runs of loss are told one by one, the unexplained first, then the longest: which queue, when
acknowledged, around which fault, and which window (checkers/queues/loss_windows.py) explains them,
with the evidence. When two sides of a split cluster acknowledge at once, what one of them loses is
interleaved with what the other keeps; then the runs through each node tell the story with fewer
pieces, and are told instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly
from shalott.checkers.history.acknowledgers import Witnesses, acknowledgers, answered_by
from shalott.checkers.history.columns import Ints, Operations
from shalott.checkers.history.documented_losses import (
    LossScene,
    Stretch,
    documented_loss,
    in_detail,
)
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.history.loss import (
    POSITIONS,
    Acknowledged,
    LossDetail,
    LossStory,
    Run,
    Runs,
    acknowledged_messages,
    counts_by_fault_window,
    counts_by_node,
    lost_runs,
    positions_by_group,
    window_label,
)
from shalott.checkers.history.tenures import read_events
from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees, Excuses
from shalott.checkers.queues.loss_windows import WINDOWS, Explanation, Guarded, explain
from shalott.checkers.queues.outcomes import LOST, MessageOutcomes
from shalott.checkers.queues.turning_points import Scene, TurningPoint, read_scene, turning_points
from shalott.core.history import History

ANOMALIES_MAX = 32  # runs of loss that become anomalies of their own
STORIES_MAX = 1000  # runs that are kept in the detail, and groups in its tables
EXAMINED_MAX = 10_000  # runs whose cause is looked for


def loss_story(
    ops: Operations,
    outcomes: MessageOutcomes,
    history: History,
    around: Surroundings,
    guarantees: ClientGuarantees = CAREFUL,
) -> tuple[LossDetail, list[Anomaly]]:
    """The anatomy of loss as detail, and its longest runs as anomalies."""
    messages = outcomes.messages
    is_acked = messages.ack == 0
    is_lost = messages.outcome[is_acked] == LOST
    if not is_lost.any():
        return {}, []
    rows = messages.row[is_acked]
    in_order = acknowledged_messages(ops, rows, is_lost)
    by_node = acknowledged_messages(ops, rows, is_lost, by_node=True)
    runs, node_runs = lost_runs(in_order), lost_runs(by_node)
    told, acked = (runs, in_order)
    if len(node_runs.begin) < len(runs.begin):
        told, acked = (node_runs, by_node)
    events = read_events(history)
    scene = read_scene(events, around)
    group = ops.key.take(in_order.row)
    by = acknowledgers(ops, in_order.row, group, Witnesses.read(events, around))
    answered = answered_by(ops, in_order.row, by)
    excuses = Excuses(ops, around, guarantees)
    stories = _stories(ops, told, acked, scene, excuses, answered)
    by_cause = _by_cause(stories, int(told.lengths.sum()))
    detail: LossDetail = {
        "runs": _lengths(runs),
        "runs-by-node": _lengths(node_runs),
        "stories": stories[:STORIES_MAX],
        "by-cause": by_cause,
        "by-node": counts_by_node(ops, in_order),
        "by-acknowledger": counts_by_node(answered, in_order),
        "by-fault-window": counts_by_fault_window(around.injected, in_order),
        **_positions(ops, in_order),
    }
    if seen := in_detail(guarantees.documented, list(by_cause)):
        detail["documented"] = seen
    return detail, _anomalies(stories, told)


def _lengths(runs: Runs) -> dict[str, object]:
    lengths = np.sort(runs.lengths)[::-1]
    return {
        "count": len(lengths),
        "longest": int(lengths[0]),
        "lengths": [int(length) for length in lengths[:STORIES_MAX]],
    }


def _positions(ops: Operations, acked: Acknowledged) -> dict[str, object]:
    """Prefix, middle, suffix or whole: by queue, by writing process, and over all processes."""
    writers = ops.process[acked.row].astype(np.int64)
    processes = positions_by_group(writers, acked.at_ns, acked.is_lost)
    queues = positions_by_group(acked.queue, acked.at_ns, acked.is_lost)
    total = np.sum(list(processes.values()), axis=0)
    return {
        "by-queue": {ops.key.names[code]: _named(counts) for code, counts in queues.items()},
        "by-process": {
            str(process): _named(counts)
            for process, counts in list(processes.items())[:STORIES_MAX]
        },
        "positions-by-process": _named([int(count) for count in total]),
    }


def _named(counts: Sequence[int]) -> dict[str, int]:
    return dict(zip(POSITIONS, counts, strict=True))


def _stories(
    ops: Operations,
    runs: Runs,
    acked: Acknowledged,
    scene: Scene,
    excuses: Excuses,
    answered: Operations,
) -> list[LossStory]:
    points = turning_points(scene)
    by_queue: dict[str, list[TurningPoint]] = {}
    longest = runs.longest(ops, acked, EXAMINED_MAX)
    for queue in {run.queue for run in longest}:
        by_queue[queue] = [point for point in points if point.group in ("", queue)]
    told = [
        _story(ops, run, acked, scene, by_queue[run.queue], excuses, answered) for run in longest
    ]
    # What no document warns of goes first.
    return sorted(told, key=lambda story: (story["cause"] != "unexplained", -story["length"]))


def _story(
    ops: Operations,
    run: Run,
    acked: Acknowledged,
    scene: Scene,
    points: Sequence[TurningPoint],
    excuses: Excuses,
    answered: Operations,
) -> LossStory:
    rows = acked.row[run.begin : run.end]
    through = [ops.node.names[code] for code in np.unique(ops.node.codes[rows])]
    given = excuses.guarantees
    guarded = Guarded(given.closed, given.transient, given.confirms)
    by = _nodes(answered, rows)
    found = (
        excuses.untold_delivery(run)
        or explain(run, through, points, scene, guarded)
        or excuses.unconfirmed(run)
        or _documented(run, by, given, scene)
    )
    return {
        "queue": run.queue,
        "node": run.node,
        "length": run.length,
        "first": int(ops.value[rows[0]]),
        "last": int(ops.value[rows[-1]]),
        "begin_ns": run.begin_ns,
        "end_ns": run.end_ns,
        "window": window_label(scene.around.injected, run.end_ns),
        "cause": found.window if found else "unexplained",
        "why": found.text if found else WINDOWS["unexplained"],
        "evidence": found.evidence if found else {},
        "steps": list(found.steps) if found else [],
        "operations": [int(index) for index in ops.index[rows[:OPERATIONS_MAX]]],
        "acknowledged-by": by,
    }


def _documented(
    run: Run, by: Sequence[str], given: ClientGuarantees, scene: Scene
) -> Explanation | None:
    """By a window that the system's own record names."""
    if not given.documented:
        return None
    stretch = Stretch(run.begin_ns, run.end_ns, tuple(by))
    found = documented_loss(stretch, given.documented, LossScene.of(scene.events, scene.around))
    if found is None:
        return None
    text = f"{found.loss.text}: {found.text}"
    return Explanation(found.loss.name, text, {"operation": found.operation}, found.steps)


def _nodes(answered: Operations, rows: Ints) -> list[str]:
    """Who acknowledged a run of losses, where it can be told."""
    names = [answered.node.names[code] for code in np.unique(answered.node.codes[rows])]
    return [name for name in names if name]


def _by_cause(stories: Sequence[LossStory], total: int) -> dict[str, int]:
    """Lost messages by window of loss."""
    totals: dict[str, int] = {}
    for story in stories:
        totals[story["cause"]] = totals.get(story["cause"], 0) + story["length"]
    rest = total - sum(totals.values())
    return {**totals, "not examined": rest} if rest else totals


def _anomalies(stories: Sequence[LossStory], runs: Runs) -> list[Anomaly]:
    told = [
        Anomaly(
            kind="lost",
            summary=_sentence(story),
            operations=tuple(story["operations"]),
            detail={key: value for key, value in story.items() if key != "operations"},
        )
        for story in stories[:ANOMALIES_MAX]
    ]
    rest = stories[ANOMALIES_MAX:]
    if rest:
        count = len(runs.begin) - ANOMALIES_MAX
        length = int(runs.lengths.sum()) - sum(story["length"] for story in stories[:ANOMALIES_MAX])
        told.append(
            Anomaly(
                kind="lost",
                summary=f"{length} more acknowledged messages lost, in {count} shorter runs",
                operations=tuple(story["operations"][0] for story in rest[:OPERATIONS_MAX]),
                detail={"length": length, "runs": count},
            )
        )
    return told


def _sentence(story: LossStory) -> str:
    length, cause = story["length"], story["cause"]
    what = "1 acknowledged message" if length == 1 else f"{length} acknowledged messages in a row"
    through = f" through {story['node']}" if story["node"] else ""
    by = story["acknowledged-by"]
    if by and by != [story["node"]]:
        through += f" (acknowledged by {' and '.join(by)})"
    when = f"{story['begin_ns'] / 1e9:.1f} s"
    if length > 1:
        when = f"{story['begin_ns'] / 1e9:.1f}-{story['end_ns'] / 1e9:.1f} s"
    is_ours = cause != "unexplained" and cause in WINDOWS
    why = f"{cause} ({WINDOWS[cause]}): {story['why']}" if is_ours else story["why"]
    where = f"{story['queue']}{through}"
    return f"{what} of {where} lost, acknowledged at {when}, {story['window']}; {why}"
