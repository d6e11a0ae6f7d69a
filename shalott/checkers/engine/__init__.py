"""The native engine, as Python sees it: ``lib`` (its functions) and ``ffi`` (their memory).

The C files here are built with the package (build_engine.py). Arrays are passed without copying:
``column`` borrows a numpy array's memory, which must outlive the call.

The engine works in threads that the main thread waits for (``run_all``), so that Ctrl-C is heard at
once: Python hears a signal between two instructions of the main thread, and while that waits for a
lock, but not while it is in C.
"""

from __future__ import annotations

import importlib
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine.freshness import is_stale

_BUILD_IT = "run scripts/test, or: python -m pip install -e ."

try:
    _engine = importlib.import_module("shalott.checkers.engine._engine")
except ImportError as error:
    raise ImportError(f"the engine is not built: {_BUILD_IT} ({error})") from error

ffi, lib = _engine.ffi, _engine.lib
if is_stale(Path(str(_engine.__file__)), getattr(lib, "SHL_BUILT_FROM", 0)):
    raise ImportError(f"the engine was built from other C files than these: {_BUILD_IT}")

__all__ = [
    "INT32S",
    "INT64S",
    "UINT8S",
    "Budget",
    "CData",
    "column",
    "cores",
    "ffi",
    "lib",
    "new_budget",
    "owned",
    "ranks",
    "run_all",
]

CData = Any  # the engine's memory: cffi gives it the fields that the headers declare


class Budget(Protocol):
    """A ``shl_budget *``: the limits of a check, and what it has used so far (engine.h)."""

    deadline_ns: int
    memory_limit: int
    cancel: int
    stopped: int
    bytes: int
    bytes_peak: int
    steps: int
    done: int
    within: Budget | None


INT32S, INT64S, UINT8S, _UINT64S = (
    ffi.typeof(f"{name}_t[]") for name in ("int32", "int64", "uint8", "uint64")
)
_C_TYPES = {
    np.dtype(np.int32): INT32S,
    np.dtype(np.int64): INT64S,
    np.dtype(np.uint8): UINT8S,
    np.dtype(np.uint64): _UINT64S,
}
_BUDGET = ffi.typeof("shl_budget *")


def column(array: npt.NDArray[np.generic]) -> CData:
    """A numpy array as C sees it: a pointer into the same memory. It must be contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError("the engine reads contiguous arrays only")
    return ffi.from_buffer(_C_TYPES[array.dtype], array)


def new_budget(
    *, time_limit_s: float | None = None, memory_limit_bytes: int | None = None
) -> Budget:
    """A fresh ``shl_budget *``: limits from now on; None is no limit."""
    budget: Budget = ffi.new(_BUDGET)
    if time_limit_s is not None:
        budget.deadline_ns = lib.shl_now_ns() + max(1, int(time_limit_s * 1e9))
    if memory_limit_bytes is not None:
        budget.memory_limit = max(1, memory_limit_bytes)
    return budget


def owned(memory: CData, free: Callable[[CData], None], budget: Budget) -> CData:
    """What the engine made within a budget: ``free`` takes it back when it is no longer used. The
    budget, which counts its bytes, lives until then."""

    def give_back(gone: CData, budget: Budget = budget) -> None:
        free(gone)

    return ffi.gc(memory, give_back)


def ranks(
    invoke_ns: npt.NDArray[np.int64], complete_ns: npt.NDArray[np.int64], budget: Budget
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """(call, ret, how many ranks) from clock times; see shl_rank in engine.h."""
    n = len(invoke_ns)
    call, ret = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    count = lib.shl_rank(
        n, column(invoke_ns), column(complete_ns), column(call), column(ret), budget
    )
    if count < 0:
        raise MemoryError("ranking the history takes more memory than the limit allows")
    return call, ret, count


def cores() -> int:
    return len(os.sched_getaffinity(0))


def run_all(count: int, work: Callable[[int], bool], threads: int, budget: Budget) -> None:
    """``work(0)`` .. ``work(count - 1)``, on ``threads`` threads, until one answers True.

    What a thread raises is raised here. On Ctrl-C the budget is cancelled, the threads end, and
    KeyboardInterrupt goes on.
    """
    numbers = itertools.count()
    ended = threading.Event()

    def worker() -> None:
        try:
            while not ended.is_set() and (number := next(numbers)) < count:
                if work(number):
                    return
        finally:
            ended.set()  # it is done, or has raised, or there is no number left

    with ThreadPoolExecutor(min(threads, count), thread_name_prefix="engine") as pool:
        running = [pool.submit(worker) for _ in range(min(threads, count))]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
            for each in running:
                if each.done():
                    each.result()
        except BaseException:
            budget.cancel = 1
            ended.set()
            raise
