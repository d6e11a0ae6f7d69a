"""Proofs: probes that show that a fault took hold, and that it was healed.

A fault that nobody saw is worth nothing: harnesses have run for years with a partition that never
healed, or one that never was. So each is probed until what is expected is seen or a deadline
passes, and each probe is a row of the history (docs/architecture.md section 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from cluster.base import Cluster
from harness.errors import HarnessError
from harness.history import Recorder
from harness.op import NEMESIS

PROBE_INTERVAL_S = 0.1
REACH_TIMEOUT_MS = 500

Phase = Literal["effective", "healed"]
Seen = bool | str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at: a link, or a node's process (then ``destination`` is "").

    ``expected`` is asked anew at each look, for other faults come and go meanwhile. A link is
    expected to reach or not; a process to be running, paused or down (exited or absent). A check
    is ``moot`` while another fault holds an end of the link down: a dead node proves nothing.
    """

    node: str
    destination: str
    expected: Callable[[], Seen]
    moot: Callable[[], bool] = lambda: False

    @property
    def text(self) -> str:
        if self.destination:
            return f"reach {self.node}->{self.destination}"
        return f"status {self.node}"


class Prover:
    """Probes one cluster and records what it saw."""

    def __init__(self, cluster: Cluster, recorder: Recorder, timeout_s: float) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._timeout_s = timeout_s

    async def prove(self, fault: int, phase: Phase, checks: Sequence[Check]) -> bool | None:
        """Whether everything was as expected; None if there was nothing that could be looked at."""
        outcomes = await asyncio.gather(*(self._probe(fault, phase, check) for check in checks))
        seen = [outcome for outcome in outcomes if outcome is not None]
        return all(seen) if seen else None

    async def _probe(self, fault: int, phase: Phase, check: Check) -> bool | None:
        extra = {
            "fault": fault,
            "phase": phase,
            "check": check.text,
            "expected": check.expected(),
            "seen": None,
        }
        index = self._recorder.invoke(NEMESIS, check.node, "probe", extra=extra)
        look = self._reach if check.destination else self._status
        seen, error = await _until_expected(look, check, self._timeout_s)
        expected = check.expected()
        if check.moot():
            seen, error = None, "moot: another fault holds a node of this link down"
        passed = error is None and seen == expected
        kind: Literal["ok", "info"] = "ok" if passed else "info"
        extra |= {"expected": expected, "seen": seen}
        self._recorder.complete(index, kind, error=error, extra=extra)
        return None if check.moot() else passed

    async def _reach(self, check: Check) -> Seen:
        return await self._cluster.reach(check.node, check.destination, REACH_TIMEOUT_MS)

    async def _status(self, check: Check) -> Seen:
        state = (await self._cluster.status(check.node)).state
        return "down" if state in ("exited", "absent") else state


async def _until_expected(
    look: Callable[[Check], Awaitable[Seen]], check: Check, timeout_s: float
) -> tuple[Seen | None, str | None]:
    """(what was seen last, error) once it is as expected or time is up."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while True:
        try:
            seen = await look(check)
        except HarnessError as error:
            return None, str(error)
        left_s = deadline_s - asyncio.get_running_loop().time()
        if seen == check.expected() or left_s <= 0 or check.moot():
            return seen, None
        await asyncio.sleep(min(PROBE_INTERVAL_S, left_s))
