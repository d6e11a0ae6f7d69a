"""Every workload by its name: how it is built from a plan, and what judges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shalott.checkers.base import Checker
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.logs.anomalies import ReplicatedLog
from shalott.checkers.logs.freshness import FreshReads
from shalott.checkers.mastership.elections.regressions import Elections
from shalott.checkers.queues.fifo_order import FifoOrder
from shalott.checkers.queues.locks import Locks
from shalott.checkers.runs.convergence import Convergence
from shalott.checkers.runs.standard import common_checkers, standard_checkers
from shalott.harness.core.errors import UsageError
from shalott.harness.core.plan import Plan
from shalott.workloads.base import Workload
from shalott.workloads.fifo import fifo_workload
from shalott.workloads.lock import lock_workload
from shalott.workloads.log import elections_workload, log_workload
from shalott.workloads.log_promises import invariant_checkers
from shalott.workloads.metadata import metadata_workload
from shalott.workloads.queue import client_habits, queue_workload


@dataclass(frozen=True, slots=True)
class Recipe:
    """One workload: both parts are functions of the plan, so a stored run can be judged again."""

    build: Callable[[Plan], Workload]
    checkers: Callable[[Plan], Sequence[Checker]]


def queue_checkers(plan: Plan) -> Sequence[Checker]:
    """The queue workload's judges, as the plan's gates configure them."""
    return standard_checkers(
        delivery=plan.gates.delivery,
        min_acked=plan.gates.min_acked,
        max_rto_ms=plan.gates.max_rto_ms,
        poll_round_ms=plan.observe_interval_ms,
        habits=client_habits(plan.workload),
        strict=plan.gates.one_master,
        must_settle=plan.gates.must_settle,
        must_not_crash=plan.gates.must_not_crash,
        crash_text=plan.gates.crash_text,
        must_converge=plan.gates.must_converge,
    )


def _other_checkers(plan: Plan) -> Sequence[Checker]:
    """The judges that do not ask what became of messages."""
    return common_checkers(
        min_acked=plan.gates.min_acked,
        max_rto_ms=plan.gates.max_rto_ms,
        poll_round_ms=plan.observe_interval_ms,
        strict=plan.gates.one_master,
        must_settle=plan.gates.must_settle,
        must_not_crash=plan.gates.must_not_crash,
        crash_text=plan.gates.crash_text,
        must_converge=plan.gates.must_converge,
    )


def lock_checkers(plan: Plan) -> Sequence[Checker]:
    """Two holders at once, too few of them, lost locks. A lock acquired is two operations."""
    mutex = Linearizability(
        model="owner-lock",
        fs=("acquire", "release"),
        kinds={"overlap": "two-holders", "held": "two-holders"},
    )
    return (mutex, Locks(min_acquired=plan.gates.min_acked // 2), *_other_checkers(plan))


def fifo_checkers(plan: Plan) -> Sequence[Checker]:
    """The queue workload's, and the order."""
    queue = Linearizability(model="fifo-queue", fs=("enqueue", "dequeue"), exactly_once=True)
    wanted = (queue,) if plan.workload.order == "exactly-once" else ()
    return (FifoOrder(), *wanted, *queue_checkers(plan))


def metadata_checkers(plan: Plan) -> Sequence[Checker]:
    """Objects as linearizable registers."""
    return (Linearizability(model="register", fs=("read", "write")), *_other_checkers(plan))


def log_checkers(plan: Plan) -> Sequence[Checker]:
    """A replicated log's messages, and who was its master."""
    system = plan.system
    linearizable = system.name == "dledger" and bool(system.policy.get("raft.read_index"))
    reads = (FreshReads(),) if linearizable else ()
    equal = () if plan.gates.must_converge else (Convergence(),)  # with the gate it is there
    return (ReplicatedLog(), *elections_checkers(plan), *equal, *reads)


def elections_checkers(plan: Plan) -> Sequence[Checker]:
    """Who was a replicated log's master, and what that took and kept."""
    return (Elections(), *invariant_checkers(plan), *_other_checkers(plan))


WORKLOADS: Mapping[str, Recipe] = {
    "queue": Recipe(build=queue_workload, checkers=queue_checkers),
    "lock": Recipe(build=lock_workload, checkers=lock_checkers),
    "fifo": Recipe(build=fifo_workload, checkers=fifo_checkers),
    "metadata": Recipe(build=metadata_workload, checkers=metadata_checkers),
    "log": Recipe(build=log_workload, checkers=log_checkers),
    "elections": Recipe(build=elections_workload, checkers=elections_checkers),
}


def recipe_of(name: str) -> Recipe:
    """Raises UsageError, naming the known ones."""
    if name not in WORKLOADS:
        raise UsageError(f"unknown workload {name}: choose one of {', '.join(sorted(WORKLOADS))}")
    return WORKLOADS[name]
