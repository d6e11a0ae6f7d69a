"""What a check of linearizability finds out, as data (not frozen: see
checkers.history.concurrent).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Violation:
    """Why one key's history is not linearizable. Rows are those of the history that was checked."""

    key: str
    by: str  # the monitor's name, or "general search (method)"
    reason: str  # one sentence in the domain's words
    word: str = ""  # of a monitor: order, lost, repeated, fresh, empty, stale, overlap, ...
    operations: tuple[int, ...] = ()  # rows that prove it; a monitor's word says in which order
    stuck: int | None = None  # the row at whose return no order of the operations was left
    prefix: int | None = None  # the rank of that return: the shortest invalid prefix ends there
    prefix_is_shortest: bool = True  # False: a shorter one was not ruled out in time


@dataclass(slots=True)
class Verdict:
    """What a check found out."""

    valid: bool | str  # True, False or "unknown"
    model: str
    how: str  # who decided: monitors, or the general search and its method
    passed_over: tuple[str, ...] = ()  # why monitors left keys to the general search
    cause: str = ""  # of "unknown": time, memory, cancelled, or what kept the engine from deciding
    progress: str = ""  # of "unknown": a sentence that says how far it got
    violation: Violation | None = None
    operations: int = 0
    keys: int = 0
    keys_decided: int = 0
    threads: int = 1
    elapsed_s: float = 0.0
    cpu_s: float = 0.0  # of all threads of the process
    memory_peak_bytes: int = 0  # that the engine and the model's states held


class CheckInterrupted(KeyboardInterrupt):
    """Ctrl-C during a check. ``verdict`` is what was known by then: cause "cancelled"."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict
