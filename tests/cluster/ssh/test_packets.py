"""What becomes of packets between hosts: measured, undone by the agent, swept, and a shape that
does nothing found out."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.nodes import LinkShape, PacketsSeen
from shalott.cluster.packets.fates import LinkFates, PacketShape
from shalott.cluster.ssh.agent import queueing
from shalott.cluster.ssh.backend import SshCluster
from shalott.cluster.ssh.links import HostLinks
from shalott.cluster.ssh.sweep import sweep_hosts
from shalott.core.errors import HarnessError
from shalott.nemesis.links import LATE_MS, packets_agree, packets_for
from shalott.nemesis.proofs import shape_data
from tests.cluster.ssh.test_lost import LATE_S, LEASE_S, agents, is_clean
from tests.cluster.test_clocks import run_faults
from tests.cluster.test_packets import SPOILT, data
from tests.nemesis.test_settings import of_kind
from tests.world.cluster.backends import HOSTS, READY_MS, World, booted_world, fresh_run_id
from tests.world.cluster.fake_system import NODES, FakeSystem, echoes
from tests.world.cluster.ssh_hosts import Hosts, ssh_hosts
from tests.world.harness.nemesis import MemoryRecorder

ROOT = Path(__file__).parents[3]
PLAIN = LinkShape()
SPOILERS = (("jitter", 80), ("duplicate", 0.3), ("reorder", 0.3), ("corrupt", 0.3), ("loss", 0.3))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with booted_world("ssh", tmp_path_factory.mktemp("work")) as booted:
        if "duplicate" not in booted.cluster.capabilities:
            pytest.skip("these hosts have neither netem nor packet queues")
        yield booted


LOOKS = 5


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


def ssh(world: World) -> SshCluster:
    assert isinstance(world.cluster, SshCluster)
    return world.cluster


def links_of(cluster: SshCluster) -> HostLinks:
    assert isinstance(cluster.links, HostLinks)
    return cluster.links


async def agrees(cluster: SshCluster, source: str, destination: str, shape: LinkShape) -> None:
    """As a proof does it, which looks again: all packets of a look may have waited for a CPU."""
    looks = []
    for _ in range(LOOKS):
        seen = await links_of(cluster).measure(source, destination, packets_for(shape))
        if packets_agree(data(seen), shape_data(shape)):
            return
        late_ms = (seen.least_ms or 0.0) - shape.delay_ms
        assert late_ms > LATE_MS, f"no want of a CPU does this: {source} to {destination}: {seen}"
        looks.append(seen)
    pytest.fail(f"{source} to {destination}: {looks}")


@pytest.mark.local
@pytest.mark.parametrize("shape", [*SPOILT, LinkShape(rate_bytes_s=100_000)], ids=str)
def test_a_shape_is_measured_on_its_link_and_on_no_other(world: World, shape: LinkShape) -> None:
    async def check() -> None:
        cluster = ssh(world)
        await cluster.links.shape("n1", "n2", shape)
        assert await cluster.links.shape_of("n1", "n2") == shape
        if not shape.rate_bytes_s:  # a narrow link carries no packets that prove anything
            await agrees(cluster, "n1", "n2", shape)
        for link in (("n2", "n1"), ("n3", "n2")):
            assert await cluster.links.shape_of(*link) == PLAIN
            await agrees(cluster, *link, PLAIN)
        await cluster.links.shape("n1", "n2", PLAIN)
        assert await cluster.links.shape_of("n1", "n2") == PLAIN
        await agrees(cluster, "n1", "n2", PLAIN)

    world.run(check())
    world.run(world.make_whole())


@pytest.mark.local
def test_a_connection_survives_all_that_happens_to_its_packets(world: World) -> None:
    async def check() -> None:
        shape = LinkShape(delay_ms=5, loss=0.1, duplicate=0.2, reorder=0.2, corrupt=0.1)
        await ssh(world).links.shape("n1", "n2", shape)
        heard = [await echoes(world.cluster, "n1", "n2", held=True) for _ in range(10)]
        assert any(heard), "late ones time out, but nothing is lost for good"
        counts = await links_of(ssh(world)).shapes.counts("n1", "n2")
        if counts:  # the engine's
            assert counts["seen"] >= counts["delayed"] > 0

    world.run(check())
    world.run(world.make_whole())


@pytest.mark.local
def test_a_shape_outlives_a_restart_and_probes_of_cuts_pass_it(world: World) -> None:
    async def check() -> None:
        shape = LinkShape(delay_ms=700)
        await ssh(world).links.shape("n1", "n2", shape)
        await world.cluster.processes.kill("n2")
        await world.cluster.processes.start("n2")
        assert await world.cluster.links.shape_of("n1", "n2") == shape
        await agrees(ssh(world), "n1", "n2", shape)
        assert await world.cluster.links.reach("n1", "n2", 400), "only a cut is a cut"

    world.run(check())
    world.run(world.make_whole())


@pytest.mark.local
def test_every_fault_of_packets_is_proved_and_healed(hosts: Hosts) -> None:
    recorder = MemoryRecorder()
    cluster = SshCluster(NODES, fresh_run_id(), hosts.plan())
    actions = [
        of_kind(kind, amount, number=n, at_ms=n * 1500, duration_ms=1200)
        for n, (kind, amount) in enumerate(SPOILERS)
    ]
    asyncio.run(run_faults(cluster, recorder, *actions))
    probes = [row["extra"] for row in recorder.of("probe")]
    assert len(recorder.faults()) == len(SPOILERS)
    for row in recorder.faults():
        of_it = [probe for probe in probes if probe["fault"] == row["fault"]]
        assert row["error"] is None and row["proved_effective"], (row["kind"], of_it)
        assert row["proved_healed"], (row["kind"], of_it)
    assert hosts.leftovers() == []


def with_spoilt_packets(hosts: Hosts, then: Callable[[SshCluster], Awaitable[None]]) -> None:
    async def live() -> None:
        cluster = SshCluster(NODES, fresh_run_id(), hosts.plan(LEASE_S))
        system = FakeSystem()
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, READY_MS)
            await cluster.links.shape("n1", "n2", SPOILT[-1])
            assert any("packets" in left for left in hosts.leftovers(["b"]))
            await then(cluster)
        finally:
            await cluster.teardown()

    asyncio.run(live())


def engine(hosts: Hosts, name: str) -> int:
    """The engine's process."""
    for pid in hosts.processes(name):
        if b"\0engine\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError(f"no engine runs on {name}")


