"""Files of containers, changed from this host and through a container; what commands say; and what
a program of others, which knows nothing of our disks, loses that it did not sync."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from shalott.cluster.docker import containers
from shalott.cluster.docker.files import ContainerFiles
from shalott.cluster.nodes import NodeSpec, Topology
from tests.world.cluster.backends import World, booted_world, fresh_run_id, make
from tests.world.cluster.fake_system import NODES, FakeSystem

SMALL = pytest.mark.nightly("boots containers for what the simulation shows by day")


def heard(*chunks: bytes) -> tuple[tuple[bytes, int | None], bytes]:
    """What is read of these frames of an engine, and what it is sent then."""
    own, engine = socket.socketpair()
    with own, engine:
        engine.sendall(b"".join(struct.pack(">BxxxL", 1, len(each)) + each for each in chunks))
        engine.shutdown(socket.SHUT_WR)
        stream = own.makefile("rb", buffering=0)
        assert isinstance(stream, socket.SocketIO)
        found = containers._read_until(stream, b"mark")
        own.close()
        return found, engine.recv(9)


@pytest.mark.unit
def test_a_command_is_heard_to_its_mark_however_it_is_cut() -> None:
    assert heard(b"one\nt", b"wo\n\nmark", b" 3\n") == ((b"one\ntwo\n", 3), b"\n")
    assert heard(b"half") == ((b"half", None), b"")
    long = b"x" * 50_000
    assert heard(long, b"\nmark 0\n") == ((long, 0), b"\n")


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
def test_nothing_that_a_command_says_is_lost(tmp_path: Path) -> None:
    with booted_world("docker", tmp_path) as world:
        processes = world.cluster.processes

        async def said(number: int) -> tuple[int, str]:
            done = await processes.run_command("n1", ["sh", "-c", f"echo {number}; exit 3"])
            return done.exit_code, done.output

        for number in range(100):
            assert world.run(said(number)) == (3, f"{number}\n")
        late = world.run(processes.run_command("n1", ["sleep", "9"], 300))
        assert late.exit_code == 124


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
