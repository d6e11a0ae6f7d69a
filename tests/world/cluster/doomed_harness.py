"""A harness that is about to be killed: boots a cluster, cuts a link, says "ready" and waits.

Arguments: backend, run id, work directory. Run as a process of its own by test_sweep.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.world.cluster.backends import READY_MS, make
from tests.world.cluster.fake_system import NODES, FakeSystem


async def main(backend: str, run_id: str, work_dir: str) -> None:
    cluster = make(backend, run_id, Path(work_dir))
    system = FakeSystem()
    await cluster.boot(system)
    await system.await_ready(cluster, NODES, READY_MS)
    await cluster.cut([("n1", "n2")])
    pids = [(await cluster.status(node)).pid for node in NODES]
    sys.stdout.write(f"ready {' '.join(map(str, pids))}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
