"""Is a concurrent history linearizable? The library behind ``shalott check``, for notebooks too.

    history = read_history("etcd_002.log")
    verdict = check(history, "cas-register", time_limit_s=60, memory_limit_bytes=2 * 1024**3)
    print(verdict.valid, verdict.how)
    if verdict.valid is False:
        print(explain(history, verdict, "cas-register").reason)

Linearizability is local (Herlihy & Wing 1990): each key is an object and is checked alone, on as
many threads as there are cores. A monitor (checkers/monitors) decides in linear time where it
can. What it passes over goes to the general search (general_search.py), which asks the model.
A verdict says who decided it; "unknown" says why and how far the check got. Nothing guesses.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shalott.checkers.engine import cores
from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.drains import DRAINED, TIMED, InOrder, prepared
from shalott.checkers.linearizability.explanation import CheckInterrupted, Verdict, Violation
from shalott.checkers.linearizability.running_check import By, Limits, judge
from shalott.checkers.linearizability.transitions import canonical
from shalott.checkers.models import BUILT_IN, Model, make_model, model_name, own_name
from shalott.checkers.reading import read_history

if TYPE_CHECKING:
    from shalott.checkers.linearizability.explanation import Explanation

__all__ = [
    "BUILT_IN",
    "CheckInterrupted",
    "Verdict",
    "Violation",
    "check",
    "explain",
    "make_model",
    "memory_left",
    "read_history",
]


def check(
    history: ConcurrentHistory,
    model: Model | str,
    *,
    time_limit_s: float | None = None,
    memory_limit_bytes: int | None = None,
    threads: int | None = None,
    by: By = "auto",
    find_prefix: bool = False,
) -> Verdict:
    """Checks every key of ``history`` against ``model``, until one is found to be invalid.

    Args:
        history: From ``read_history``, or ``checkers.history.concurrent.from_rows``.
        model: A model, or what ``make_model`` makes one of ("cas-register:initial=0", or
            "package.module:Class").
        time_limit_s: Seconds from now, for all of it; None: no limit.
        memory_limit_bytes: Bytes that the engine and the model's states may hold beyond what the
            process holds already (see ``memory_left``); None: no limit.
        threads: How many keys are checked at once; None: as many as there are cores.
        by: "auto"; or only by the model's monitor ("monitor"), or only by the "general" search.
        find_prefix: Whether an invalid verdict has its shortest prefix (``violation.prefix`` and
            ``stuck``), too. It takes up to ten times as long; ``explain`` finds it if need be.

    Returns:
        The verdict: False if one key is invalid, else "unknown" if one is undecided, else True.

    Raises:
        UsageError: No such model; what it lacks to be one; an f that it does not know; an
            operation at which it raised; a state that is not hashable. One sentence that names the
            operation's place.
        CheckInterrupted: Ctrl-C; a KeyboardInterrupt that carries the verdict so far.
    """
    model = make_model(model) if isinstance(model, str) else model
    if not own_name(model):
        from shalott.checkers.models.outside import require_model  # our own need no look

        require_model(model, model_name(model))
    limits = Limits(time_limit_s, memory_limit_bytes, threads or cores())
    ready = prepared(history, model)
    verdict = judge(canonical(ready.history, model), model, limits, by=by, find_prefix=find_prefix)
    if ready.history is history:
        return verdict
    if ready.loose and verdict.valid is True:
        verdict = _timed(history, ready.history, model, limits, by)
    return replace(verdict, judged=ready.history, notes=ready.notes)


ORDERS_S: Final = 20.0  # to search all orders of what drains that overlap took


def _timed(
    history: ConcurrentHistory, loose: ConcurrentHistory, model: Model, limits: Limits, by: By
) -> Verdict:
    """Valid with drains whose dequeues have each its time: it is proved. Else all orders of the
    ``loose`` history are searched in which each drain takes its messages in turn."""
    for timing in TIMED:
        timed = prepared(history, model, timing).history
        verdict = judge(canonical(timed, model), model, limits, by=by)
        if verdict.valid is True:
            return verdict
    seconds = ORDERS_S if limits.time_s is None else min(ORDERS_S, limits.time_s)
    in_order = InOrder(model)
    verdict = judge(
        canonical(loose, in_order), in_order, limits._replace(time_s=seconds), by="general"
    )
    verdict = replace(verdict, model=model_name(model))
    if verdict.violation is not None:
        verdict.violation.word = DRAINED
        verdict.violation.reason = (
            f"no order of the operations is one that a {model_name(model)} allows if each drain"
            " took its messages in the order that it tells"
        )
    elif verdict.valid == "unknown":
        verdict.progress = (
            f"drains overlap with other operations, and no order was found in which a"
            f" {model_name(model)} does all of it, nor that there is none"
        )
    return verdict


def explain(
    history: ConcurrentHistory, verdict: Verdict, model: Model | str, *, time_limit_s: float = 1.0
) -> Explanation:
    """Why an invalid verdict's object is not linearizable: a sentence, and the operations to see.

    ``history`` and ``model`` are those that were checked. After ``time_limit_s`` seconds it makes
    do with a larger window; if the check did not look for the shortest prefix, that is found first,
    in at most so many seconds and twice those of the check. Raises ValueError: the verdict is not
    invalid.
    """
    from shalott.checkers.linearizability.explain import explain_verdict  # a check needs none

    explanation, _ = explain_verdict(history, verdict, model, time_limit_s=time_limit_s)
    return explanation


def memory_left(limit_bytes: int) -> int:
    """``memory_limit_bytes`` for a process that may hold ``limit_bytes`` in all; at least 1."""
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return max(1, limit_bytes - resident_pages * os.sysconf("SC_PAGE_SIZE"))
