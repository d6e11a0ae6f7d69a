"""The process of one run of a night: `shalott test`, which ends in order when the night is killed.

    python -m shalott.harness.cli.matrix_run PARENT LOCK test ...

It holds LOCK, shared, as long as it lives: a command that goes on with the night waits for its end.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys

from shalott.harness.cli.main import main

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run() -> None:
    parent, lock, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    fcntl.flock(os.open(lock, os.O_RDWR), fcntl.LOCK_SH)  # for as long as this process lives
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # it may have been killed before we said so
        main(words)


if __name__ == "__main__":
    run()