@pytest.mark.local
def test_a_lost_connection_ends_no_shape(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        serving = engine(hosts, "b")
        hosts.end([*hosts.sessions("a"), *hosts.sessions("b")])
        assert await cluster.links.shape_of("n1", "n2") == SPOILT[-1]
        await agrees(cluster, "n1", "n2", SPOILT[-1])
        assert engine(hosts, "b") == serving

    with_spoilt_packets(hosts, check)
    assert hosts.leftovers() == []


@pytest.mark.local
def test_an_engine_that_ends_leaves_a_whole_network_and_a_sentence(hosts: Hosts) -> None:
    async def check(cluster: SshCluster) -> None:
        hosts.end([engine(hosts, "b")])
        with pytest.raises(HarnessError, match="n2: the packet engine ended, so links to this"):
            await cluster.links.shape_of("n1", "n2")
        assert await echoes(cluster, "n1", "n2")

    with_spoilt_packets(hosts, check)
    assert hosts.leftovers() == []


@pytest.mark.local
def test_the_keeper_and_a_sweep_end_the_engine_and_its_rules(hosts: Hosts) -> None:
    async def keeper(cluster: SshCluster) -> None:
        hosts.end(agents(hosts, "b")[:1])
        await is_clean(hosts, "b", LATE_S)

    async def swept(cluster: SshCluster) -> None:
        hosts.end(agents(hosts, "b"))
        assert await asyncio.to_thread(sweep_hosts, [hosts.host("b")])
        assert hosts.leftovers(["b"]) == []

    with_spoilt_packets(hosts, keeper)
    with_spoilt_packets(hosts, swept)
    assert hosts.leftovers() == []


@pytest.mark.local
def test_a_killed_harness_leaves_no_shape_after_the_lease(hosts: Hosts, tmp_path: Path) -> None:
    plan = msgspec.json.encode(hosts.plan(LEASE_S)).decode()
    words = ("ssh", fresh_run_id(), str(tmp_path), "shape")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.world.cluster.doomed_harness", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, HOSTS: plan},
    ) as harness:
        assert harness.stdout is not None
        try:
            assert harness.stdout.readline().startswith("ready")
            assert any("packets" in left for left in hosts.leftovers())
        finally:
            harness.kill()
            harness.wait()
    assert asyncio.run(is_clean(hosts, "abc", LEASE_S + LATE_S)) > LEASE_S / 2


