"""RocketMQ's systems as processes on this machine: one short run each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import shalott

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.local


@pytest.mark.parametrize("system", LOG_SYSTEMS)
def test_without_faults_it_is_valid(system: str, tmp_path: Path) -> None:
    done = shalott(
        ["test", "--cluster", "local", "--system", system, "--profile", "safe",
         "--nemesis", "none", "--time-limit", "5", "--rate", "40", "--seed", "1"],
        tmp_path,
    )  # fmt: skip
    assert leftovers(done) == []
    assert done.exit_code == 0, done
    assert "nothing was lost of" in done.results.headline
    assert (done.directory.path / "endpoints.json").is_file()
    compared = done.counts("convergence")  # three logs, and the queues on each
    assert (compared["replica-count"], compared["synchronised-count"]) == (9, 9)


def services_of(endpoints: dict[str, dict[str, object]]) -> dict[str, list[str]]:
    """Which nodes are reached at which port."""
    ports = dict.fromkeys(port for own in endpoints.values() for port in own)
    return {port: [node for node, own in endpoints.items() if port in own] for port in ports}


@pytest.mark.parametrize(
    ("layout", "nodes", "brokers", "name_servers", "controllers"),
    [
        ("separate", "5", "n1 n2", "n3 n4 n5", "n3 n4 n5"),
        pytest.param(
            *("standalone", "7", "n1 n2 n3", "n4", "n5 n6 n7"),
            marks=pytest.mark.nightly("seven nodes are many for two cores"),
        ),
    ],
)
def test_services_on_nodes_of_their_own_are_valid_when_the_leading_controller_is_killed(
    layout: str, nodes: str, brokers: str, name_servers: str, controllers: str, tmp_path: Path
) -> None:
    done = shalott(
        ["test", "--cluster", "local", "--system", "controller", "--profile", "safe",
         "--layout", layout, "--nodes", nodes, "--nemesis", "kill", "--targets", "controller",
         "--nemesis-interval", "6", "--nemesis-duration", "3", "--time-limit", "9",
         "--rate", "40", "--seed", "1"],
        tmp_path,
    )  # fmt: skip
    assert leftovers(done) == []
    assert done.exit_code == 0, done
    assert "nothing was lost of" in done.results.headline
    (killed,) = [row["extra"] for row in done.rows("kill")]
    assert killed["proved_effective"] and killed["nodes"][0] in controllers.split()
    reached = services_of(json.loads((done.directory.path / "endpoints.json").read_bytes()))
    assert reached["remoting"] == reached["ha"] == brokers.split()
    assert reached["nameserver"] == name_servers.split()
    assert reached["controller"] == reached["raft"] == controllers.split()
    assert len(reached["management"]) == int(nodes)
    assert {row["node"] for row in done.history.ops.to_pylist() if row["f"] == "send"} == {
        *brokers.split()
    }
