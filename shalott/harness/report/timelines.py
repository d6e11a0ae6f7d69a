"""The timelines of a report: one for each object that a checker found not to be linearizable.

A checker leaves its explanations in ``Result.detail``
(checkers/linearizability/explanation.py). They are drawn among the object's other
operations, where the history has them as the checker saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from shalott.checkers.checker import Result
from shalott.checkers.history.client_history import concurrent_history
from shalott.checkers.history.columns import Operations, client_operations
from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.explanation import Explanation, from_detail
from shalott.checkers.linearizability.timeline import assets_html, nearest, timeline_body
from shalott.core.history import History

OPERATIONS_MAX = 10_000  # drawn around the first window
OTHERS_MAX = 1_000  # and around each of the others


@dataclass(frozen=True, slots=True)
class ObjectTimeline:
    """``html`` is a piece of the page."""

    key: str
    checker: str
    reason: str
    html: Markup


def object_timelines(results: Sequence[Result], history: History) -> list[ObjectTimeline]:
    """In the order of the results."""
    found = [(result, each) for result in results for each in from_detail(result.detail)]
    if not found:
        return []
    ops = client_operations(history)
    return [
        ObjectTimeline(
            key=explanation.key or explanation.model,
            checker=result.checker,
            reason=explanation.reason,
            html=Markup(
                timeline_body(
                    explanation,
                    surroundings(ops, explanation, OTHERS_MAX if number else OPERATIONS_MAX),
                )
            ),
        )
        for number, (result, explanation) in enumerate(found)
    ]


def timeline_assets() -> Markup:
    """Style and script of the timelines."""
    return Markup(assets_html())


def surroundings(ops: Operations, explanation: Explanation, most: int) -> ConcurrentHistory | None:
    """The object's operations, at most so many; None if the checker judged other ones."""
    wanted = ops.f.among(explanation.fs or tuple(explanation.meanings)) & ops.key.equal(
        explanation.key
    )
    if not wanted.any():
        return None
    history = concurrent_history(ops, wanted)
    calls = np.array([shown.call for shown in explanation.operations], dtype=np.int64)
    places = np.array([shown.place for shown in explanation.operations], dtype=np.int64)
    at = np.minimum(np.searchsorted(history.call, calls), len(history) - 1)
    if not (history.call[at] == calls).all() or not (history.place[at] == places).all():
        return None
    return nearest(history, explanation, most)
