"""Whose connections a master has, by tables as Linux prints them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from pytest import MonkeyPatch

from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import CommandResult, Endpoint
from shalott.cluster.systems.rocketmq_original.admin import Admin, hosts_at
from shalott.cluster.systems.rocketmq_original.observing import Views, add_slaves
from shalott.core.plan import SystemPlan

pytestmark = pytest.mark.unit

HA = 10912
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0B00007F:8D41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 020011AC:2AA0 030011AC:C35C 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 020011AC:2A9F 040011AC:C35C 01 00000000:00000000 00:00000000 00000000     0        0 3 1
   3: 020011AC:2AA0 050011AC:C35C 06 00000000:00000000 00:00000000 00000000     0        0 0 1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue
   0: 00000000000000000000000000000000:2AA0 00000000000000000000000000000000:0000 0A 00000000:0
   1: 0000000000000000FFFF0000020011AC:2AA0 0000000000000000FFFF0000040011AC:9A02 01 00000000:0
   2: 0000000000000000FFFF0000020011AC:2AA0 0000000000000000FFFF0000040011AC:9A04 01 00000000:0
   3: 000080FE00000000FFFF0000020011AC:2AA0 000080FE00000000FFFF0000060011AC:9A04 01 00000000:0
"""


def test_established_connections_to_the_port_are_found_in_both_tables() -> None:
    assert hosts_at(TCP, HA) == ["172.17.0.3"]  # one of another port, one that is closing
    assert hosts_at(TCP6, HA) == ["172.17.0.4"]  # two of it; who listens; no IPv4
    assert hosts_at(TCP + TCP6, HA) == ["172.17.0.3", "172.17.0.4"]


@pytest.mark.parametrize("text", ["", "cat: /proc/net/tcp: No such file", "a b c 01", "\n\n"])
def test_what_is_no_table_says_nothing(text: str) -> None:
    assert hosts_at(text, HA) == []


def test_who_is_connected_is_no_longer_unknown() -> None:
    claim = {"synchronised": None, "mirrors": None, "unknown": ["epoch", "synchronised"]}
    add_slaves(claim, ["n3", "", "n2"])
    assert claim == {
        "synchronised": ["n2", "n3"], "mirrors": ["n2", "n3"], "unknown": ["epoch"],
    }  # fmt: skip


class LooksAround:
    """A cluster of which nobody can ask more than a node's table and addresses."""

    nodes = ("n1", "n2", "n3")

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.processes = self

    def endpoint(self, node: str, port: str) -> Endpoint:
        return Endpoint(f"172.17.0.{int(node[1]) + 1}", 10911)

    async def run_command(self, node: str, command: object, timeout_ms: int) -> CommandResult:
        self.looked.append(node)
        return CommandResult(0, TCP)


@pytest.mark.parametrize(
    ("version", "replication", "role", "told"),
    [
        ("4.9.7", "master-slave", "master", ["n2"]),
        ("4.9.7", "master-slave", "slave", None),
        ("4.9.7", "dledger", "master", None),  # its members have no such connections
        ("5.3.3", "master-slave", "master", None),  # tells it when it is asked
    ],
)
def test_a_node_is_looked_into_where_no_answer_tells_of_slaves(
    version: str, replication: str, role: str, told: list[str] | None, monkeypatch: MonkeyPatch
) -> None:
    async def observe(self: Views, cluster: Cluster, node: str) -> Mapping[str, Any]:
        return {"claims": [{"role": role, "synchronised": None, "unknown": ["synchronised"]}]}

    monkeypatch.setattr(Views, "observe", observe)
    parameters = {"version": version, "replication": replication}
    plan = SystemPlan(name="rocketmq", profile="safe", parameters=parameters)
    views, cluster = Views(plan, Admin(), {"broker": {}}), LooksAround()
    view = asyncio.run(views.observe_with_slaves(cast(Cluster, cluster), "n1"))
    (claim,) = view["claims"]
    assert claim["synchronised"] == told
    assert cluster.looked == ([] if told is None else ["n1"])