@pytest.mark.local
def test_an_engine_that_does_nothing_is_found_out(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted failure: the engine says what is in force, and no rule gives it packets."""
    no_rule = "def queue(name, way, sources):\n    remove(name)\n\n\ndef _queue("
    source = Path(queueing.__file__).read_text().replace("def queue(", no_rule, 1)
    from shalott.cluster.ssh import upload

    path = "shalott/cluster/ssh/agent/queueing.py"
    sources = {**upload.agent_sources(), path: source.encode()}
    monkeypatch.setattr(upload, "agent_sources", lambda: sources)
    recorder = MemoryRecorder()
    cluster = SshCluster(NODES, fresh_run_id(), hosts.plan())
    if "delay" in cluster.capabilities and "delay" in hosts_shapes(cluster):
        pytest.skip("these hosts have netem")
    action = of_kind("duplicate", 0.3, duration_ms=500)
    asyncio.run(run_faults(cluster, recorder, action))
    (row,) = recorder.faults()
    assert row["proved_effective"] is False


def hosts_shapes(cluster: SshCluster) -> tuple[str, ...]:
    from shalott.cluster.ssh.facts import probe_hosts

    return tuple(probe_hosts(list(links_of(cluster)._run.hosts.values()))[0].shapes)


@pytest.mark.unit
def test_rules_spare_probes_and_what_the_engine_put_in() -> None:
    number = queueing.number_of("ab12-n1")
    assert number == queueing.number_of("ab12-n1") != queueing.number_of("ab12-n2")
    assert queueing.chain_script("SHALOTTP-x", 7, ["10.0.0.3", "10.0.0.2"]) == (
        "*mangle\n:SHALOTTP-x - [0:0]\n"
        "-A SHALOTTP-x -m mark --mark 0x51a1 -j RETURN\n"
        "-A SHALOTTP-x -m tos --tos 0x14 -j RETURN\n"
        "-A SHALOTTP-x -s 10.0.0.2 -j NFQUEUE --queue-num 7 --queue-bypass\n"
        "-A SHALOTTP-x -s 10.0.0.3 -j NFQUEUE --queue-num 7 --queue-bypass\nCOMMIT\n"
    )
    table = queueing.nft_script("x", 7, ["10.0.0.2"])
    assert "    ip dscp 5 return\n" in table
    assert "    ip saddr { 10.0.0.2 } queue num 7 bypass\n" in table


@pytest.mark.unit
def test_a_shape_is_the_same_where_there_is_no_msgspec() -> None:
    shape = SPOILT[-1]
    plain = PacketShape(**json.loads(msgspec.json.encode(shape)))
    one, other = LinkFates(1, "n1->n2"), LinkFates(1, "n1->n2")
    one.set_shape(shape)
    other.set_shape(plain)
    assert [one.decide(0, 100) for _ in range(50)] == [other.decide(0, 100) for _ in range(50)]
    assert [*PacketShape.__dataclass_fields__] == [*LinkShape.__struct_fields__]
    assert data(PacketsSeen(sent=1, arrived=1, duplicated=0, overtaken=0, corrupted=0))
