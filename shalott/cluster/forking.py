"""A process in the world of a node that forks without end, until it is told to stop.

``python -I -S forking.py PID DIRECTORY...``: enters the process namespace of PID and the control
groups of those directories, and forks children that only wait. What the kernel refuses is tried
again, so that all that becomes free is taken. It ends when its standard input does, also if the
harness is gone, or with the node's first process; its children end before it, and it waits for
them: a process namespace ends only when all that died in it were waited for.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

CLONE_NEWPID = 0x20000000
PR_SET_PDEATHSIG = 1
AGAIN_S = 0.005


def main(arguments: list[str]) -> None:
    pid, *groups = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    if libc.setns(descriptor, CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # or the wait is not woken
    child = os.fork()  # the namespace is its children's, not its own
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        fork_without_end(groups)
    os.write(1, b"forking\n")
    ready, _, _ = select.select([0, woken], [], [])
    if woken not in ready:
        os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)


def fork_without_end(groups: list[str]) -> NoReturn:
    for group in groups:
        Path(group, "cgroup.procs").write_text("0")
    children: list[int] = []
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    while not stopping:
        try:
            child = os.fork()
        except OSError:
            time.sleep(AGAIN_S)
            continue
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            while True:
                signal.pause()
        children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
