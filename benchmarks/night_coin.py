"""A checker that fails every other run whose plan is called "coin": a flaky test, planted.

``SHALOTT_COIN`` names the file that counts; without it every run passes. For benchmarks/night.py.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from shalott.checkers.checker import Anomaly, CheckerRecord, Result
from shalott.core.history import History

COUNTER = "SHALOTT_COIN"


@dataclass(frozen=True, slots=True)
class Coin:
    name: str = "coin"

    def check(self, history: History) -> Result:
        path = os.environ.get(COUNTER)
        if not path or _count(Path(path)) % 2:
            return Result(checker=self.name, valid=True)
        anomaly = Anomaly(kind="tails", summary="the coin fell on its wrong side")
        return Result(checker=self.name, valid=False, anomalies=(anomaly,))


def _count(path: Path) -> int:
    """How often it was asked before."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.tell()
        file.write("x")
    return before


COIN = CheckerRecord(
    name="coin",
    summary="whether a coin fell on the right side",
    make=lambda plan: Coin(),
    reads=("phases",),
    promise="Every run is alike.",
    source="nobody",
    fits=lambda plan: plan.name == "coin",
)
