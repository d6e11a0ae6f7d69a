"""Images of others: what is done to a node of an image that holds one program and no tools."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from shalott.cluster.docker.backend import DockerCluster, DockerOptions
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.images import directory_of, ensure_image
from shalott.cluster.nodes import LinkShape, NodeSpec, Topology
from shalott.core.errors import BootFailed, UsageError
from tests.world.cluster.backends import fresh_run_id

NODES = ("n1", "n2", "n3")
SOURCE = Path(__file__).with_name("scratch_node.c")
DOCKERFILE = 'FROM scratch\nCOPY server /server\nENTRYPOINT ["/server"]\n'


class Scratch:
    name = "scratch"
    ports: Mapping[str, int] = MappingProxyType({"client": 7000})

    def __init__(self, image: str) -> None:
        self.image = image

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        return [
            NodeSpec(name=node, image=self.image, command=(), ports=self.ports, collect=("starts",))
            for node in topology.listen
        ]


@pytest.fixture(scope="module")
def tag(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image of one static program, as a user would have it in his engine."""
    directory = tmp_path_factory.mktemp("images") / "shalott-test-scratch"
    directory.mkdir()
    (directory / "Dockerfile").write_text(DOCKERFILE)
    subprocess.run(["gcc", "-static", "-O1", "-o", directory / "server", SOURCE], check=True)

    async def build() -> str:
        engine = Engine()
        try:
            return await ensure_image(engine, str(directory))
        finally:
            engine.close()

    async def remove(tag: str) -> None:
        engine = Engine()
        await engine.call(lambda api: api.remove_image(tag))
        engine.close()

    found = asyncio.run(build())
    yield found
    asyncio.run(remove(found))


async def started(cluster: DockerCluster, node: str) -> int:
    """How often it was started, as it says itself."""
    at = cluster.endpoint(node, "client")
    for _ in range(200):
        try:
            reader, writer = await asyncio.open_connection(at.host, at.port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        async with asyncio.timeout(2):
            said = await reader.readline()
        writer.close()
        return int(said)
    raise AssertionError(f"{node} does not answer: {await cluster.files.output(node)}")


@pytest.mark.docker
def test_everything_is_done_to_an_image_from_scratch_by_its_name(tag: str, tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = DockerCluster(NODES, fresh_run_id(), DockerOptions(disk_seed=1))
        links, processes = cluster.links, cluster.processes
        try:
            await cluster.boot(Scratch(tag))
            assert [await started(cluster, node) for node in NODES] == [1, 1, 1]
            await links.cut([("n1", "n2")])
            assert not await links.reach("n1", "n2") and await links.reach("n2", "n1")
            await links.mend([("n1", "n2")])
            assert await links.reach("n1", "n2")
            for shape in (LinkShape(rate_bytes_s=100_000), LinkShape(delay_ms=50, loss=0.1)):
                await links.shape("n1", "n2", shape)
                assert await links.shape_of("n1", "n2") == shape
            seen = await links.measure("n1", "n2", 100)
            assert seen.least_ms is not None and seen.least_ms >= 49
            await cluster.heal()
            await processes.pause("n1")
            assert (await processes.status("n1")).state == "paused"
            await processes.resume("n1")
            await processes.kill("n1")
            await processes.start("n1")
            await processes.stop("n2")
            await cluster.files.wipe("n2")
            await processes.start("n2")
            await processes.power_off("n3")
            await processes.start("n3")
            assert await started(cluster, "n1") == 2 and await started(cluster, "n2") == 1
            assert "start 2" in await cluster.files.output("n1")
            await cluster.files.collect(tmp_path)
            assert (tmp_path / "n1" / "starts").read_text() == "2\n"
        finally:
            await cluster.teardown()

    asyncio.run(scene())


@pytest.mark.docker
def test_a_wipe_without_our_file_system_takes_no_program_of_the_image(tag: str) -> None:
    async def scene() -> None:
        cluster = DockerCluster(NODES[:2], fresh_run_id())
        try:
            await cluster.boot(Scratch(tag))
            assert await started(cluster, "n1") == 1
            await cluster.processes.kill("n1")
            await cluster.files.wipe("n1")
            await cluster.processes.start("n1")
            assert await started(cluster, "n1") == 1
        finally:
            await cluster.teardown()

    asyncio.run(scene())


@pytest.mark.docker
def test_a_clock_that_it_cannot_have_is_refused_before_anything_is_booted(tag: str) -> None:
    async def scene() -> None:
        cluster = DockerCluster(NODES, fresh_run_id(), DockerOptions(clocks=True))
        with pytest.raises(UsageError, match="n1 can't have a clock of its own: /server is static"):
            await cluster.check(Scratch(tag))

    asyncio.run(scene())


@pytest.mark.docker
def test_an_image_that_no_one_has_is_one_sentence() -> None:
    async def scene() -> None:
        engine = Engine()
        try:
            with pytest.raises(BootFailed, match=r"there is no image localhost/none:1: name"):
                await ensure_image(engine, "localhost/none:1")
        finally:
            engine.close()

    asyncio.run(scene())


@pytest.mark.unit
@pytest.mark.parametrize(
    ("image", "is_ours"),
    [
        ("broker", True),
        ("rabbitmq", True),
        ("rocketmq:5.3.3", True),
        ("rabbitmq:3.13", False),
        ("nats:2.10", False),
        ("apache/rocketmq:5.3.3", False),
    ],
)
def test_a_stock_image_is_never_mistaken_for_a_recipe(image: str, is_ours: bool) -> None:
    assert (directory_of(image) / "Dockerfile").is_file() is is_ours
