"""What keeps a host from being one: each is one sentence that says what to do, and leaves
nothing."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.ssh.backend import SshCluster
from shalott.core.errors import ShalottError
from shalott.core.plan import HostPlan, SshPlan
from tests.end_to_end.runs import shalott
from tests.world.cluster.backends import fresh_run_id
from tests.world.cluster.fake_system import FakeSystem
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts

pytestmark = pytest.mark.local

BARE = "for path in /usr/bin/python3*; do mount --bind /dev/null $path; done"
TINY = "mkdir -p ~/.cache && mount -t tmpfs -o size=64k tmpfs ~/.cache"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """The first is sound, on the second there is no Python, on the third there is no room."""
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        for name, before in (("b", BARE), ("c", TINY)):
            made.reboot(name, before)
        yield made


def refused(*plans: HostPlan, system: FakeSystem | None = None) -> str:
    """Why a cluster on these hosts can't be booted."""

    async def live() -> None:
        nodes = [f"n{number}" for number in range(1, len(plans) + 1)]
        cluster = SshCluster(nodes, fresh_run_id(), SshPlan(hosts=plans, lease_s=5))
        try:
            await cluster.boot(system or FakeSystem())
        finally:
            await cluster.teardown()

    with pytest.raises(ShalottError) as met:
        asyncio.run(live())
    assert "\n" not in str(met.value)
    return str(met.value)


def test_an_unknown_host_key_is_refused_and_not_added(hosts: Hosts, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("")
    address = hosts.address("a")
    assert refused(replace(hosts.host("a"), known_hosts=str(known))) == (
        f"the host key of {address} is not in {known}: compare it with the host's own, and add it"
        f" with `ssh-keyscan -p 22 {address} >> {known}`"
    )
    assert known.read_text() == ""


def test_another_host_key_than_the_known_one_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    other = (hosts.directory / "b.pub").read_text()
    known.write_text(f"{hosts.address('a')} {other}")
    sentence = refused(replace(hosts.host("a"), known_hosts=str(known)))
    assert sentence.startswith(f"{hosts.address('a')} has another host key than {known} knows: ")
    assert f"`ssh-keygen -f {known} -R '{hosts.address('a')}'`" in sentence


def test_a_wrong_key_and_an_absent_one(hosts: Hosts, tmp_path: Path) -> None:
    key = tmp_path / "wrong"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    sentence = refused(replace(hosts.host("a"), key=str(key)))
    assert sentence.startswith(f"{hosts.address('a')} refuses root with the key {key}: add the pub")
    assert refused(replace(hosts.host("a"), key=str(tmp_path / "absent"))) == (
        f"there is no key {tmp_path / 'absent'}: name another --ssh-key"
    )


def test_nobody_listens(hosts: Hosts) -> None:
    at = f"{hosts.address('a')}:23"
    sentence = refused(replace(hosts.host("a"), port=23))
    assert sentence == f"{at} can't be reached over SSH: Connection refused"


def test_a_host_without_python(hosts: Hosts) -> None:
    sentence = refused(hosts.host("a"), hosts.host("b"))
    assert sentence.startswith(f"{hosts.address('b')} has no /usr/bin/python3: install it there")
    assert hosts.leftovers() == []


def test_no_room_for_what_is_uploaded(hosts: Hosts) -> None:
    sentence = refused(hosts.host("a"), hosts.host("c"))
    assert re.fullmatch(
        rf"{hosts.address('c')} does not take an upload of \d+ bytes into \S+/\.cache/shalott,"
        r" where \d+ are free \(.+\): make room there, or name another directory in the inventory",
        sentence,
    )
    assert hosts.leftovers() == []
    assert hosts.run("c", "ls ~/.cache/shalott/ | grep -v runs | grep part") == ""


class Taken(FakeSystem):
    """Wants a port that somebody has."""

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [replace(spec, ports={"ssh": 22}) for spec in super().node_specs(topology)]


class Absent(FakeSystem):
    """Wants a program that is not there."""

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        wanted = super().node_specs(topology)
        return [replace(spec, command=("no-such-broker",)) for spec in wanted]


@pytest.mark.parametrize(
    ("system", "pattern"),
    [
        (Taken(), "n1: its port 22 can't be used: Address already in use"),
        (Absent(), r"{address} has no no-such-broker: install it there with .*"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_host_on_which_the_node_can_not_run(
    hosts: Hosts, system: FakeSystem, pattern: str
) -> None:
    sentence = refused(hosts.host("a"), system=system)
    assert re.fullmatch(pattern.format(address=hosts.address("a")), sentence), sentence
    assert hosts.leftovers() == []


def test_a_run_that_is_refused_says_so_in_one_line(hosts: Hosts, tmp_path: Path) -> None:
    flags = [*hosts.flags(), "--ssh-key", str(tmp_path / "absent")]
    done = shalott(["test", "--cluster", "ssh", "--nemesis", "none", *flags], tmp_path)
    assert done.exit_code == 254, done
    assert done.stderr.splitlines()[-1].startswith("shalott: there is no key ")
    assert not list((tmp_path / "store").glob("*/2*"))


def test_the_doctor_says_what_each_host_lacks(hosts: Hosts, tmp_path: Path) -> None:
    done = shalott(["doctor", *hosts.flags()], tmp_path)
    assert done.exit_code == 2, done
    parts = [done.stdout.split(f"{hosts.address(name)}\n")[1] for name in hosts.names]
    parts = [part.split(f"{hosts.address('a')[:-1]}")[0] for part in parts]
    assert "ok       Python: 3." in parts[0] and "fatal" not in parts[0]
    assert "ok       Cutting links: nftables" in parts[0]
    assert "ok       Clock: " in parts[0]
    assert "Clock faults: " in parts[0]
    assert "fatal    Python: no python3" in parts[1]
    assert "fatal    Disk: 0 MB free" in parts[2]
    assert "No run is possible on" in done.stdout
