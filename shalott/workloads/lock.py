"""The lock workload: mutual exclusion by what one client at a time may have.

By AMQP each lock is a durable mirrored queue with one message (clients/amqp/lock_client.py says how
it is acquired and released); a system that has locks of another kind says how (``Locks``,
cluster/systems/record.py). It is the classic test of RabbitMQ as a lock service, and the broker is
expected to fail it: mirrors that lose sight of the master give the message out again while its
holder goes on, and no fencing token tells a resource which of two holders came later. What is to
be seen is that the harness finds the two holders, and says how it came to them.

Attempts to acquire come at a rate that all processes share. A process that gets a lock holds it for
a drawn time and releases it then, or as soon as its client notices that the lock is lost. When the
time is over every holder releases at once, so nothing is held when the generator ends.

After the heal every lock is acquired and released for a while once more: a lock that no process
gets has lost its message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.queues.locks import Locks as LocksInUse
from shalott.clients.amqp.channel import guest_of
from shalott.clients.amqp.lock_client import AmqpLockClient
from shalott.cluster.systems.record import LOCKS, SYSTEMS, Locks, serving_nodes
from shalott.core.client import Client
from shalott.core.errors import UsageError
from shalott.core.generator import (
    MAX_LAG_NS,
    Answer,
    Completed,
    Context,
    Generator,
    Pending,
    Scheduled,
)
from shalott.core.op import Invocation
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.core.rng import Draw, draw_below, draw_float, stream_key
from shalott.workloads.queue import AMQP, Count, one_a_node, queue_names
from shalott.workloads.record import Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import run_checkers

AFTERWARDS_MS = 3_000


class LockParameters(msgspec.Struct, frozen=True, kw_only=True):
    queues: Count = 0  # locks
    hold_ms: Annotated[int, msgspec.Meta(ge=1, description="Held so long, on average.")] = 200


def parameters_of(plan: Plan) -> LockParameters:
    return make_parameters(LockParameters, plan.workload.parameters)


def lock_generator(plan: Plan, part: str, limit_ms: int) -> Generator:
    parameters = parameters_of(plan)
    return lock_mix(
        queue_names(parameters.queues, plan),
        rate_hz=plan.workload.rate_hz,
        hold_ms=parameters.hold_ms,
        limit_ms=limit_ms,
        seed=plan.seed,
        part=part,
    )


def locks_of(plan: Plan) -> Locks | None:
    """How the plan's system has locks; None: by AMQP. Raises UsageError: not under this plan."""
    name = plan.system.name
    record = SYSTEMS.find(name) if SYSTEMS.has(name) else None
    if record is None or LOCKS not in record.speaks:
        return None
    found = record.locks(plan)
    if found is None:
        raise UsageError(f"{name} has no locks as it is set here")
    return found


def lock_workload(plan: Plan) -> Workload:
    ways, locks = locks_of(plan), queue_names(parameters_of(plan).queues, plan)
    load = lock_generator(plan, "load", plan.time_limit_ms)
    if ways is not None:
        timeout_ms = plan.workload.op_timeout_ms

        def make_client(host: str, port: int) -> Client:
            return ways.make_client(host, port, timeout_ms=timeout_ms)

        return Workload(
            name="lock",
            queues=(),
            port=ways.port,
            make_client=make_client,
            generator=load,
            final_generator=lock_generator(plan, "afterwards", AFTERWARDS_MS + ways.gone_after_ms),
            nodes=serving_nodes(plan),
        )
    return Workload(
        name="lock",
        queues=locks,
        port="amqp",
        make_client=partial(
            AmqpLockClient, op_timeout_ms=plan.workload.op_timeout_ms, credentials=guest_of(plan)
        ),
        generator=load,
        final_generator=lock_generator(plan, "afterwards", AFTERWARDS_MS),
        setup=tuple(Invocation(f="create", key=lock) for lock in locks),
    )


