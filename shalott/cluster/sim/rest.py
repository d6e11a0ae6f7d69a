"""What a healed cluster still waits for, written down as node events of kind ``waits``.

A broker that forgot to answer, or to wake a process, waits for ever. Its clients give up, connect
anew and see nothing but one operation without an answer, which any fault explains. Once all is
healed and clients are quiet nothing explains it. What is to be at rest, a system knows of its own
nodes; a look into them changes nothing. checkers/runs/liveness.py judges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from shalott.cluster.sim.machine import Machine, SimEventLog

REST_TIMEOUT_S = 20.0  # longer than anything that a node may wait for
FIRST_POLL_S, LAST_POLL_S = 0.05, 1.0

Machines = Mapping[str, Machine]
Waits = Callable[[Machines], Iterable[tuple[str, str, str]]]  # (node, its group or "", for what)


async def until(done: Callable[[], bool], timeout_s: float) -> None:
    """Or until the time is up."""
    loop = asyncio.get_running_loop()
    deadline, poll_s = loop.time() + timeout_s, FIRST_POLL_S
    while not done() and loop.time() <= deadline:
        await asyncio.sleep(poll_s)
        poll_s = min(2 * poll_s, LAST_POLL_S)


async def record_waits(machines: Machines, waits: Waits) -> None:
    """What is not at rest after a while."""
    await until(lambda: not any(True for _ in waits(machines)), REST_TIMEOUT_S)
    for node, group, what in waits(machines):
        SimEventLog(machines[node], 0, None).emit(group, "waits", detail={"for": what})
