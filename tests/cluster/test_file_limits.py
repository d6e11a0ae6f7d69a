"""Limits of files of processes that are another user's."""

from __future__ import annotations

import os
import subprocess

import pytest

from shalott.cluster.file_limits import FileLimits, read_limit

pytestmark = pytest.mark.explore  # it starts a process


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start it")
def test_a_root_without_every_capability_limits_processes_of_other_users() -> None:
    """As in containers and on shared machines: prlimit is refused, and done all the same."""
    with subprocess.Popen(["sleep", "60"], user=65534, group=65534, extra_groups=()) as sleeper:
        try:
            limits, before = FileLimits(), read_limit(sleeper.pid)
            limits.leave([sleeper.pid], 5)
            assert limits.left() == 5
            assert read_limit(sleeper.pid)[0] == 3 + 5
            limits.restore([sleeper.pid])
            assert (limits.left(), read_limit(sleeper.pid)) == (0, before)
        finally:
            sleeper.kill()
