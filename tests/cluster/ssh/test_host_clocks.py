"""Which way a node gets a clock of its own: by libfaketime, by its host's clock, or not at all."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace as with_fields

from shalott.cluster.base import NodeSpec
from shalott.cluster.faketime import FILE, LIBRARY, file_text
from shalott.cluster.ssh.clocks import BOOT_ID, HostClocks
from shalott.cluster.ssh.connection import Connection, Ended
from shalott.cluster.ssh.facts import HostFacts, capabilities_of
from shalott.cluster.ssh.link import AgentLink
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import HostPlan
from shalott.harness.cli.doctor_hosts import _clock_faults

pytestmark = pytest.mark.unit

HOST = HostPlan(address="192.0.2.11")


def facts(
    *, faketime: bool = True, glibc: bool = True, is_root: bool = True, boot_id: str = "one"
) -> HostFacts:
    return HostFacts(
        python=(3, 11),
        machine="x86_64",
        kernel="6.1",
        glibc=glibc,
        is_root=is_root,
        nft="",
        iptables="",
        tc="",
        faketime=faketime,
        boot_id=boot_id,
        timekeeper="",
        fuse=False,
        directory="/var/tmp/shalott",
        free_bytes=1,
        shapes=(),
        queue="",
        groups=(),
        clock_offset_s=0,
        is_direct=True,
    )


class Here:
    """This machine in a host's place."""

    host = HOST

    def run(self, command: str) -> Ended:
        done = subprocess.run(command, shell=True, capture_output=True)
        return Ended(done.returncode, done.stdout, done.stderr.decode())


def prepared(clocks: HostClocks, program: str, seen: HostFacts, node: str = "n1") -> NodeSpec:
    spec = NodeSpec(name=node, image="x", command=(program,), files={"own": "1"})
    return clocks.prepare(cast(Connection, Here()), seen, spec, [program])


@pytest.fixture
def go_program(tmp_path: Path) -> str:
    """As far as its file shows."""
    path = tmp_path / "broker"
    path.write_bytes(Path(shutil.which("true") or "").read_bytes() + b"\xff Go buildinf:")
    path.chmod(0o755)
    return str(path)


class Told:
    """An agent that is asked; ``broken``: it fails when a clock is set right."""

    def __init__(self, node: str = "n1") -> None:
        self.node = node
        self.host = HOST
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.broken = False

    async def call(self, what: str, **asked: Any) -> float:
        self.asked.append((what, asked))
        if self.broken:
            raise HarnessError("no answer")
        return 5.0


def told(link: Told) -> AgentLink:
    return cast(AgentLink, link)


def test_a_dynamically_linked_program_is_started_with_the_library() -> None:
    clocks = HostClocks(set_time=True)
    spec = prepared(clocks, "sh", facts())
    assert spec.environment["LD_PRELOAD"] == LIBRARY
    assert spec.environment["FAKETIME_TIMESTAMP_FILE"] == "{config}/" + FILE
    assert spec.files == {"own": "1", FILE: file_text(0)}
    assert clocks.described() == "libfaketime"


def test_a_go_program_has_its_hosts_clock_only_if_that_is_allowed(go_program: str) -> None:
    with pytest.raises(UsageError, match="is a Go program, .*, or allow --ssh-set-time, which"):
        prepared(HostClocks(set_time=False), go_program, facts())
    clocks = HostClocks(set_time=True)
    spec = prepared(clocks, go_program, facts())
    assert spec.environment == {} and spec.files == {"own": "1"}
    assert clocks.described() == "the hosts' own"


def test_a_host_without_the_library_has_its_clock_set_only_if_that_is_allowed() -> None:
    for seen in (facts(faketime=False), facts(glibc=False)):
        with pytest.raises(UsageError, match="^n1 can't have a clock of its own: 192.0.2.11 "):
            prepared(HostClocks(set_time=False), "sh", seen)
        clocks = HostClocks(set_time=True)
        assert "LD_PRELOAD" not in prepared(clocks, "sh", seen).environment


def test_a_clock_is_set_by_root_and_never_the_harnesss_own() -> None:
    clocks = HostClocks(set_time=True)
    with pytest.raises(UsageError, match="only root sets the clock of 192.0.2.11: add --ssh-sudo"):
        prepared(clocks, "sh", facts(faketime=False, is_root=False))
    own = BOOT_ID.read_text().strip()
    with pytest.raises(UsageError, match="has the harness's own clock, which is never set"):
        prepared(clocks, "sh", facts(faketime=False, boot_id=own))


def test_a_clock_that_two_hosts_share_is_not_set() -> None:
    seen = {"n1": facts(faketime=False), "n2": facts(), "n3": facts(boot_id="three")}
    clocks = HostClocks(set_time=True)
    for node, each in seen.items():
        prepared(clocks, "sh", each, node)
    with pytest.raises(UsageError, match="the hosts of n1 and n2 have one clock, so it can't"):
        clocks.check(seen)
    clocks.check({**seen, "n2": facts(boot_id="two")})
    clocks.clear()
    clocks.check(seen)


def test_all_clocks_are_set_right_by_a_heal_and_none_twice(go_program: str) -> None:
    async def scene() -> None:
        clocks, first, second = HostClocks(set_time=True), Told("n1"), Told("n2")
        prepared(clocks, "sh", facts(), "n1")
        prepared(clocks, go_program, facts(), "n2")
        await clocks.set(told(first), 5, 0)
        await clocks.set(told(second), 0, 200)
        first.broken = True
        with pytest.raises(HarnessError):
            await clocks.heal()
        first.broken = False
        await clocks.heal()
        await clocks.heal()
        right = {"offset_ms": 0, "drift_ppm": 0}
        one, other = {**right, "way": "library"}, {**right, "way": "host"}
        assert first.asked[1:] == [("clock", one)] * 2, "again after it failed"
        assert second.asked == [("clock", {**other, "drift_ppm": 200}), ("clock", other)]
        assert await clocks.offset_ms(told(first)) == 5.0

    asyncio.run(scene())


def test_hosts_can_set_clocks_if_all_of_them_can() -> None:
    without = facts(faketime=False)
    assert "clock" in capabilities_of([facts(), facts(is_root=False)])
    assert "clock" not in capabilities_of([facts(), without])
    assert "clock" in capabilities_of([facts(), without], set_time=True)
    by_user = facts(faketime=False, is_root=False)
    assert "clock" not in capabilities_of([facts(), by_user], set_time=True)


def test_the_doctor_names_the_package_and_who_keeps_the_clock() -> None:
    (found,) = _clock_faults(has_library=True, keeper="")
    assert found.state == "ok"
    missing, keeper = _clock_faults(has_library=False, keeper="chronyd")
    assert missing.state == "missing" and missing.fix == "sudo apt-get install -y libfaketime"
    assert "chronyd runs, and may set back what --ssh-set-time sets" in keeper.found


def test_the_flag_is_kept_in_the_plan_and_off_unless_it_is_given() -> None:
    from shalott.cluster.ssh.inventory import SshFlags, read_hosts

    assert not read_hosts(SshFlags(hosts="a")).set_time
    plan = read_hosts(SshFlags(hosts="a", set_time=True))
    assert plan.set_time and with_fields(plan, set_time=False) == read_hosts(SshFlags(hosts="a"))
