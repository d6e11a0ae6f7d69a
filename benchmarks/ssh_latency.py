"""What the ssh backend costs: a command, a request to the agent, a fault to make and to undo.

``python -m benchmarks.ssh_latency``, as root: hosts are network namespaces with an sshd each.
Prints the median and the 95th percentile of each in milliseconds, as rows of a Markdown table.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from shalott.cluster.ssh.backend import SshCluster
from shalott.cluster.ssh.connection import Connection
from tests.world.cluster.fake_system import NODES, FakeSystem
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

TIMES = 60


async def measure(name: str, work: Callable[[], Awaitable[object]], times: int = TIMES) -> None:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        took.append(1000 * (time.perf_counter() - began))
    low, high = statistics.median(took), statistics.quantiles(took, n=20)[-1]
    print(f"| {name} | {low:.1f} ms | {high:.1f} ms |", flush=True)


async def main(hosts: Hosts) -> None:
    plan, system = hosts.plan(), FakeSystem()
    for delay in (True, False):
        connection = await asyncio.to_thread(Connection, hosts.host("a"))
        if delay:
            sock = connection.transport.sock
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        said = "without TCP_NODELAY" if delay else "with it"
        await measure(
            f"a command by SSH, {said}",
            lambda connection=connection: asyncio.to_thread(connection.run, "true"),  # type: ignore[misc]
        )
        connection.close()
    cluster = SshCluster(NODES, "latency", plan)
    for name in ("boot, everything uploaded", "boot, nothing to upload"):
        began = time.perf_counter()
        await cluster.boot(system)
        await system.await_ready(cluster, NODES, 20000)
        print(f"| {name} | {1000 * (time.perf_counter() - began):.0f} ms | |", flush=True)
        if "everything" in name:
            await cluster.teardown()
    try:
        await measure("a request to the agent", lambda: cluster.processes.status("n1"))
        links = [("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1")]
        made: list[float] = []

        async def cut_and_mend() -> None:
            began = time.perf_counter()
            await cluster.links.cut(links)
            made.append(1000 * (time.perf_counter() - began))
            await cluster.links.mend(links)

        await measure("n1 cut off and joined again, three hosts", cut_and_mend)
        low, high = statistics.median(made), statistics.quantiles(made, n=20)[-1]
        print(f"| of that, the cut | {low:.1f} ms | {high:.1f} ms |")
        await measure("a probe that arrives", lambda: cluster.links.reach("n1", "n2"))

        async def pause_and_resume() -> None:
            await cluster.processes.pause("n1")
            await cluster.processes.resume("n1")

        async def kill_and_start() -> None:
            await cluster.processes.kill("n1")
            await cluster.processes.start("n1")

        await measure("a pause and its end", pause_and_resume)
        await measure("a kill and a start", kill_and_start, 20)
    finally:
        await cluster.teardown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, ssh_hosts(Path(directory), 3) as made:
        sys.exit(asyncio.run(main(made)))
