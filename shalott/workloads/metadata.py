"""The metadata workload: policies and queues set, cleared and read through different nodes.

Each object is a register (clients/management.py). What our broker promises of it depends
on the partition mode and on who is asked:

- Under pause_minority both are linearizable, as far as reads are confirmed by the tables' leader
  (``reads`` = leader).
- Local reads are stale on a node that the others have left behind, for as long as it is cut off:
  not linearizable under partitions, and RabbitMQ's are no better.
- Under ignore and autoheal both sides of a partition write: nothing is linearizable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.clients.management import POLICY, QUEUE, ManagementClient
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import UsageError
from shalott.core.generator import (
    Answer,
    Completed,
    Context,
    Generator,
    Scheduled,
    Stagger,
    TimeLimit,
)
from shalott.core.op import Invocation
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.core.rng import Draw, Range, draw_below, draw_float, stream_key
from shalott.workloads.queue import Count, Share, one_a_node, queue_names
from shalott.workloads.record import Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import run_checkers

MANAGEMENT = "rabbitmq-management"
LEADER_READS = "shalott-leader-reads"  # reads that the leader of the tables confirms

AFTERWARDS_MS = 2_000
DELETE_FRACTION = 0.15  # of the writes to a policy
AFTERWARDS_VALUES = 1_000_000_000  # from here on: the load does not come so far


class MetadataParameters(msgspec.Struct, frozen=True, kw_only=True):
    queues: Count = 0  # objects of each kind
    enqueue_fraction: Share = 0.6  # writes
    reads: Annotated[
        Literal["leader", "local"], msgspec.Meta(description="Confirmed by the leader, or local.")
    ] = "leader"
    objects: Annotated[
        tuple[Literal["policy", "queue"], ...],
        msgspec.Meta(min_length=1, description="Kinds of object: policy, queue or both."),
    ] = ("policy", "queue")


def parameters_of(plan: Plan) -> MetadataParameters:
    return make_parameters(MetadataParameters, plan.workload.parameters)


def object_keys(plan: Plan, *kinds: str) -> tuple[str, ...]:
    """policy/meta.1, ..., of the kinds that the plan has."""
    parameters = parameters_of(plan)
    numbers = range(1, parameters.queues + 1)
    wanted = [kind for kind in parameters.objects if kind in kinds or not kinds]
    return tuple(f"{kind}/meta.{number}" for kind in wanted for number in numbers)


def register_generator(plan: Plan, part: str, limit_ms: int, first_value: int) -> Generator:
    workload = plan.workload
    mix = register_mix(
        object_keys(plan),
        object_keys(plan, QUEUE),
        write_fraction=parameters_of(plan).enqueue_fraction,
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
    return Workload(
        name="metadata",
        queues=queue_names(1, plan),
        port="management",
        make_client=partial(
            ManagementClient,
            op_timeout_ms=plan.workload.op_timeout_ms,
            leader_reads=parameters_of(plan).reads == "leader",
        ),
        generator=register_generator(plan, "load", plan.time_limit_ms, 1),
        final_generator=register_generator(plan, "afterwards", AFTERWARDS_MS, AFTERWARDS_VALUES),
    )


def metadata_checkers(plan: Plan) -> Sequence[Checker]:
    """Objects as linearizable registers."""
    return (Linearizability(model="register", fs=("read", "write")), *run_checkers(plan))


def check(plan: Plan) -> None:
    """Reads that a leader confirms are not to be had everywhere. Raises UsageError."""
    confirmed = LEADER_READS in SYSTEMS.find(plan.system.name).speaks
    if parameters_of(plan).reads == "leader" and not confirmed:
        raise UsageError(
            f"{plan.system.name} has no reads that the leader of its metadata confirms:"
            " use --reads local"
        )


def draw_parameters(draw: Draw) -> Values:
    return {
        "queues": draw.knob("queues", (1, 1, 2, 3)),
        "enqueue_fraction": draw.knob("enqueue_fraction", Range(0.5, 0.8, 0.05)),
        "reads": draw.knob("reads", ("leader",)),
        "objects": draw.knob("objects", ((POLICY, QUEUE),)),
    }


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return (
        f"{parameters.queues} of each kind: {', '.join(parameters.objects)},"
        f" {parameters.enqueue_fraction:.0%} writes, {parameters.reads} reads"
    )


WORKLOAD = WorkloadRecord(
    name="metadata",
    summary="policies and queues set, cleared and read through different nodes",
    needs=(MANAGEMENT,),
    parameters=MetadataParameters,
    complete=one_a_node,
    build=metadata_workload,
    checkers=metadata_checkers,
    check=check,
    draw=draw_parameters,
    search={"outages": 0.0},  # queues come and go
    describe=describe,
    lower=("queues",),
    calm={"enqueue_fraction": 1.0},
)


FLAG_VALUE = 1


class RegisterMix(msgspec.Struct, frozen=True):
    """For ever. A write of nothing deletes; every other value is written once in a run, except to
    the keys of ``flags``, which know FLAG_VALUE only.
    """

    keys: tuple[str, ...]
    flags: tuple[str, ...]
    write_fraction: float
    delete_fraction: float  # of the writes to a key that is no flag; of those to a flag, half
    which_key: int
    mix_key: int
    delete_key: int
    count: int = 0
    first_value: int = 1

    def next(self, context: Context) -> tuple[Answer, Generator]:
        count = self.count
        key = self.keys[draw_below(self.which_key, count, len(self.keys))]
        successor = msgspec.structs.replace(self, count=count + 1)
        return Scheduled(context.now_ns, self._invocation(key, count)), successor

    def _invocation(self, key: str, count: int) -> Invocation:
        if draw_float(self.mix_key, count) >= self.write_fraction:
            return Invocation(f="read", key=key)
        is_flag = key in self.flags
        if draw_float(self.delete_key, count) < (0.5 if is_flag else self.delete_fraction):
            return Invocation(f="write", key=key)
        value = FLAG_VALUE if is_flag else self.first_value + count
        return Invocation(f="write", key=key, value=value)

    def update(self, event: Completed) -> Generator:
        return self


def register_mix(
    keys: Sequence[str],
    flags: Sequence[str],
    *,
    write_fraction: float,
    delete_fraction: float,
    seed: int,
    part: str,
    first_value: int = 1,
) -> RegisterMix:
    """``part`` tells the draws of one mix of a run from those of another."""
    return RegisterMix(
        keys=tuple(keys),
        flags=tuple(flags),
        write_fraction=write_fraction,
        delete_fraction=delete_fraction,
        which_key=stream_key(seed, "register", part, "key"),
        mix_key=stream_key(seed, "register", part, "mix"),
        delete_key=stream_key(seed, "register", part, "delete"),
        first_value=first_value,
    )
