"""The log and elections workloads: what they are made of, and what judges them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.checkers.logs.log_order import FreshReads
from shalott.checkers.logs.replicated_log import ReplicatedLog
from shalott.checkers.mastership.elections import Elections
from shalott.checkers.mastership.invariants import (
    AckedOnMembers,
    MasterFromSet,
    MasterHasAcked,
    OneMasterAnEpoch,
)
from shalott.checkers.mastership.mastership import Mastership
from shalott.clients.rocketmq.log_client import LogClient
from shalott.clients.rocketmq.transactions import Book
from shalott.cluster.systems.rocket.drawing import SAFE_SETTINGS
from shalott.core.generator import Completed, Context, Pending, Scheduled
from shalott.core.log_generator import ReadAll
from shalott.core.plan import Plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.workloads.log import (
    dial,
    elections_workload,
    log_workload,
    make_log_client,
    queue_keys,
    reading_generator,
)
from shalott.workloads.record import WORKLOADS

LOG_SYSTEMS = ("master-slave", "dledger", "controller")
pytestmark = pytest.mark.unit


def plan_of(workload: str = "", **policy: Any) -> Plan:
    request = Request(system="controller", workload=workload, given={"queues": "2"})
    plan = make_plan(request, backend="sim", seed=5)
    system = msgspec.structs.replace(plan.system, policy={**plan.system.policy, **policy})
    return msgspec.structs.replace(plan, system=system)


def test_keys_are_a_topic_and_the_numbers_of_its_queues() -> None:
    assert queue_keys(3) == ("log/0", "log/1", "log/2")
    assert log_workload(plan_of()).queues == queue_keys(2)


def test_the_log_is_read_at_every_node_at_the_end() -> None:
    final = log_workload(plan_of()).final_generator
    answer, _ = final.next(Context(0, 0, "n2"))
    assert isinstance(answer, Scheduled)
    assert (answer.invocation.f, answer.invocation.value) == ("poll", 0)
    inner = getattr(final, "inner", None)
    assert isinstance(inner, ReadAll)
    assert inner.open == tuple((n, key) for n in ("n1", "n2", "n3") for key in queue_keys(2))


def test_transactions_are_waited_for_before_the_log_is_read() -> None:
    plan = plan_of()
    parameters = {**plan.workload.parameters, "java_transactions": 0.5}
    workload = msgspec.structs.replace(plan.workload, parameters=parameters)
    final = log_workload(msgspec.structs.replace(plan, workload=workload)).final_generator
    answer, final = final.next(Context(0, 0, "n2"))
    assert isinstance(answer, Scheduled) and answer.invocation.f == "settle"
    assert isinstance(final.next(Context(0, 1, "n1"))[0], Pending)
    final = final.update(Completed(9, 0, "n2", answer.invocation, "ok", None))
    answer, _ = final.next(Context(10, 0, "n2"))
    assert isinstance(answer, Scheduled) and answer.invocation.f == "poll"


@pytest.mark.parametrize("used", [False, True])
def test_an_added_queue_is_read_if_a_message_in_it_was_acknowledged(used: bool) -> None:
    book = Book(used={"log/2": None} if used else {})
    inner = getattr(reading_generator(plan_of(), ["n1"], book), "inner", None)
    assert isinstance(inner, ReadAll)
    assert [key for _, key in inner.open] == list(queue_keys(3 if used else 2))


def test_a_node_that_left_for_good_is_not_read() -> None:
    workload = log_workload(plan_of())
    assert workload.final_without((), workload.nodes) is workload.final_generator
    left = getattr(workload.final_without(("n2",), workload.nodes), "inner", None)
    assert isinstance(left, ReadAll)
    assert left.open == tuple((n, key) for n in ("n1", "n3") for key in queue_keys(2))


def test_elections_end_with_a_few_polls() -> None:
    plan, count = plan_of("elections"), 0
    final = elections_workload(plan).final_generator
    while True:
        answer, final = final.next(Context(count, 0, "n1"))
        if answer is None:
            break
        assert isinstance(answer, Scheduled) and answer.invocation.f == "poll"
        count += 1
    assert count == 2 * plan.workload.concurrency


def test_clients_are_told_both_ports_of_their_node() -> None:
    workload = log_workload(plan_of())
    assert workload.several is not None
    assert workload.several.names == ("nameserver", "remoting")
    client = workload.several.make_client({"nameserver": ("n2", 9876), "remoting": ("n2", 10911)})
    assert isinstance(client, LogClient)
    assert isinstance(make_log_client(plan_of(), {"nameserver": ("h", 1), "remoting": ("h", 2)}),
                      LogClient)  # fmt: skip


def test_an_advertised_address_is_dialled_as_it_is() -> None:
    assert dial("10.0.0.3:10911") == ("10.0.0.3", 10911)


def test_a_log_is_judged_by_its_messages_and_its_masters() -> None:
    kinds = [type(checker) for checker in WORKLOADS.find("log").checkers(plan_of())]
    invariants = [AckedOnMembers, MasterFromSet, MasterHasAcked, OneMasterAnEpoch]
    assert kinds[:7] == [ReplicatedLog, Elections, *invariants, Mastership]
    kinds = [
        type(checker) for checker in WORKLOADS.find("elections").checkers(plan_of("elections"))
    ]
    assert ReplicatedLog not in kinds and kinds[0] is Elections


@pytest.mark.parametrize("system", ["dledger", "controller"])
@pytest.mark.parametrize("read_index", [True, False])
def test_stale_reads_are_looked_for_where_the_system_promises_none(
    system: str, read_index: bool
) -> None:
    plan = plan_of()
    policy = {"raft.read_index": read_index}
    chosen = msgspec.structs.replace(plan.system, name=system, policy=policy)
    checkers = WORKLOADS.find("log").checkers(msgspec.structs.replace(plan, system=chosen))
    promised = system == "dledger" and read_index
    assert any(isinstance(checker, FreshReads) for checker in checkers) is promised


@pytest.mark.parametrize("allowed", [True, False])
def test_unclean_elections_are_judged_as_the_plan_allows(allowed: bool) -> None:
    policy: dict[str, Any] = {"controller.enable_elect_unclean_master": allowed}
    plan = plan_of(**SAFE_SETTINGS["controller"], **policy)
    (judge,) = [c for c in WORKLOADS.find("log").checkers(plan) if isinstance(c, MasterFromSet)]
    assert judge.unclean is allowed
    (has_acked,) = [
        c for c in WORKLOADS.find("log").checkers(plan) if isinstance(c, MasterHasAcked)
    ]
    assert has_acked.promised is not allowed


@pytest.mark.parametrize("system", LOG_SYSTEMS)
@pytest.mark.parametrize(
    ("profile", "promised"), [("safe", True), ("upstream", False)], ids=["safe", "upstream"]
)
def test_what_is_acknowledged_is_kept_where_the_settings_promise_it(
    system: str, profile: str, promised: bool
) -> None:
    plan = make_plan(Request(system=system, profile=profile, nodes="5"), backend="sim", seed=5)
    checkers = WORKLOADS.find("elections").checkers(plan)
    (copies,) = [c for c in checkers if isinstance(c, AckedOnMembers)]
    (has_acked,) = [c for c in checkers if isinstance(c, MasterHasAcked)]
    assert (copies.promised, has_acked.promised) == (promised, promised)
    wanted = {"controller": 1, "dledger": 3, "master-slave": 2 if promised else 1}
    assert (copies.by_set, copies.nodes) == (system == "controller", 5)
    assert copies.copies == wanted[system]
    assert any(isinstance(c, MasterFromSet) for c in checkers) is (system == "controller")


@pytest.mark.parametrize(
    "policy",
    [{"store.flush": "async"}, {"ha.all_ack_in_sync_state_set": False}],
    ids=["unflushed", "some"],
)
def test_a_setting_less_and_nothing_is_promised(policy: dict[str, Any]) -> None:
    plan = plan_of(**{**SAFE_SETTINGS["controller"], **policy})
    (judge,) = [c for c in WORKLOADS.find("log").checkers(plan) if isinstance(c, AckedOnMembers)]
    assert judge.promised is False
