"""Starts a node's program so that it dies with the harness: ``launch.py HARNESS_PID PROGRAM
ARGUMENT...``.

Run as a script of its own (no other module is imported, so it costs a few milliseconds). On Linux
the kernel is asked to kill this process when its parent ends, however that ends; then the program
takes this process's place, as an ordinary process, also under a harness in the real-time class
(precedence.py). Elsewhere, and if the parent is gone already, ``sweep`` and this check do what can
be done.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parent, program = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.sched_getscheduler(0) == os.SCHED_RR:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.getppid() != parent:
        sys.exit(1)  # it ended before the kernel had been asked
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
