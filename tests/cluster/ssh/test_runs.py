"""Whole runs on hosts over SSH: what is lost, what is not, and what a broken connection or a
killed harness leaves on the hosts, which is nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.end_to_end.runs import Running, shalott
from tests.end_to_end.scenarios import perform
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

pytestmark = pytest.mark.local

LEASE_S = 4.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


def test_upstream_loses_what_one_side_of_a_partition_took(hosts: Hosts, tmp_path: Path) -> None:
    run = perform("partition-halves", "ssh", tmp_path, hosts.flags())
    assert hosts.leftovers() == []
    assert [host.address for host in run.plan.cluster.ssh.hosts] == [
        hosts.address(name) for name in hosts.names
    ]


def test_safe_loses_nothing_in_the_same_partition(hosts: Hosts, tmp_path: Path) -> None:
    flags = ["--nemesis", "partition-halves", "--time-limit", "14", "--net-tick", "1s"]
    run = shalott(
        ["test", "--cluster", "ssh", "--profile", "safe", *flags, *hosts.flags()], tmp_path
    )
    assert run.exit_code == 0, run
    assert run.counts("total-queue")["lost-count"] == 0
    assert hosts.leftovers() == []


def test_a_host_that_is_lost_in_a_fault_ends_the_run_with_one_sentence(
    hosts: Hosts, tmp_path: Path
) -> None:
    flags = ["--profile", "safe", "--nemesis", "partition-one", "--time-limit", "12"]
    flags += ["--nemesis-interval", "2", "--nemesis-duration", "3", "--rate", "100"]
    flags += ["--ssh-lease", f"{LEASE_S}s", *hosts.flags()]
    with Running(["test", "--cluster", "ssh", *flags], tmp_path) as running:
        running.await_fault()
        listener = int((hosts.directory / "b.pid").read_text())
        hosts.end([listener, *hosts.sessions("b")])
        try:
            done = running.wait()
            assert done.exit_code == 255, done
            assert [line for line in done.complaints if "is lost to the harness" in line], done
            assert "Traceback" not in done.stderr
            assert hosts.leftovers(["a", "c"]) == []
            await_clean(hosts, ["b"])
        finally:
            hosts.reboot("b")


def test_a_killed_harness_leaves_nothing_after_the_lease(hosts: Hosts, tmp_path: Path) -> None:
    flags = ["--profile", "safe", "--nemesis", "partition-one,pause", "--time-limit", "30"]
    flags += ["--nemesis-interval", "2", "--nemesis-duration", "25", "--rate", "100"]
    flags += ["--ssh-lease", f"{LEASE_S}s", *hosts.flags()]
    with Running(["test", "--cluster", "ssh", *flags], tmp_path) as running:
        running.await_fault()
        assert len(hosts.leftovers()) > 6
        done = running.end(signal.SIGKILL)
    await_clean(hosts, hosts.names)
    assert done.directory.recording.exists()


def await_clean(hosts: Hosts, names: Sequence[str]) -> None:
    deadline = time.monotonic() + 2 * LEASE_S + 4
    while left := hosts.leftovers(names):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
