"""What the packet engine costs: latency added, throughput left, and CPU time a packet.

Two network namespaces with a link between them stand for two containers. A client in one asks an
echo server in the other over TCP; the engine serves both directions, as a fault of both does.

    python -m benchmarks.packets [--rounds 300] [--megabytes 10]

Needs root, ip, unshare, nsenter and iptables.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from shalott.cluster.docker.namespaces import in_namespace, run_in_namespace
from shalott.cluster.docker.packets import PacketEngine, chain_script
from shalott.cluster.nodes import LinkShape
from shalott.cluster.owner import this_process
from shalott.cluster.packets.shaping import Source

ADDRESSES = ("10.213.0.1", "10.213.0.2")
CHUNK_BYTES = 1 << 16
SETTINGS: dict[str, LinkShape | None] = {
    "no rule": None,
    "queued, untouched": LinkShape(loss=1e-12),
    "queued whole, untouched": LinkShape(corrupt=1e-12),
    "delay 5 ms": LinkShape(delay_ms=5),
    "jitter 10 ms": LinkShape(jitter_ms=10),
    "loss 1 %": LinkShape(loss=0.01),
    "duplicate 10 %": LinkShape(duplicate=0.1),
    "reorder 10 %": LinkShape(reorder=0.1),
    "corrupt 1 %": LinkShape(corrupt=0.01),
}


def make_namespaces() -> list[subprocess.Popen[bytes]]:
    """Two processes, each in a network namespace of its own, with a link between them."""
    sleepers = [
        subprocess.Popen(["unshare", "-n", "sleep", "3600"], stdout=subprocess.DEVNULL)
        for _ in ADDRESSES
    ]
    own = Path("/proc/self/ns/net").stat().st_ino
    while any(Path(f"/proc/{one.pid}/ns/net").stat().st_ino == own for one in sleepers):
        os.sched_yield()
    first, second = (str(one.pid) for one in sleepers)
    pair = ("link", "add", "bench0", "type", "veth", "peer", "name", "bench1")
    run("nsenter", "-t", first, "-n", "ip", *pair)
    run("nsenter", "-t", first, "-n", "ip", "link", "set", "bench1", "netns", second)
    for pid, device, address in zip((first, second), ("bench0", "bench1"), ADDRESSES, strict=True):
        inside = ("nsenter", "-t", pid, "-n", "ip")
        run(*inside, "address", "add", f"{address}/24", "dev", device)
        run(*inside, "link", "set", device, "up")
        run(*inside, "link", "set", "lo", "up")
    return sleepers


def run(*words: str) -> None:
    subprocess.run(words, check=True)


def serve_echo(pid: int) -> tuple[int, int]:
    """(the server's process, its port)."""
    listener = in_namespace(pid, lambda: socket.create_server((ADDRESSES[1], 0)))
    port = listener.getsockname()[1]
    child = os.fork()
    if child:
        listener.close()
        return child, port
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(CHUNK_BYTES):
            connection.sendall(data)


def connect(pid: int, port: int) -> socket.socket:
    made = in_namespace(pid, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    made.connect((ADDRESSES[1], port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def round_trips_ms(connection: socket.socket, count: int) -> list[float]:
    times = []
    for _ in range(count):
        before = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        times.append((time.perf_counter() - before) * 1000)
    return sorted(times)


def bulk_mbit_s(connection: socket.socket, megabytes: int) -> float:
    """Of data that goes and comes back, window by window of one chunk."""
    chunk, before = bytes(CHUNK_BYTES), time.perf_counter()
    for _ in range(megabytes * 16):
        connection.sendall(chunk)
        left = CHUNK_BYTES
        while left:
            left -= len(connection.recv(left))
    return megabytes * 8.389 / (time.perf_counter() - before)


def cpu_s(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(rounds: int, megabytes: int) -> None:
    sleepers = make_namespaces()
    pids = [one.pid for one in sleepers]
    server, port = serve_echo(pids[1])
    engine = PacketEngine(this_process(), "benchmark", 1)
    sys.stdout.write(f"{'setting':26} {'p50 ms':>8} {'p95 ms':>8} {'Mbit/s':>8}  us CPU/packet\n")
    try:
        for name, shape in SETTINGS.items():
            packets = 0
            if shape is not None:
                await shape_both(engine, pids, shape)
            before = cpu_s(engine.pid)
            connection = connect(pids[0], port)
            times = await asyncio.to_thread(round_trips_ms, connection, rounds)
            slow = shape is not None and (shape.delay_ms or shape.jitter_ms)
            bulk = await asyncio.to_thread(bulk_mbit_s, connection, 1 if slow else megabytes)
            connection.close()
            for node in ("a", "b") if shape is not None else ():
                answer = await engine.ask("read", node)
                packets += sum(link.counts["seen"] for link in answer.links.values())
            used_us = (cpu_s(engine.pid) - before) * 1e6 / packets if packets else 0.0
            middle, late = statistics.median(times), times[int(len(times) * 0.95)]
            sys.stdout.write(f"{name:26} {middle:8.3f} {late:8.3f} {bulk:8.0f}  {used_us:8.1f}\n")
            sys.stdout.flush()
    finally:
        await engine.close()
        os.kill(server, signal.SIGKILL)
        for one in sleepers:
            one.kill()


async def shape_both(engine: PacketEngine, pids: list[int], shape: LinkShape) -> None:
    nodes = zip(("a", "b"), pids, reversed(ADDRESSES), strict=True)
    for node, pid, peer in nodes:
        await engine.ask("shape", node, pid, {peer: Source("peer", shape)})
        await run_in_namespace(pid, chain_script([peer]), own_files=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--megabytes", type=int, default=10)
    told = parser.parse_args()
    asyncio.run(measure(told.rounds, told.megabytes))
