"""Where checking linearizability is hard: what is decided, and what is not, by model and load.

    python benchmarks/hard_regions.py [--only WORD[,WORD]] [--seconds N] [--most OPERATIONS]

Prints a table (docs/evidence/checking.md has it): CPU seconds of ``check`` on histories of 1,000,
10,000 and 100,000 operations; "unknown" where it had not ended after so many CPU seconds (5), or
held 1 GB. Durations are exponential, so that some operations last for hundreds of others, and all
clients are always busy. A crashed operation took effect half of the time. "Wrong": the results of
two operations far apart are exchanged (of locks: releases are left out), which need not be wrong.

Each history is drawn from an object that is really there, in the order of moments within the
operations, and is checked in a process of its own, which the kernel ends.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from shalott.checkers.history.concurrent import ConcurrentHistory, Row, from_rows  # noqa: E402
from shalott.checkers.linearizability.checking import check  # noqa: E402
from tests.checkers.random_histories import (  # noqa: E402
    APriorityQueue,
    AQueue,
    ARegister,
    ASemaphore,
    ASet,
    AString,
    Blocked,
    Refused,
    SomeRegisters,
    Thing,
    Values,
)

SIZES: Final = (1_000, 10_000, 100_000)
GIVEN_BYTES: Final = 1_000_000_000


@dataclass
class Counting:
    """A counter, by ones or by other amounts, up or both ways."""

    rng: Any
    fs: tuple[str, ...]
    amounts: tuple[int, ...]
    held: int = 0

    def draw(self, rng: Any, process: int) -> tuple[str, Hashable]:
        f = rng.choice([*self.fs, "read"])
        return f, None if f == "read" else rng.choice(self.amounts)

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f != "read":
            self.held += argument if f == "inc" else -argument
        return self.held


def objects() -> dict[str, tuple[str, Callable[[Any], Thing]]]:
    """What is checked: the model, and what makes an object of it."""

    def values(rng: Any, several: int = 0) -> Values:
        return Values(rng, distinct=not several, several=several)

    def queue(take: Callable[[int], int], several: int = 0) -> Callable[[Any], Thing]:
        return lambda rng: AQueue(values(rng, several), take)

    return {
        "cas-register, 5 values": ("cas-register", lambda r: ARegister(values(r, 5), True)),
        "cas-register, 10 values": ("cas-register", lambda r: ARegister(values(r, 10), True)),
        "register, 5 values": ("register", lambda r: ARegister(values(r, 5), False)),
        "multi-register, 3 names of 3 values": (
            "multi-register",
            lambda r: SomeRegisters(values(r, 3)),
        ),
        "key-value, appends": ("key-value", AString),
        "fifo-queue, 5 values": ("fifo-queue", queue(lambda _: 0, 5)),
        "unordered-queue, 5 values": ("unordered-queue", queue(lambda count: count // 2, 5)),
        "stack": ("stack", queue(lambda count: count - 1)),
        "stack, 5 values": ("stack", queue(lambda count: count - 1, 5)),
        "priority-queue": (
            "priority-queue",
            lambda r: APriorityQueue(values(r), r, pairs=False),
        ),
        "priority-queue, 3 priorities": (
            "priority-queue",
            lambda r: APriorityQueue(values(r), r, pairs=True),
        ),
        "counter, up by 1": ("counter", lambda r: Counting(r, ("inc",), (1,))),
        "counter, up by 1 or 2": ("counter", lambda r: Counting(r, ("inc",), (1, 2))),
        "counter, up and down by 1": ("counter", lambda r: Counting(r, ("inc", "dec"), (1,))),
        "semaphore of 5, by 1 or 2": ("semaphore:permits=5", lambda _: ASemaphore(5, 5)),
        "set, 5 elements, read whole": ("set", lambda r: ASet(values(r, 5), whole=True)),
    }


# --- drawing --------------------------------------------------------------------------------------


def intervals(operations: int, clients: int, rng: Any) -> Iterator[tuple[int, float, float]]:
    """(client, call, return), in the order of a moment within each."""
    n = operations
    client = np.arange(n) % clients
    call, ret = np.empty(n), np.empty(n)
    for each in range(clients):
        mine = np.flatnonzero(client == each)
        lengths = rng.exponential(1.0, len(mine))
        ret[mine] = rng.random() + np.cumsum(lengths) + 1e-9 * np.arange(len(mine))
        call[mine] = ret[mine] - lengths
    order = np.argsort(call + rng.random(n) * (ret - call), kind="stable")
    yield from zip(client[order].tolist(), call[order].tolist(), ret[order].tolist(), strict=True)


def draw(
    made: Callable[[Any], Thing], operations: int, clients: int, crashed: float, wrong: bool
) -> ConcurrentHistory:
    rng = random.Random(f"{operations} {clients} {crashed}")
    thing, names, rows, times = made(rng), list(range(clients)), list[Row](), list[float]()
    for client, call, ret in intervals(operations, clients, np.random.default_rng(clients)):
        process = names[client]
        f, argument = thing.draw(rng, process)
        crashes, result, kind = rng.random() < crashed, None, "ok"
        try:
            if not crashes or rng.random() < 0.5:
                result = thing.do(f, argument, process)
        except Blocked:
            continue
        except Refused:
            kind = "fail"
        if crashes:
            names[client] += clients
        told = None if crashes else result
        outcome = "info" if crashes else kind
        rows.append(Row(process, f, argument, told, len(times), len(times) + 1, outcome))
        times += [call, np.inf if crashes else ret]
    rank = np.empty(len(times), dtype=np.int64)
    rank[np.argsort(times, kind="stable")] = np.arange(len(times))
    ranked = [
        row._replace(
            call=int(rank[row.call]),
            ret=None if row.type == "info" else int(rank[row.call + 1]),
        )
        for row in rows
    ]
    ranked.sort(key=lambda row: row.call)
    return from_rows(spoilt(ranked) if wrong else ranked)


def spoilt(rows: list[Row]) -> list[Row]:
    told = [at for at, row in enumerate(rows) if row.type == "ok" and row.result is not None]
    if len(told) < len(rows) // 10:  # nothing is told but that it was done
        late = [at for at, row in enumerate(rows) if row.f == "release"][len(rows) // 4 :][:6]
        return [row for at, row in enumerate(rows) if at not in late]
    early, late = told[len(told) // 2 :], told[len(told) * 9 // 10 :]
    one, other = next((a, b) for a in early for b in late if _differ(rows[a], rows[b]))
    changed = list(rows)
    changed[one] = rows[one]._replace(result=rows[other].result)
    changed[other] = rows[other]._replace(result=rows[one].result)
    return changed


def _differ(one: Row, other: Row) -> bool:
    """They can be exchanged, and that tells."""
    return one.f == other.f and one.result != other.result and one.argument == other.argument


# --- measuring ------------------------------------------------------------------------------------


def measured(history: ConcurrentHistory, model: str, seconds: float) -> tuple[str, float, str]:
    """(verdict, CPU seconds, who decided it), from a process of its own."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        used = time.process_time()
        soft = int(used + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft))
        verdict = check(history, model, memory_limit_bytes=GIVEN_BYTES)
        told = (str(verdict.valid), time.process_time() - used, verdict.how or verdict.cause)
        os.write(write_end, json.dumps(told).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return tuple(json.loads(answer)) if answer else ("unknown", seconds, "time")


def cells(name: str, clients: int, crashed: float, wrong: bool, seconds: float, most: int) -> str:
    """CPU seconds by size, until one is not decided."""
    model, made = objects()[name]
    shown, by = [], ""
    for size in SIZES:
        if size > most:
            break
        valid, cpu_s, by = measured(draw(made, size, clients, crashed, wrong), model, seconds)
        if valid == "unknown":
            shown.append("unknown")
            break
        shown.append(f"{cpu_s:.3f}" + (" (valid)" if wrong and valid == "True" else ""))
    shown += ["" for _ in SIZES if len(shown) < len(SIZES)][: len(SIZES) - len(shown)]
    return " | ".join(shown)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="objects whose names have one of these in them")
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU, for each history")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="operations")
    asked = parser.parse_args(arguments)
    words = [word for word in asked.only.split(",") if word]
    sizes = " | ".join(f"{size:,}" for size in SIZES)
    print(f"| history | clients | crashed | {sizes} | wrong: {sizes} |")
    print("| --- | --- | --- |" + " --- |" * 2 * len(SIZES))
    for name in objects():
        if words and not any(word in name for word in words):
            continue
        for clients in (10, 50):
            for crashed in (0.0, 0.01):
                right, wrong = (
                    cells(name, clients, crashed, flag, asked.seconds, asked.most)
                    for flag in (False, True)
                )
                print(f"| {name} | {clients} | {crashed:.0%} | {right} | {wrong} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
