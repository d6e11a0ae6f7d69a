"""What a run's plan says to the kernels: the rules that the harness's own checkers would have.

Asked of the workload's record, through the door that strangers use; of a plan that this version
can't read, or of a workload that is not installed, only what the plan's text says is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shalott.checkers.consumers.consume_rules import ConsumeRules
from shalott.checkers.groups.group_rules import GroupRules
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.logs.replicated_log import ReplicatedLog
from shalott.checkers.mastership.elections import Elections
from shalott.checkers.mastership.mastership import MS, Mastership
from shalott.checkers.queues.fifo_order import FifoOrder
from shalott.core.errors import UsageError
from shalott.core.plan import Plan, decode_plan
from shalott.spark_analysis.kernels.rules import ObjectRules, Rules
from shalott.spark_analysis.stores.consumer_counts import GROUPS, QUEUES


def rules_of(text: bytes) -> Rules:
    """Of a plan.json."""
    try:
        plan = decode_plan(text, "the plan")
        return _asked(plan)
    except (UsageError, msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return _guessed(msgspec.json.decode(text))


def _asked(plan: Plan) -> Rules:
    from shalott.workloads.consume.workload import consume_rules
    from shalott.workloads.group.parameters import rules_of as group_rules
    from shalott.workloads.record import WORKLOADS

    workload = plan.workload.name
    checkers = WORKLOADS.find(workload).checkers(plan)
    tolerances = [each.tolerance_ms for each in checkers if isinstance(each, Mastership)]
    return Rules(
        consume=consume_rules(plan) if workload == QUEUES else None,
        group=group_rules(plan) if workload == GROUPS else None,
        log=any(isinstance(each, ReplicatedLog) for each in checkers),
        fifo=any(isinstance(each, FifoOrder) for each in checkers),
        elections=workload == GROUPS or any(isinstance(each, Elections) for each in checkers),
        objects=tuple(
            ObjectRules(model=each.model, fs=each.fs, exactly_once=each.exactly_once)
            for each in checkers
            if isinstance(each, Linearizability) and isinstance(each.model, str)
        ),
        tolerance_ns=(tolerances[0] if tolerances else 100) * MS,
    )


def _guessed(plan: Any) -> Rules:
    told = plan.get("workload") if isinstance(plan, Mapping) else None
    name = told.get("name", "") if isinstance(told, Mapping) else ""
    return Rules(
        consume=ConsumeRules(queues=()) if name == QUEUES else None,
        group=GroupRules(groups=(), queues=(), levels_ms=(1000,)) if name == GROUPS else None,
        log=name == "log",
        elections=name in ("log", "elections", GROUPS),
    )
