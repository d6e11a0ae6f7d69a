"""Rates: from what was counted at this question and at earlier ones, as RabbitMQ's ``*_details``.

Nobody counts in the background: a rate is what happened between two questions, of which the older
one is five seconds old if anybody asked then. The first question has no rate to tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW_NS = 5_000_000_000
APART_NS = 1_000_000_000  # questions that come faster share a sample
FORGET_NS = 60_000_000_000  # a queue that nobody asked about, or that is gone

Counts = Mapping[str, int]


class Rates:
    """One node's: samples by what was counted."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, Counts]]] = {}

    def message_stats(self, source: str, counts: Counts, now_ns: int) -> dict[str, Any]:
        """``counts`` with a rate in 1/s for each. ``source`` names who counted: a master that
        took over counts from 0, and is another one."""
        samples = self._samples.setdefault(source, deque())
        while len(samples) > 1 and now_ns - samples[1][0] >= WINDOW_NS:
            samples.popleft()
        then_ns, then = samples[0] if samples else (now_ns, counts)
        if not samples or now_ns - samples[-1][0] >= APART_NS:
            samples.append((now_ns, dict(counts)))
        self._forget(now_ns)
        shown: dict[str, Any] = {}
        for name, count in counts.items():
            shown[name] = count
            shown[f"{name}_details"] = {"rate": _rate(count - then.get(name, 0), now_ns - then_ns)}
        return shown

    def _forget(self, now_ns: int) -> None:
        old = [key for key, known in self._samples.items() if now_ns - known[-1][0] > FORGET_NS]
        for source in old:
            del self._samples[source]


def _rate(count: int, elapsed_ns: int) -> float:
    return round(count * 1_000_000_000 / elapsed_ns, 2) if elapsed_ns else 0.0


def summed(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """Several ``message_stats`` as one: counts and rates added."""
    total: dict[str, Any] = {}
    for each in stats:
        for name, value in each.items():
            if isinstance(value, dict):
                before = total.get(name, {"rate": 0.0})["rate"]
                total[name] = {"rate": round(before + value["rate"], 2)}
            else:
                total[name] = total.get(name, 0) + value
    return total
