"""Which way a node gets a clock of its own: by libfaketime, by its host's clock, or not at all."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace as with_fields

from shalott.cluster.faketime import FILE, LIBRARY, file_text
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.ssh.agent_link import AgentLink
from shalott.cluster.ssh.clocks import BOOT_ID, HostClocks
from shalott.cluster.ssh.connection import Ended
from shalott.cluster.ssh.facts import HostFacts, capabilities_of
from shalott.cluster.ssh.nodes import HostNodes
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import HostPlan
from shalott.harness.cli.doctor import _clock_faults

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


@pytest.fixture
def go_program(tmp_path: Path) -> str:
    """As far as its file shows."""
    path = tmp_path / "broker"
    path.write_bytes(Path(shutil.which("true") or "").read_bytes() + b"\xff Go buildinf:")
    path.chmod(0o755)
    return str(path)


class Told:
    """An agent that is asked; ``broken``: it fails when a clock is set right."""

    host = HOST
    connection = Here()

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.broken = False

    async def in_thread(self, function: Callable[[], object]) -> object:
        return function()

    async def call(self, what: str, **asked: Any) -> float:
        self.asked.append((what, asked))
        if self.broken:
            raise HarnessError("no answer")
        return 5.0


class Scene:
    """Clocks of nodes whose hosts are this machine."""

    def __init__(self, *, set_time: bool) -> None:
        self.run = HostNodes({}, "a-run")
        can = frozenset({"clock"})
        self.clocks = HostClocks(self.run, can, is_wanted=True, set_time=set_time)  # type: ignore[arg-type]

    def prepare(self, program: str, seen: HostFacts, node: str = "n1") -> NodeSpec:
        self.run.links[node] = cast(AgentLink, Told())
        self.run.facts[node] = seen
        self.run.hosts = {**self.run.hosts, node: HOST}
        spec = NodeSpec(name=node, image="x", command=(program,), files={"own": "1"})
        return asyncio.run(self.clocks.prepare(spec))


def test_a_dynamically_linked_program_is_started_with_the_library() -> None:
    scene = Scene(set_time=True)
    spec = scene.prepare("sh", facts())
    assert spec.environment["LD_PRELOAD"] == LIBRARY
    assert spec.environment["FAKETIME_TIMESTAMP_FILE"] == "{config}/" + FILE
    assert spec.files == {"own": "1", FILE: file_text(0)}
    assert scene.clocks.described() == "libfaketime"


def test_a_go_program_has_its_hosts_clock_only_if_that_is_allowed(go_program: str) -> None:
    with pytest.raises(UsageError, match="is a Go program, .*, or allow --ssh-set-time, which"):
        Scene(set_time=False).prepare(go_program, facts())
    scene = Scene(set_time=True)
    spec = scene.prepare(go_program, facts())
    assert spec.environment == {} and spec.files == {"own": "1"}
    assert scene.clocks.described() == "the hosts' own"


def test_a_host_without_the_library_has_its_clock_set_only_if_that_is_allowed() -> None:
    for seen in (facts(faketime=False), facts(glibc=False)):
        with pytest.raises(UsageError, match="^n1 can't have a clock of its own: 192.0.2.11 "):
            Scene(set_time=False).prepare("sh", seen)
        scene = Scene(set_time=True)
        assert "LD_PRELOAD" not in scene.prepare("sh", seen).environment


def test_a_clock_is_set_by_root_and_never_the_harnesss_own() -> None:
    scene = Scene(set_time=True)
    with pytest.raises(UsageError, match="only root sets the clock of 192.0.2.11: add --ssh-sudo"):
        scene.prepare("sh", facts(faketime=False, is_root=False))
    own = BOOT_ID.read_text().strip()
    with pytest.raises(UsageError, match="has the harness's own clock, which is never set"):
        scene.prepare("sh", facts(faketime=False, boot_id=own))


def test_a_clock_that_two_hosts_share_is_not_set() -> None:
    seen = {"n1": facts(faketime=False), "n2": facts(), "n3": facts(boot_id="three")}
    scene = Scene(set_time=True)
    for node, each in seen.items():
        scene.prepare("sh", each, node)
    with pytest.raises(UsageError, match="the hosts of n1 and n2 have one clock, so it can't"):
        scene.clocks.check()
    scene.run.facts["n2"] = facts(boot_id="two")
    scene.clocks.check()
    scene.run.facts["n2"] = facts()
    asyncio.run(scene.clocks.close())
    scene.clocks.check()


def test_all_clocks_are_set_right_by_a_heal_and_none_twice(go_program: str) -> None:
    scene = Scene(set_time=True)
    scene.prepare("sh", facts(), "n1")
    scene.prepare(go_program, facts(), "n2")
    first, second = (cast(Told, scene.run.links[node]) for node in ("n1", "n2"))

    async def play() -> None:
        clocks = scene.clocks
        await clocks.set("n1", offset_ms=5)
        await clocks.set("n2", drift_ppm=200)
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
        assert await clocks.offset_ms("n1") == 5.0

    asyncio.run(play())


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
