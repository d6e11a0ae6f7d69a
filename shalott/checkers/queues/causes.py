"""Why messages were lost: which documented window of mirrored queues explains a run of losses.

A run is held against each turning point of its queue (checkers/queues/turning_points.py) and each
window that speaks of such (checkers/queues/windows.py), in order of time. The first window all of
whose steps are seen explains it; if there is none, nothing documented does, and the loss is
"unexplained". A window that the plan's settings rule out is not looked at: where it is seen
nevertheless, that is no excuse but another fault of the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shalott.checkers.history.loss import Run
from shalott.checkers.queues.turning_points import CLOCK_SLACK_NS, S, Scene, TurningPoint
from shalott.checkers.queues.windows import REPLICA_WINDOWS, Look, Window

__all__ = ["CLOCK_SLACK_NS", "WINDOWS", "Explanation", "Guarded", "S", "explain"]

WINDOWS = {
    **{window.id: window.text for window in REPLICA_WINDOWS},
    "L5": "a dequeue that needed no acknowledgement was never answered",
    "unexplained": "no documented window of loss explains it",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """``evidence`` holds ``event`` (row of the events) or ``operation`` (index in the history);
    ``steps`` what was seen of each step of the window, in its order."""

    window: str  # a key of WINDOWS
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)
    steps: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Guarded:
    """What clients and settings rule out, and let in. ``closed``: ids of windows."""

    closed: Collection[str] = ()
    transient: str = ""
    confirms: bool = True


def explain(
    run: Run,
    through: Sequence[str],
    points: Sequence[TurningPoint],
    scene: Scene,
    guarded: Guarded = Guarded(),  # noqa: B008 - frozen
) -> Explanation | None:
    """What is behind the loss of a run whose publishes went through those nodes.

    ``points``: those of the run's queue, in order of time.
    """
    windows = [window for window in REPLICA_WINDOWS if window.id not in guarded.closed]
    # What took the messages came after the last of them was acknowledged.
    for point in points:
        if point.at_ns < run.end_ns - CLOCK_SLACK_NS:
            continue
        look = Look(
            scene=scene,
            point=point,
            run=run,
            through=tuple(through),
            transient=guarded.transient,
            confirms=guarded.confirms,
        )
        for found in _explanations(look, windows):
            return found
    return None


def _explanations(look: Look, windows: Sequence[Window]) -> Iterator[Explanation]:
    for window in windows:
        if look.point.kind not in window.kinds:
            continue
        steps = []
        for step in window.steps:
            evidence = step.seen(look)
            if evidence is None:
                break
            steps.append({"says": step.says, **evidence})
        else:
            text = look.point.text
            if window.id == "L6":
                text = f"{text}; {look.transient}"
            yield Explanation(window.id, text, dict(look.point.evidence), tuple(steps))
