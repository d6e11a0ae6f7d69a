"""Safe runs whose harness is troubled at random: no verdict may be false.

``python -m benchmarks.safe_runs 300``, or with worlds, a seed and troubles: ``300 docker 7 clock``
(as root: hosts are network namespaces with an sshd each). Each run is one of ``safe`` under
``kill``, and one trouble, drawn from the seed, meets it at a random moment between its boot and its
end:

- stop: the harness is stopped (SIGSTOP) for half a second to four;
- clock: the machine's wall clock is stepped by -60 to 60 s, for harness and nodes alike
  (libfaketime; containers can't be reached so, and their harness alone is);
- helper: a process of the harness's own that serves nodes is killed with -9;
- none: the run is left alone.

In the simulation, where a harness can't be troubled, clocks of nodes jump instead. A run that ends
Invalid is false, one that is unknown must give its reason. Prints a line for each run, and exits
with 1 if one was false or gave no reason.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from shalott.cluster.faketime import environment, file_text
from tests.end_to_end.runs import ROOT, Done, Running, shalott
from tests.world.cluster.helpers import helpers_of
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"
# libfaketime refuses a sleep that ends at a moment of the monotonic clock, as time.sleep asks for.
SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"
RUN = (
    *("test", "--profile", "safe", "--nemesis", "kill", "--time-limit", "9", "--rate", "50"),
    *("--nemesis-interval", "2", "--nemesis-duration", "2"),
)
# A fault for which the world runs a helper, beside the kills.
HELPED = {"local": "kill,disk-slow", "docker": "kill,disk-slow", "ssh": "kill,disk-slow"}
TROUBLES = ("stop", "clock", "helper", "none")
MOMENT_S = (0.3, 16.0)
STOPPED_S = (0.5, 4.0)
STEPS_S = (-60.0, 60.0)
POLL_S = 0.05


def trouble_one(
    world: str, trouble: str, draw: random.Random, flags: Sequence[str], cwd: Path
) -> tuple[Done, str]:
    """A run, and what was done to it."""
    words = [*RUN, "--cluster", world, "--seed", str(draw.randrange(1 << 30)), *flags]
    if trouble == "helper":
        words[words.index("kill")] = HELPED[world]
    cwd.mkdir()
    (cwd / "clock").write_text(file_text(0))
    faked: Mapping[str, str] = {}
    if trouble == "clock":
        (cwd / "sitecustomize.py").write_text(SLEEP)
        path = os.pathsep.join((str(cwd), str(ROOT)))
        faked = {**environment(str(cwd)), "LD_PRELOAD": LIBRARY, "PYTHONPATH": path}
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), **faked}
    with Running(words, cwd, environment=surroundings) as running:
        running.await_recorded(has_begun, "the run")
        after_s = draw.uniform(*MOMENT_S)
        deadline = time.monotonic() + after_s
        while running.process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        is_late = running.process.poll() is not None
        done = "it was over" if is_late else do(trouble, running, draw, cwd.parent / "hosts")
        return running.wait(), f"{trouble} after {after_s:4.1f} s: {done}"


def do(trouble: str, running: Running, draw: random.Random, hosts: Path) -> str:
    if trouble == "stop":
        stopped_s = draw.uniform(*STOPPED_S)
        running.process.send_signal(signal.SIGSTOP)
        time.sleep(stopped_s)
        running.process.send_signal(signal.SIGCONT)
        return f"for {stopped_s:.1f} s"
    if trouble == "clock":
        by_s = draw.uniform(*STEPS_S)
        descriptor = os.open(running.cwd / "clock", os.O_WRONLY)
        os.write(descriptor, file_text(by_s * 1000).encode())
        os.close(descriptor)
        return f"by {by_s:+.1f} s"
    if trouble == "helper":
        found = helpers_of(running.pid, hosts)
        if not found:
            return "there was none"
        name, pid = draw.choice(found)
        os.kill(pid, signal.SIGKILL)
        return f"{name}"
    return "nothing"


def simulate_one(draw: random.Random, cwd: Path) -> tuple[Done, str]:
    words = [*RUN, "--cluster", "sim", "--seed", str(draw.randrange(1 << 30))]
    words[words.index("kill")] = "kill,clock-jump"
    return shalott(words, cwd), "clock of a node"


def has_begun(records: list[dict[str, Any]]) -> bool:
    return any(record.get("f") == "phase" for record in records)


def judge(done: Done) -> str:
    """What is wrong with the verdict; "" if nothing is."""
    if done.exit_code == 0:
        return ""
    if done.exit_code == 1:
        return "FALSE"
    if done.exit_code not in (2, 255):
        return f"exit code {done.exit_code}: {done.complaints}"
    results = done.results
    if results.valid is False or results.headline.startswith("Invalid"):
        return "FALSE in results.json"
    return "" if len(results.headline) > len("Unknown: .") else "no reason"


def run_many(count: int, worlds: Sequence[str], seed: int, troubles: Sequence[str]) -> int:
    """How many verdicts were wrong."""
    draw, wrong = random.Random(seed), 0
    told: dict[tuple[str, str, int], int] = {}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="safe-")))
        hosts: Hosts | None = None
        if "ssh" in worlds:
            hosts = stack.enter_context(ssh_hosts(place / "hosts", 3))
        for number in range(1, count + 1):
            world, trouble = worlds[number % len(worlds)], draw.choice(troubles)
            flags = hosts.flags() if world == "ssh" and hosts is not None else ()
            cwd = place / f"{number}"
            if world == "sim":
                trouble = "clock"
                done, what = simulate_one(draw, cwd)
            else:
                done, what = trouble_one(world, trouble, draw, flags, cwd)
            fault = judge(done)
            wrong += bool(fault)
            key = world, trouble, done.exit_code
            told[key] = told.get(key, 0) + 1
            print(f"{number:3} {world:6} {what}: {done.exit_code} {done.results.headline} {fault}",
                  flush=True)  # fmt: skip
            if fault:
                print(done, flush=True)
    for (world, trouble, code), times in sorted(told.items()):
        print(f"{world:6} {trouble:6} exit code {code}: {times}")
    print(f"{count} runs, {wrong} with a wrong verdict")
    return wrong


if __name__ == "__main__":
    count, *rest = sys.argv[1:]
    worlds, seed, troubles = [*rest, *("local,sim", "1", ",".join(TROUBLES))[len(rest) :]]
    sys.exit(bool(run_many(int(count), worlds.split(","), int(seed), troubles.split(","))))
