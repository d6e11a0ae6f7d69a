"""Quorum queues of RabbitMQ: what is refused, what a node claims, and what its log tells."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from shalott.cluster.systems.rabbit.rabbitmq import claim_of
from shalott.cluster.systems.rabbit.rabbitmq_log import read_log
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")
LISTED = {
    "name": "q",
    "type": "quorum",
    "state": "running",
    "leader": "rabbit@n2",
    "members": ["rabbit@n3", "rabbit@n1", "rabbit@n2"],
    "online": ["rabbit@n2", "rabbit@n1"],
}
LOG = """\
2026-11-21 13:35:38.338507+00:00 [info] <0.225.0>  Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]
2026-11-21 13:35:41.191525+00:00 [notice] <0.1182.0> queue 'q' in vhost '/': candidate -> leader \
in term: 1 machine version: 2
2026-11-21 13:35:41.399070+00:00 [info] <0.903.0> queue 'r' in vhost '/': leader call - leader \
not known. Command will be forwarded once leader is known.
2026-11-21 13:35:41.412979+00:00 [info] <0.903.0> queue 'r' in vhost '/': detected a new leader \
{'%2F_r',rabbit@n3} in term 1
2026-11-21 13:35:45.831655+00:00 [info] <0.896.0> queue 'q' in vhost '/': detected a new leader \
{'%2F_q',rabbit@n1} in term 1
2026-11-21 13:35:55.316433+00:00 [info] <0.1182.0> queue 'q' in vhost '/': leader saw \
request_vote_rpc from {'%2F_q',rabbit@n2} for term 2 abdicates term: 1!
2026-11-21 13:35:55.437533+00:00 [notice] <0.1182.0> queue 'q' in vhost '/': leader -> follower \
in term: 2 machine version: 2
2026-11-21 13:36:11.907109+00:00 [info] <0.17.0> Successfully stopped RabbitMQ and its dependencies
"""


def plan_of(**flags: Any) -> Plan:
    given = {"queue-type": "quorum", **flags.pop("given", {})}
    request = dataclasses.replace(Request(system="rabbitmq", nemesis="none", given=given), **flags)
    return make_plan(request, backend="docker", seed=1)


def test_workloads_whose_queues_are_not_ours_to_declare_are_refused() -> None:
    for workload in ("queue", "fifo"):
        assert plan_of(workload=workload).system.parameters["queue_type"] == "quorum"
    for workload in ("consume", "lock"):
        with pytest.raises(UsageError, match=f"quorum queues have no workload {workload}"):
            plan_of(workload=workload)
    with pytest.raises(UsageError, match="always durable"):
        plan_of(given={"durable": "false"})


def test_no_window_of_mirrors_is_open() -> None:
    closed = SYSTEMS.find("rabbitmq").closes(plan_of())
    assert set(closed) == {"L1", "L2", "L3", "L4", "L8", "L11", "L12"}
    assert set(SYSTEMS.find("rabbitmq").closes(plan_of(given={"queue-type": "classic"}))) == {"L8"}


def test_a_claim_is_as_the_node_itself_sees_it() -> None:
    roles = [claim_of(node, LISTED, NODES)["role"] for node in ("n1", "n2", "n4")]
    assert roles == ["mirror", "master", "none"]
    claim = claim_of("n1", LISTED, NODES)
    assert (claim["master"], claim["mirrors"]) == ("n2", ["n1", "n3"])
    assert (claim["online"], claim["state"], claim["by_majority"]) == (
        ["n1", "n2"],
        "running",
        True,
    )


@pytest.mark.parametrize("leader", [{}, {"leader": ""}, {"leader": None}])
def test_a_leader_that_nobody_knows_is_none(leader: dict[str, Any]) -> None:
    listed = {key: value for key, value in LISTED.items() if key != "leader"} | leader
    claim = claim_of("n2", listed, NODES)
    assert (claim["master"], claim["role"]) == (None, "mirror")


def test_a_minority_is_not_running() -> None:
    claim = claim_of("n2", {**LISTED, "online": ["rabbit@n2"]}, NODES)
    assert claim["state"] == "minority"


def test_the_log_tells_who_leads_and_in_which_term(tmp_path: Path) -> None:
    path = tmp_path / "rabbit@n1.log"
    path.write_text(LOG)
    told = [(e.group, e.kind, e.role, e.epoch, e.detail) for e in read_log(path)]
    assert told[1:] == [
        ("q", "promoted", "master", 1, {}),
        ("q", "role", "master", 1, {}),
        ("r", "role", "mirror", 1, {"leader": "n3"}),
        ("q", "role", "mirror", 1, {}),
        ("q", "role", "none", 0, {}),
        ("r", "role", "none", 0, {}),
        ("", "role", "stopped", 0, {}),
    ]
