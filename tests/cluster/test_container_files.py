"""Files of containers, changed from this host and through a container; what commands say; and what
a program of others, which knows nothing of our disks, loses that it did not sync."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed

from shalott.cluster.docker import backend, containers
from shalott.cluster.docker.files import ContainerFiles
from shalott.cluster.nodes import CommandResult, DiskFaults, NodeSpec, Topology
from shalott.cluster.waiting import ask_until
from shalott.core.errors import MissingCapability
from tests.world.cluster.backends import World, booted_world, fresh_run_id, make
from tests.world.cluster.fake_system import NODES, FakeSystem

SMALL = pytest.mark.nightly("boots containers for what the simulation shows by day")


class Engine:
    """Runs what it is asked for on this machine, and loses what was said if ``loses``."""

    def __init__(self, *, loses: bool = False, has_shell: bool = True) -> None:
        self.loses, self.has_shell = loses, has_shell
        self.code = 0

    def exec_create(self, name: str, words: list[str]) -> dict[str, Any]:
        return {"Id": words}

    def exec_start(self, words: list[str]) -> bytes:
        if words[0] == "sh" and not self.has_shell:
            self.code = 126
            return b"exec: sh: not found"
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.code = done.returncode
        return b"" if self.loses else done.stdout

    def exec_inspect(self, words: list[str]) -> dict[str, Any]:
        return {"ExitCode": self.code}


@pytest.mark.unit
def test_a_command_whose_words_are_lost_is_told_from_one_that_says_nothing() -> None:
    def run(engine: Any, *words: str) -> CommandResult:
        return containers.execute(engine, "n1", words)

    assert run(Engine(), "sh", "-c", "echo one; exit 3") == CommandResult(3, "one\n")
    assert run(Engine(), "true") == CommandResult(0, "")
    assert run(Engine(loses=True), "echo", "one") == CommandResult(0, "", is_whole=False)
    assert run(Engine(has_shell=False), "echo", "one") == CommandResult(0, "one\n")


def changed(world: World, *, near: bool) -> None:
    files = world.cluster.files
    assert isinstance(files, ContainerFiles)
    files._is_near = near
    world.run(files.leave_file("n1", "log", b"0123456789")) if near else None
    assert world.run(files.find("n1", "l*"))["log"] == 10
    assert "events.jsonl" not in world.run(files.find("n1", "**"))
    before = world.run(files.read_places("n1", "log", [(2, 3), (9, 5)]))
    flips = world.run(files.flip_bits("n1", "log", [(2, 1), (9, 128)]))
    assert [old for old, _ in flips] == [before[0][0], before[1][0]]
    after = world.run(files.read_places("n1", "log", [(2, 3), (9, 5)]))
    assert [each[0] for each in after] == [new for _, new in flips]
    assert world.run(files.read_places("n1", "gone", [(0, 1), (1, 1)])) == [b"", b""]


@pytest.mark.docker
@SMALL
def test_files_are_changed_alike_from_this_host_and_through_a_container(tmp_path: Path) -> None:
    with booted_world("docker", tmp_path) as world:
        world.run(world.system.await_ready(world.cluster, NODES, 20_000))
        for near in (True, False):
            changed(world, near=near)
        world.run(world.cluster.processes.kill("n1"))
        for near in (True, False):
            changed(world, near=near)
        files = world.cluster.files
        assert isinstance(files, ContainerFiles)
        world.run(files.cut_file("n1", "log", 4))
        assert world.run(files.read_places("n1", "log", [(0, 9), (4, 1)])) == [
            world.run(files.read_places("n1", "log", [(0, 4)]))[0],
            b"",
        ]


@pytest.mark.docker
@SMALL
def test_what_a_command_says_is_whole_or_known_to_be_lost(tmp_path: Path) -> None:
    with booted_world("docker", tmp_path) as world:
        processes = world.cluster.processes
        for number in range(50):
            words = ["sh", "-c", f"echo {number}; exit 3"]
            done = world.run(processes.run_command("n1", words))
            assert done.exit_code == 3
            assert done.output == f"{number}\n" or not done.is_whole
        assert world.run(processes.run_command("n1", ["sleep", "9"], 300)).exit_code == 124


class Writer(FakeSystem):
    """A stock image whose program is a shell: it syncs one file, and goes on with another."""

    name = "writer"
    image = "debian:bookworm-slim"

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        script = (
            "echo kept > /data/synced; sync /data/synced /data;"
            " while :; do echo more >> /data/unsynced; sleep 0.02; done"
        )
        return [
            NodeSpec(name=node, image=self.image, command=("sh", "-c", script), ports=self.ports)
            for node in topology.listen
        ]


@pytest.mark.docker
@SMALL
def test_a_stock_program_loses_what_it_did_not_sync_and_the_others_lose_nothing(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        cluster = make("docker-disks", fresh_run_id(), tmp_path)
        files = cluster.files
        assert isinstance(files, ContainerFiles)
        try:
            await cluster.boot(Writer())
            for node in NODES:
                for _ in range(400):
                    if (await files.find(node, "*")).get("unsynced", 0) >= 50:
                        break
                    await asyncio.sleep(0.05)
            await cluster.processes.kill("n1")
            lost = await cluster.disks.lose_unsynced("n1")
            assert lost["bytes"] + lost["names"] > 0
            assert await files.find("n1", "*") == {"synced": 5}
            assert [*await files.find("n2", "*")] == ["synced", "unsynced"]
        finally:
            await cluster.teardown()

    asyncio.run(scene())


@pytest.mark.docker
@SMALL
def test_a_node_that_waits_for_its_disk_can_be_paused(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = make("docker-disks", fresh_run_id(), tmp_path)
        files, processes = cluster.files, cluster.processes
        assert isinstance(files, ContainerFiles)

        async def written() -> int:
            return (await files.find("n1", "*")).get("unsynced", 0)

        async def grows(size: int) -> bool:
            return await written() > size

        async def says(file: str, word: str) -> bool:
            told = await processes.run_command("n1", ["cat", f"/proc/1/{file}"])
            return word in told.output

        try:
            await cluster.boot(Writer())
            assert await ask_until(partial(grows, 0), 20, wait_fixed(0.05))
            await cluster.disks.set("n1", DiskFaults(slow_ms=5000))
            assert await ask_until(partial(says, "wchan", "request_wait"), 20, wait_fixed(0.05))
            await processes.pause("n1")
            assert (await processes.status("n1")).state == "paused"
            await cluster.disks.set("n1", DiskFaults())
            assert await ask_until(partial(says, "status", "State:\tT"), 20, wait_fixed(0.05))
            size = await written()
            await processes.resume("n1")
            assert await ask_until(partial(grows, size), 20, wait_fixed(0.05))
        finally:
            await cluster.teardown()

    asyncio.run(scene())


@pytest.mark.docker
@SMALL
def test_a_volume_in_memory_is_full_for_a_while_where_no_disk_of_ours_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "disk_obstacle", lambda: "only root mounts disks")

    async def scene() -> None:
        cluster = make("docker-disks", fresh_run_id(), tmp_path)
        assert "disk-full" in cluster.capabilities and "power" not in cluster.capabilities
        system, disks = FakeSystem(), cluster.disks
        try:
            await cluster.boot(system)
            await system.await_ready(cluster, NODES, 20_000)
            assert not (await disks.faults("n1")).full
            await disks.set("n1", DiskFaults(full=True))
            assert (await disks.faults("n1")).full and not (await disks.faults("n2")).full
            write = ["sh", "-c", "echo more > /data/more"]
            assert (await cluster.processes.run_command("n1", write)).exit_code != 0
            assert (await cluster.processes.run_command("n2", write)).exit_code == 0
            with pytest.raises(MissingCapability):
                await disks.set("n1", DiskFaults(slow_ms=3))
            await cluster.heal()
            assert (await cluster.processes.run_command("n1", write)).exit_code == 0
            await cluster.processes.kill("n1")
            await cluster.processes.start("n1")
            await system.await_ready(cluster, NODES, 20_000)
            files = cluster.files
            assert isinstance(files, ContainerFiles)
            assert {*await files.find("n1", "*")} >= {"more", "starts"}
        finally:
            await cluster.teardown()

    asyncio.run(scene())
