"""The metadata workload: policies and queues set, cleared and read through different nodes.

Each object is a register (workloads/clients/management.py). What our broker promises of it depends
on the partition mode and on who is asked:

- Under pause_minority both are linearizable, as far as reads are confirmed by the tables' leader
  (``reads`` = leader).
- Local reads are stale on a node that the others have left behind, for as long as it is cut off:
  not linearizable under partitions, and RabbitMQ's are no better.
- Under ignore and autoheal both sides of a partition write: nothing is linearizable.
"""

from __future__ import annotations

from functools import partial

from shalott.harness.core.generator.base import Generator
from shalott.harness.core.generator.combinators import Stagger, TimeLimit
from shalott.harness.core.generator.registers import register_mix
from shalott.harness.core.plan import Plan
from shalott.harness.core.rng import stream_key
from shalott.workloads.base import Workload
from shalott.workloads.clients.management import QUEUE, ManagementClient
from shalott.workloads.queue import queue_names

AFTERWARDS_MS = 2_000
DELETE_FRACTION = 0.15  # of the writes to a policy
AFTERWARDS_VALUES = 1_000_000_000  # from here on: the load does not come so far


def object_keys(plan: Plan, *kinds: str) -> tuple[str, ...]:
    """policy/meta.1, ..., of the kinds that the plan has."""
    numbers = range(1, plan.workload.queues + 1)
    wanted = [kind for kind in plan.workload.objects if kind in kinds or not kinds]
    return tuple(f"{kind}/meta.{number}" for kind in wanted for number in numbers)


def register_generator(plan: Plan, part: str, limit_ms: int, first_value: int) -> Generator:
    workload = plan.workload
    mix = register_mix(
        object_keys(plan),
        object_keys(plan, QUEUE),
        write_fraction=workload.enqueue_fraction,
        delete_fraction=DELETE_FRACTION,
        seed=plan.seed,
        part=part,
        first_value=first_value,
    )
    paced = Stagger(mix, 1e9 / workload.rate_hz, stream_key(plan.seed, "register", part, "stagger"))
    return TimeLimit(paced, limit_ms * 1_000_000)


def metadata_workload(plan: Plan) -> Workload:
    """Everything a run needs to know about this workload.

    One ordinary queue is declared besides, so that there are a master and mirrors to break.
    """
    workload = plan.workload
    return Workload(
        name="metadata",
        queues=queue_names(1),
        port="management",
        make_client=partial(
            ManagementClient,
            op_timeout_ms=workload.op_timeout_ms,
            leader_reads=workload.reads == "leader",
        ),
        generator=register_generator(plan, "load", plan.time_limit_ms, 1),
        final_generator=register_generator(plan, "afterwards", AFTERWARDS_MS, AFTERWARDS_VALUES),
    )
