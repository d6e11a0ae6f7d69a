"""Work for the engine's threads, which the main thread waits for, so that Ctrl-C is heard at once.

Python hears a signal between two instructions of the main thread. A main thread that is in C would
not hear it until the search ends; one that waits for a lock does.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from shalott.checkers.engine import Budget


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
