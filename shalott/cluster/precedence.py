"""The harness runs before the nodes that share its machine.

A node that wants every CPU shall be no absent client and no slow network. Equal shares do not give
that: three brokers of RocketMQ 5.3.3 that yield their CPUs in a loop (ReputMessageService) kept an
ordinary process that wanted 10 ms off both of them for 2.6 s, and one of the real-time class for 9
ms, in the same run. So the harness's threads are of that class while a run lasts, where the system
allows it (root or CAP_SYS_NICE). Its children are not: a node that it starts is an ordinary
process. The kernel leaves 5 % of each CPU to ordinary ones in any case
(sched_rt_runtime_us).

It runs on hosts too: Python 3.9 and its library alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

PRIORITY = 1  # the least of the class: all else that is real-time here comes first
NICENESS = -10  # as nice(1) counts, where the class is not to be had
THREADS = Path("/proc/self/task")


def go_first(thread: int = 0) -> bool:
    """Make an ordinary thread (0: this one) real-time; False if it was not ordinary, has ended, or
    may not."""
    try:
        if os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER:
            return False
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(thread, policy, os.sched_param(PRIORITY))
    except (OSError, AttributeError):  # a container without the right, a system without the class
        return False
    return True


def may_go_first() -> bool:
    """Tried by a thread that ends."""
    answers: list[bool] = []
    trying = threading.Thread(target=lambda: answers.append(go_first()))
    trying.start()
    trying.join()
    return answers == [True]


def go_first_or_be_less_nice() -> None:
    """For a process of a single thread, once and for its lifetime."""
    if not go_first():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


@contextlib.contextmanager
def children_first() -> Iterator[None]:
    """Processes that a thread of the class starts meanwhile are of it too. For short programs: the
    one that starts a process stands still until that has had a CPU (vfork)."""
    try:
        inherits = os.sched_getscheduler(0) == os.SCHED_RR | os.SCHED_RESET_ON_FORK
        if inherits:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except (OSError, AttributeError):
        inherits = False
    try:
        yield
    finally:
        if inherits and os.sched_getscheduler(0) == os.SCHED_RR:  # else the run is over meanwhile
            policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, policy, os.sched_param(PRIORITY))


@contextlib.contextmanager
def threads_first() -> Iterator[Callable[[], None]]:
    """While it lasts, this process's threads run first: those that lived when the function was
    called last. Threads that did before stay as they are."""
    changed: set[int] = set()

    def renew() -> None:
        changed.update(thread for thread in _threads() if go_first(thread))

    renew()
    try:
        yield renew
    finally:
        for thread in changed.intersection(_threads()):
            with contextlib.suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _threads() -> list[int]:
    try:
        return [int(path.name) for path in THREADS.iterdir()]
    except OSError:  # a system without /proc
        return []


# -- What counts as standing still, for who watches here and for what runs on other hosts.
STALL_S = 0.3  # less is no stall: loaded machines are often as late
TICK_S = 0.05  # how often a watchdog looks
