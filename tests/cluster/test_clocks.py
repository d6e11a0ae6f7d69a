"""Clocks of containers: set, read in the node's environment, refused where they can't be had."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shalott.cluster import faketime
from shalott.cluster.cluster import Cluster
from shalott.cluster.docker import clocks as docker_clocks
from shalott.cluster.docker.backend import DockerCluster, DockerOptions
from shalott.cluster.docker.clocks import ContainerClocks
from shalott.cluster.docker.nodes import ContainerNodes
from shalott.cluster.faketime import check_program, file_text
from shalott.core.errors import MissingCapability, UsageError
from shalott.nemesis.clocks import JUMP, SKEW, STROBE
from shalott.nemesis.runner import NemesisRunner
from tests.nemesis.test_settings import of_kind
from tests.world.cluster.backends import READY_MS, fresh_run_id
from tests.world.cluster.fake_system import NODES, FakeSystem
from tests.world.harness.nemesis import MemoryRecorder, make_plan


def elf(*segments: int, more: bytes = b"") -> bytes:
    """A 64-bit little-endian ELF file with program headers of these types."""
    head = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64)
    head = head.ljust(54, b"\0") + struct.pack("<HH", 56, len(segments))
    return (
        head.ljust(64, b"\0")
        + b"".join(struct.pack("<I", kind).ljust(56, b"\0") for kind in segments)
        + more
    )


@pytest.mark.unit
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (elf(6, 3, 1), ""),
        (b"#!/bin/sh\nexec erl\n", ""),
        (elf(6, 1), "is statically linked, so no library can be put before its own"),
        (elf(6, 3, more=b"\xff Go buildinf:"), "is a Go program, which reads the clock without"),
        (elf(6, 3, more=b"\0libjemalloc.so.2\0"), "takes its memory from jemalloc, which never"),
    ],
)
def test_programs_that_no_library_reaches_are_told_from_the_others(
    content: bytes, reason: str
) -> None:
    said = check_program(content)
    assert said.startswith(reason) and bool(said) == bool(reason)


@pytest.mark.unit
def test_the_clock_file_is_overwritten_at_one_length() -> None:
    texts = [file_text(offset_ms) for offset_ms in (0, 0.5, -5000, 3.6e6, -31_536_000_000)]
    assert [text.split()[0] for text in texts] == [
        *("+0.000000", "+0.000500", "-5.000000", "+3600.000000", "-31536000.000000"),
    ]
    assert len({len(text) for text in texts}) == 1


@pytest.mark.unit
def test_a_drift_is_made_of_small_steps_and_a_heal_ends_it() -> None:
    async def scene() -> None:
        written: list[float] = []

        class WrittenDown(ContainerClocks):
            async def _write(self, node: str, text: str) -> None:
                written.append(float(text))

        links = SimpleNamespace(enters=True)
        one = WrittenDown(ContainerNodes(NODES, "a-run", keep=False), links, is_wanted=True)
        await one.set("n1", drift_ppm=100_000)
        await asyncio.sleep(0.2)
        await one.heal()
        assert len(written) > 3 and written[-1] == 0
        assert 0.015 < written[-2] < 0.2, "a tenth of what had passed"
        assert written[:-1] == sorted(written[:-1])
        count = len(written)
        await asyncio.sleep(0.1)
        assert len(written) == count

    asyncio.run(scene())


async def run_faults(cluster: Cluster, recorder: MemoryRecorder, *actions: Any) -> None:
    system = FakeSystem()
    try:
        await cluster.boot(system)
        await system.await_ready(cluster, NODES, READY_MS)
        runner = NemesisRunner(cluster, system, make_plan(*actions), recorder)
        await runner.run()
        await runner.heal()
    finally:
        await cluster.teardown()


@pytest.mark.docker
def test_clock_faults_are_proved_inside_the_nodes_environment() -> None:
    recorder = MemoryRecorder()
    cluster = DockerCluster(NODES, fresh_run_id(), DockerOptions(clocks=True))
    amounts = {"clock-skew": 20_000, "clock-jump": -5000, "clock-strobe": 5000}
    actions = [
        of_kind(record.name, amounts[record.name], number=n, at_ms=100, duration_ms=3000, node=node)
        for n, (record, node) in enumerate(zip((SKEW, JUMP, STROBE), NODES, strict=True), start=1)
    ]
    asyncio.run(run_faults(cluster, recorder, *actions))
    probes = [row["extra"] for row in recorder.of("probe")]
    for row in recorder.faults():
        assert row["error"] is None, row
        assert row["proved_effective"] and row["proved_healed"], (row["kind"], probes)


@pytest.mark.docker
def test_a_clock_file_that_is_not_read_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted failure: the node reads another file than the host writes."""
    real = faketime.environment

    def elsewhere(config_dir: str) -> dict[str, str]:
        return {**real(config_dir), "FAKETIME_TIMESTAMP_FILE": f"{config_dir}/another"}

    monkeypatch.setattr(docker_clocks, "environment", elsewhere)
    recorder = MemoryRecorder()
    cluster = DockerCluster(NODES, fresh_run_id(), DockerOptions(clocks=True))
    asyncio.run(run_faults(cluster, recorder, of_kind("clock-jump", 5000, duration_ms=500)))
    (row,) = recorder.faults()
    assert row["proved_effective"] is False


@pytest.mark.docker
def test_nodes_of_other_plans_have_the_hosts_clock_and_pay_nothing() -> None:
    async def scene() -> None:
        cluster = DockerCluster(NODES[:1], fresh_run_id())
        try:
            await cluster.boot(FakeSystem())
            said = await cluster.processes.run_command("n1", ["env"])
            assert "LD_PRELOAD" not in said.output and "FAKETIME" not in said.output
            with pytest.raises(MissingCapability, match="hosts whose nodes were started for it"):
                await cluster.clocks.set("n1", offset_ms=5)
        finally:
            await cluster.teardown()

    asyncio.run(scene())


ETCD = Path(__file__).parents[2] / "examples" / "shalott_registers" / "images" / "etcd"


class GoSystem(FakeSystem):
    """A system whose program is written in Go."""

    image = str(ETCD)

    def node_specs(self, topology: Any) -> Any:
        from shalott.cluster.nodes import NodeSpec

        return [NodeSpec(name=n, image=self.image, command=("etcd",)) for n in topology.listen]


@pytest.mark.docker
def test_a_go_program_is_refused_before_any_node_starts() -> None:
    async def scene() -> None:
        cluster = DockerCluster(NODES, fresh_run_id(), DockerOptions(clocks=True))
        try:
            with pytest.raises(UsageError, match="n1 can't have a clock of its own: etcd is a Go"):
                await cluster.boot(GoSystem())
            assert (await cluster.processes.status("n1")).state == "absent"
        finally:
            await cluster.teardown()

    asyncio.run(scene())
