"""Kills harnesses at random moments while faults are in force, and looks for what they leave.

``python -m benchmarks.harness_kills docker 50``, or ``ssh`` (as root: hosts are network namespaces
with an sshd each). A run with faults of power, disks, clocks, packets, links and resources begins.
SIGKILL ends every fourth harness while nodes boot, in its first ten seconds, and the others when a
fault has been in force for up to fifteen seconds, during which others come and go. On docker the
next start sweeps, here ``shalott clean``; hosts undo everything by themselves, within 30 s. Then
nothing may be left of it, and what it recorded must be readable. Prints a line for each kill, and
exits with 1 if one left anything. A third argument is the seed of the moments.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shalott.core.recording import recover
from tests.end_to_end.leftovers import docker_leftovers
from tests.end_to_end.runs import Done, Running, shalott
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

BOOT_S, FAULTS_S = (1.0, 10.0), (0.0, 15.0)
GONE_WITHIN_S = 30.0
POLL_S = 0.1
RUN = (
    *("test", "--profile", "safe", "--time-limit", "90", "--net-tick", "2s", "--rate", "50"),
    *("--nemesis-interval", "3", "--nemesis-duration", "6"),
)
NEMESES = {
    "docker": "disk-error,clock-skew,loss,power,duplicate,partition-one,fork-bomb,tmp-full",
    "ssh": "disk-error,clock-skew,power,partition-one,duplicate,client-cut,fork-bomb,tmp-full",
}
Left = Callable[[Done], list[str]]


def kill_one(words: Sequence[str], in_boot: bool, after_s: float, cwd: Path) -> Done:
    """A run that is killed so long after its start, or after its first fault."""
    with Running([*RUN, *words], cwd) as running:
        if not in_boot:
            running.await_recorded(has_fault, "a fault was in force")
        time.sleep(after_s)
        assert running.process.poll() is None, running.wait()
        return running.end(signal.SIGKILL)


def has_fault(records: Sequence[Mapping[str, Any]]) -> bool:
    return any('"phase":"effective"' in record.get("extra", "") for record in records)


def await_nothing(left: Left, done: Done) -> tuple[list[str], float]:
    """What is still left when its time is over, and how long it took until there was nothing."""
    began = time.monotonic()
    while found := left(done):
        if time.monotonic() - began > GONE_WITHIN_S:
            break
        time.sleep(POLL_S)
    return found, time.monotonic() - began


def recorded(done: Done) -> str:
    """How much can be read of its history."""
    recordings = list((done.cwd / "store").glob("*/2*/history.jsonl"))
    return f"{recover(recordings[0]).ops.num_rows} rows" if recordings else "no history yet"


def kill_many(backend: str, flags: Sequence[str], left: Left, count: int, seed: int) -> int:
    """How many of them left anything."""
    draw, spoilt = random.Random(seed), 0
    words = ["--cluster", backend, "--nemesis", NEMESES[backend], *flags]
    for number in range(1, count + 1):
        in_boot = number % 4 == 0
        after_s = draw.uniform(*(BOOT_S if in_boot else FAULTS_S))
        run = [*words, "--seed", str(seed + number)]
        with tempfile.TemporaryDirectory(prefix="kills-") as directory:
            done = kill_one(run, in_boot, after_s, Path(directory) / "killed")
            there = left(done)
            if backend == "docker":
                swept = shalott(["clean"], Path(directory) / "swept")
                assert swept.exit_code == 0, swept
            found, took_s = await_nothing(left, done)
            print(
                f"kill {number:2}, {after_s:4.1f} s after {'start' if in_boot else 'a fault'}:"
                f" {len(there):2} things of it,"
                f" {recorded(done)}; {len(found)} left after {took_s:.1f} s {found or ''}",
                flush=True,
            )
            spoilt += bool(found)
    print(f"{count} kills, {spoilt} of them left something")
    return spoilt


def left_on(hosts: Hosts) -> Left:
    def left(done: Done) -> list[str]:
        return hosts.leftovers()

    return left


def main(backend: str, count: int, seed: int) -> int:
    if backend == "docker":
        return kill_many(backend, (), docker_leftovers, count, seed)
    with (
        tempfile.TemporaryDirectory(prefix="hosts-") as directory,
        ssh_hosts(Path(directory), 3) as hosts,
    ):
        return kill_many(backend, hosts.flags(), left_on(hosts), count, seed)


if __name__ == "__main__":
    backend, count, *rest = sys.argv[1:]
    sys.exit(1 if main(backend, int(count), int(rest[0]) if rest else 1) else 0)
