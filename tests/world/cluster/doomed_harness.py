"""A harness that is about to be killed: boots a cluster, cuts a link, says "ready" and waits.

Arguments: backend, run id, work directory; and "shape", to spoil a link's packets too. With
``ssh-clocks`` a clock is an hour ahead, with ``ssh-resources`` nodes are short of something. Run as
a process of its own by test_sweep and others.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from shalott.cluster.nodes import LinkShape, Shortage
from tests.world.cluster.backends import READY_MS, make
from tests.world.cluster.fake_system import NODES, FakeSystem


async def main(backend: str, run_id: str, work_dir: str, spoil: str = "") -> None:
    cluster = make(backend, run_id, Path(work_dir))
    system = FakeSystem()
    await cluster.boot(system)
    await system.await_ready(cluster, NODES, READY_MS)
    await cluster.links.cut([("n1", "n2")])
    if backend.endswith("-clocks"):
        await cluster.clocks.set("n1", offset_ms=3_600_000)
    if backend.endswith("-resources"):
        await cluster.resources.set("n1", Shortage(cpu_percent=50, processes_left=8))
        is_full = "fill-tmp" in cluster.capabilities
        await cluster.resources.set("n2", Shortage(is_tmp_full=is_full, is_stopped=True))
    if spoil:
        await cluster.links.shape("n1", "n2", LinkShape(delay_ms=50, duplicate=0.5))
    pids = [(await cluster.processes.status(node)).pid for node in NODES]
    sys.stdout.write(f"ready {' '.join(map(str, pids))}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
