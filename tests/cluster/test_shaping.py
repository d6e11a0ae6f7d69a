"""What tc is told, what it says, and what backends refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from shalott.cluster.base import Cluster, DiskFaults, LinkShape
from shalott.cluster.docker.backend import DockerCluster
from shalott.cluster.docker.shaping import qdisc_script, read_shape
from shalott.cluster.local.backend import LocalCluster
from shalott.harness.core.errors import MissingCapability

pytestmark = pytest.mark.unit

# Filters and classes as iproute2 6.1 lists them; the netem lines in its format.
LISTING = """\
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800: ht divisor 1
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 flowid 1:10
  match 0a000001/ffffffff at 16
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::801 order 2049 key ht 800 *flowid 1:11
  match 0a000002/ffffffff at 16
class htb 1:11 root leaf 11: prio 0 rate 10Gbit ceil 10Gbit burst 0b cburst 0b
class htb 1:10 root leaf 10: prio 0 rate 512984bit ceil 512984bit burst 32Kb cburst 1599b
class htb 1:1 root prio 0 rate 10Gbit ceil 10Gbit burst 0b cburst 0b
qdisc htb 1: root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0 direct_qlen 1000
qdisc netem 10: parent 1:10 limit 100000 delay 1.5ms
qdisc netem 11: parent 1:11 limit 100000 delay 2s loss 12.5%
"""


@pytest.mark.parametrize(
    ("address", "shape"),
    [
        ("10.0.0.1", LinkShape(delay_ms=1.5, rate_bytes_s=64_123)),
        ("10.0.0.2", LinkShape(delay_ms=2000, loss=0.125)),
        ("10.0.0.3", LinkShape()),
    ],
)
def test_the_shape_in_force_is_read_from_the_kernels_listing(
    address: str, shape: LinkShape
) -> None:
    assert read_shape(LISTING, address) == shape


def test_loss_and_delay_share_one_queue() -> None:
    shapes = {"10.0.0.2": LinkShape(delay_ms=20, loss=0.05), "10.0.0.1": LinkShape(rate_bytes_s=9)}
    netem = [line for line in qdisc_script(shapes).splitlines() if "netem" in line]
    assert netem == [
        "tc qdisc add dev eth0 parent 1:11 handle 11: netem limit 100000 delay 20ms loss 5%"
    ]


def _docker(_: Path) -> Cluster:
    return DockerCluster(("n1", "n2"), "a-run")


def _local(directory: Path) -> Cluster:
    return LocalCluster(("n1", "n2"), "a-run", directory)


@pytest.mark.parametrize("make", [_docker, _local])
def test_what_only_the_simulation_can_do_is_neither_declared_nor_done(
    make: Any, tmp_path: Path
) -> None:
    async def refuse(call: Coroutine[Any, Any, Any], sentence: str) -> None:
        with pytest.raises(MissingCapability, match=sentence):
            await call

    async def scene() -> None:
        cluster: Cluster = make(tmp_path)
        assert not [c for c in cluster.capabilities if c in ("power", "clock") or "disk" in c]
        await refuse(cluster.power_off("n1"), "only the simulation can lose unsynced writes")
        await refuse(cluster.set_clock("n1", offset_ms=5), "clock apart from the host's")
        await refuse(cluster.clock_offset_ms("n1"), "only the simulation can")
        await refuse(cluster.set_disk("n1", DiskFaults(full=True)), "make a node's disk fail")
        await refuse(cluster.disk_faults("n1"), "make a node's disk fail")

    asyncio.run(scene())


def test_the_relays_of_the_local_backend_lose_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        with pytest.raises(MissingCapability, match="the local cluster can't lose packets"):
            await _local(tmp_path).shape("n1", "n2", loss=0.1)

    asyncio.run(scene())