def lock_checkers(plan: Plan) -> Sequence[Checker]:
    """Two holders at once, too few of them, lost locks. A lock acquired is two operations."""
    mutex = Linearizability(
        model="owner-lock",
        fs=("acquire", "release"),
        kinds={"overlap": "two-holders", "held": "two-holders"},
    )
    return (mutex, LocksInUse(min_acquired=plan.gates.min_acked // 2), *run_checkers(plan))


def draw_parameters(draw: Draw) -> Values:
    return {"queues": draw.knob("queues", (1, 1, 2, 3)), "hold_ms": draw.knob("hold_ms", (200,))}


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return f"{parameters.queues} locks, each held for {parameters.hold_ms:,} ms on average"


WORKLOAD = WorkloadRecord(
    name="lock",
    summary="mutual exclusion by what one client at a time may have: a message, or a lease",
    needs=(AMQP,),
    or_needs=(LOCKS,),
    fails_over=(AMQP,),
    parameters=LockParameters,
    complete=one_a_node,
    build=lock_workload,
    checkers=lock_checkers,
    draw=draw_parameters,
    describe=describe,
    lower=("queues",),
)


class Hold(msgspec.Struct, frozen=True):
    """A lock that a process holds, and until when it means to."""

    key: str
    until_ns: int


class LockMix(msgspec.Struct, frozen=True):
    """A process holds one lock at most. Holds and gaps are uniform in [0, 2 mean)."""

    keys: tuple[str, ...]
    gap_ns: float  # mean, between attempts of all processes
    hold_ns: float  # mean
    limit_ns: int
    which_key: int
    gap_key: int
    hold_key: int
    count: int = 0
    due_ns: int | None = None
    end_ns: int | None = None
    acquired: int = 0
    holds: Mapping[int, Hold] = {}  # by process

    def next(self, context: Context) -> tuple[Answer, Generator]:
        now_ns = context.now_ns
        end_ns = now_ns + self.limit_ns if self.end_ns is None else self.end_ns
        hold = self.holds.get(context.process)
        if hold is not None:
            release = Invocation(f="release", key=hold.key)
            return Scheduled(min(hold.until_ns, end_ns), release, when_lost=True), self
        if now_ns >= end_ns:
            return None, self
        wanted_ns = now_ns if self.due_ns is None else self.due_ns
        due_ns = max(wanted_ns, now_ns - MAX_LAG_NS)
        if due_ns >= end_ns:
            return Pending(end_ns), msgspec.structs.replace(self, end_ns=end_ns)
        key = self.keys[draw_below(self.which_key, self.count, len(self.keys))]
        gap_ns = int(draw_float(self.gap_key, self.count) * 2 * self.gap_ns)
        successor = msgspec.structs.replace(
            self, count=self.count + 1, due_ns=due_ns + gap_ns, end_ns=end_ns
        )
        wanted = Invocation(f="acquire", key=key)
        return Scheduled(due_ns, wanted, due_ns=wanted_ns), successor

    def update(self, event: Completed) -> Generator:
        if event.invocation.f == "acquire" and event.kind == "ok":
            drawn_ns = int(draw_float(self.hold_key, self.acquired) * 2 * self.hold_ns)
            hold = Hold(event.invocation.key, event.now_ns + drawn_ns)
            holds = {**self.holds, event.process: hold}
            return msgspec.structs.replace(self, holds=holds, acquired=self.acquired + 1)
        if event.invocation.f == "release":
            holds = {who: held for who, held in self.holds.items() if who != event.process}
            return msgspec.structs.replace(self, holds=holds)
        return self


def lock_mix(
    keys: Sequence[str], *, rate_hz: float, hold_ms: float, limit_ms: int, seed: int, part: str
) -> LockMix:
    """``part`` tells the draws of one mix of a run from those of another."""
    return LockMix(
        keys=tuple(keys),
        gap_ns=1e9 / rate_hz,
        hold_ns=hold_ms * 1e6,
        limit_ns=limit_ms * 1_000_000,
        which_key=stream_key(seed, "lock", part, "key"),
        gap_key=stream_key(seed, "lock", part, "gap"),
        hold_key=stream_key(seed, "lock", part, "hold"),
    )
