"""What tc is told, what it says, and what backends refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.cluster.cluster import Cluster
from shalott.cluster.docker.backend import DockerCluster
from shalott.cluster.local import backend as local_backend
from shalott.cluster.local.backend import LocalCluster
from shalott.cluster.nodes import DiskFaults, LinkShape
from shalott.cluster.packets.shaping import (
    KINDS,
    join_shapes,
    kinds_of_shape,
    netem_words,
    qdisc_script,
    read_netem,
    read_shape,
    split_shape,
)
from shalott.core.errors import MissingCapability

pytestmark = pytest.mark.unit

# Filters and classes as iproute2 6.1 lists them; the netem lines in its format.
LISTING = """\
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800: ht divisor 1
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 flowid 1:10
  match 0a000001/ffffffff at 16
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::801 order 2049 key ht 800 *flowid 1:11
  match 0a000002/ffffffff at 16
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::802 order 2050 key ht 800 flowid 1:12
  match 0a000004/ffffffff at 16
filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::803 order 2051 key ht 800 flowid 1:13
  match 0a000005/ffffffff at 16
class htb 1:11 root leaf 11: prio 0 rate 10Gbit ceil 10Gbit burst 0b cburst 0b
class htb 1:10 root leaf 10: prio 0 rate 512984bit ceil 512984bit burst 32Kb cburst 1599b
class htb 1:1 root prio 0 rate 10Gbit ceil 10Gbit burst 0b cburst 0b
qdisc htb 1: root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0 direct_qlen 1000
qdisc netem 10: parent 1:10 limit 100000 delay 1.5ms
qdisc netem 11: parent 1:11 limit 100000 delay 2s loss 12.5%
qdisc netem 12: parent 1:12 limit 100000 delay 50ms  10ms loss 5% duplicate 1%
qdisc netem 13: parent 1:13 limit 100000 delay 10ms reorder 75% corrupt 0.1% gap 1
"""


@pytest.mark.parametrize(
    ("address", "shape"),
    [
        ("10.0.0.1", LinkShape(delay_ms=1.5, rate_bytes_s=64_123)),
        ("10.0.0.2", LinkShape(delay_ms=2000, loss=0.125)),
        ("10.0.0.3", LinkShape()),
        ("10.0.0.4", LinkShape(delay_ms=40, jitter_ms=20, loss=0.05, duplicate=0.01)),
        ("10.0.0.5", LinkShape(reorder=0.25, corrupt=0.001)),
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


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (LinkShape(), ""),
        (LinkShape(rate_bytes_s=9), ""),
        (LinkShape(delay_ms=40, jitter_ms=20), "delay 50ms 10ms"),
        (
            LinkShape(jitter_ms=20, correlation=0.25, loss=0.1),
            "delay 10ms 10ms 25% loss 10% 25%",
        ),
        (LinkShape(duplicate=0.01, corrupt=0.5), "duplicate 1% corrupt 50%"),
        (LinkShape(reorder=0.25), "delay 10ms reorder 75%"),
        (LinkShape(reorder=0.25, delay_ms=80), "delay 80ms reorder 25%"),
    ],
)
def test_netem_is_told_all_of_a_shape_and_says_it_again(shape: LinkShape, words: str) -> None:
    assert netem_words(shape) == (f"netem limit 100000 {words}" if words else "")
    said = msgspec.structs.replace(shape, rate_bytes_s=0)
    assert read_netem(words.replace("ms 10ms", "ms  10ms")) == said


def test_who_makes_what_of_a_shape() -> None:
    shape = LinkShape(delay_ms=5, rate_bytes_s=1000, loss=0.1)
    all_of_it = frozenset(KINDS.values())
    assert split_shape(shape, all_of_it) == (shape, LinkShape())
    narrow, spoilt = LinkShape(rate_bytes_s=1000), LinkShape(delay_ms=5, loss=0.1)
    assert split_shape(shape, frozenset({"throttle"})) == (narrow, spoilt)
    assert split_shape(shape, frozenset()) == (LinkShape(), shape)
    assert join_shapes(narrow, spoilt) == shape
    assert kinds_of_shape(shape) == ["delay", "throttle", "loss"]


def _docker(_: Path) -> Cluster:
    return DockerCluster(("n1", "n2"), "a-run")


def _local(directory: Path) -> Cluster:
    return LocalCluster(("n1", "n2"), "a-run", directory)


@pytest.mark.parametrize("make", [_docker, _local])
def test_what_a_cluster_was_not_told_that_it_is_wanted_is_not_done(
    make: Any, tmp_path: Path
) -> None:
    async def refuse(call: Coroutine[Any, Any, Any], sentence: str) -> None:
        with pytest.raises(MissingCapability, match=sentence):
            await call

    async def scene() -> None:
        cluster: Cluster = make(tmp_path)
        assert "clock" not in cluster.capabilities
        await refuse(cluster.processes.power_off("n1"), "which loses nothing unsynced")
        if cluster.parts.clocks is None:
            with pytest.raises(MissingCapability, match="clock apart from the host's: only the"):
                _ = cluster.clocks
        else:
            await refuse(cluster.clocks.set("n1", offset_ms=5), "clock apart from the host's")
            await refuse(cluster.clocks.offset_ms("n1"), "only the simulation can, and containers")
        await refuse(cluster.disks.set("n1", DiskFaults(full=True)), "make a node's disk fail")
        await refuse(cluster.disks.faults("n1"), "make a node's disk fail")

    asyncio.run(scene())


@pytest.mark.parametrize("reason", [None, "there is no /dev/fuse"])
def test_local_nodes_have_disks_that_fail_where_this_user_may_mount_them(
    reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_backend, "why_not", lambda: reason)
    told = {c for c in _local(tmp_path).capabilities if c == "power" or "disk" in c}
    assert bool(told) == (reason is None)


def test_the_relays_of_the_local_backend_lose_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        with pytest.raises(MissingCapability, match="the local cluster can't lose packets"):
            await _local(tmp_path).links.shape("n1", "n2", LinkShape(loss=0.1))

    asyncio.run(scene())
