"""Limits of files of processes that are another user's."""

from __future__ import annotations

import os
import subprocess

import pytest

from shalott.cluster.kernel_limits import FileLimits, read_limit

pytestmark = pytest.mark.explore  # it starts a process


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start it")
def test_a_root_without_every_capability_limits_processes_of_other_users() -> None:
    """As in containers and on shared machines: prlimit is refused, and done all the same."""
    pipe, nobody = subprocess.PIPE, 65534
    with subprocess.Popen(
        ["cat"], stdin=pipe, stdout=pipe, bufsize=0, user=nobody, group=nobody, extra_groups=()
    ) as reader:
        try:
            assert reader.stdin is not None and reader.stdout is not None
            reader.stdin.write(b"ready\n")
            assert reader.stdout.readline() == b"ready\n"  # it opens no more libraries
            limits, before = FileLimits(), read_limit(reader.pid)
            limits.leave([reader.pid], 5)
            assert limits.left() == 5
            assert read_limit(reader.pid)[0] == 3 + 5
            limits.restore([reader.pid])
            assert (limits.left(), read_limit(reader.pid)) == (0, before)
        finally:
            reader.kill()
