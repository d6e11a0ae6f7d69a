"""Limits that hold: time, memory, Ctrl-C. On a history that no search can finish: many enqueues at
once of values that repeat, then dequeues in an order that nothing can have made. Only the general
search is asked: counts refute it at once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory, Row, from_rows
from shalott.checkers.linearizability.checking import CheckInterrupted, check

pytestmark = pytest.mark.explore

MIB = 1024**2


NOT_SANITIZED = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="AddressSanitizer keeps what was freed, to see who touches it, and takes its time",
)


def endless(n: int = 44, key: str = "") -> ConcurrentHistory:
    rng = random.Random(3)
    values = [number // 2 for number in range(n)]
    rows = [Row(at, "enqueue", value, None, at, n + at, key=key) for at, value in enumerate(values)]
    rng.shuffle(values)
    values[-1] = values[0]
    return from_rows(
        rows
        + [
            Row(0, "dequeue", None, value, 2 * n + 2 * at, 2 * n + 2 * at + 1, key=key)
            for at, value in enumerate(values)
        ]
    )


@NOT_SANITIZED
@pytest.mark.parametrize("model", ["fifo-queue", "unordered-queue"])
def test_the_time_limit_is_kept(model: str) -> None:
    """Within 5 %, best of three, of the time in which it had a processor: others may want it."""
    history, over = endless(), []
    for _ in range(3):
        verdict = check(history, model, time_limit_s=1.0, by="general")
        assert (verdict.valid, verdict.cause) == ("unknown", "time")
        assert "completed operations" in verdict.progress
        assert verdict.elapsed_s >= 0.99
        share = min(1.0, verdict.cpu_s / verdict.elapsed_s)
        over.append((verdict.elapsed_s - 1.0) * share)
        if over[-1] <= 0.05:
            return
    raise AssertionError(f"over the limit of 1 s by {over}")


@pytest.mark.parametrize("model", ["fifo-queue", "unordered-queue"])
def test_the_memory_limit_is_kept(model: str) -> None:
    verdict = check(endless(), model, time_limit_s=60, memory_limit_bytes=16 * MIB, by="general")
    assert (verdict.valid, verdict.cause) == ("unknown", "memory")
    assert 8 * MIB < verdict.memory_peak_bytes <= 16 * MIB
    assert verdict.progress


MEASURED = """
import sys, threading
from shalott.checkers.linearizability.checking import check
from tests.checkers.linearizability.test_linearizable_limits import endless
def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
model, limit = sys.argv[1], int(sys.argv[2])
check(endless(2), model)
history, before = endless(), resident()
verdict = check(history, model, time_limit_s=120, memory_limit_bytes=limit, by="general")
assert verdict.cause == "memory", verdict
print(resident() - before)
"""


@NOT_SANITIZED
@pytest.mark.parametrize("model", ["fifo-queue", "unordered-queue"])
def test_the_process_grows_by_no_more_than_the_memory_limit(model: str) -> None:
    limit = 40 * MIB
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, model, str(limit)],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert limit * 0.5 < int(done.stdout) <= limit * 1.05


def test_under_a_tiny_memory_limit_nothing_is_guessed() -> None:
    rows = [Row(0, "write", 1, None, 0, 1), Row(0, "read", None, 2, 2, 3)]
    for limit in (1, 100, 1000, 5000):
        verdict = check(from_rows(rows), "register", by="general", memory_limit_bytes=limit)
        assert verdict.valid in (False, "unknown")
        assert verdict.valid is False or verdict.cause == "memory"
    assert check(from_rows(rows), "register", time_limit_s=1e-9).valid in (False, "unknown")


def interrupt_after(seconds: float) -> list[float]:
    """Sends this process SIGINT; when, is in the list then."""
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(seconds, send).start()
    return sent


@pytest.mark.parametrize("keys", [1, 3])
def test_ctrl_c_stops_it_at_once(keys: int) -> None:
    late: list[float] = []
    for _ in range(3):
        sent = interrupt_after(0.3)
        with pytest.raises(CheckInterrupted) as raised:
            check(many_keys(keys), "fifo-queue", time_limit_s=60, threads=2, by="general")
        late.append(time.monotonic() - sent[0])
        verdict = raised.value.verdict
        assert (verdict.valid, verdict.cause) == ("unknown", "cancelled")
        assert isinstance(raised.value, KeyboardInterrupt)
        if late[-1] < 0.1:
            return
    raise AssertionError(f"seconds between Ctrl-C and its being heard: {late}")


def many_keys(keys: int) -> ConcurrentHistory:
    one = endless()
    rows: list[Any] = []
    for number in range(keys):
        for at in range(len(one)):
            operation = one.operation(at)
            call, ret = int(one.call[at]), int(one.ret[at])
            rows.append(
                Row(
                    int(one.process[at]),
                    operation.f,
                    operation.argument,
                    operation.result,
                    call * keys + number,
                    ret * keys + number,
                    key=f"q{number}",
                )
            )
    return from_rows(rows)


def test_one_budget_covers_all_keys() -> None:
    """A budget for each key would take 5 s on two threads."""
    verdict = check(many_keys(20), "fifo-queue", time_limit_s=0.5, threads=2, by="general")
    assert (verdict.valid, verdict.cause, verdict.keys_decided) == ("unknown", "time", 0)
    assert verdict.elapsed_s < 3
    assert verdict.progress.startswith("0 of 20 keys were decided; ")
