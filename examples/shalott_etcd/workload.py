"""Registers with compare-and-set, as in Jepsen's etcd tutorial: independent keys, each of which has
a group of clients to itself and a limited number of operations."""

from functools import partial
from typing import Annotated, Literal

import msgspec

import shalott.api as api
from shalott_etcd.client import EtcdClient


class Parameters(msgspec.Struct, frozen=True):
    reads: Literal["quorum", "serializable"] = "quorum"
    ops_per_key: Annotated[int, msgspec.Meta(ge=1)] = 100
    clients_per_key: Annotated[int, msgspec.Meta(ge=1)] = 3


class Registers(msgspec.Struct, frozen=True):
    part: str
    plan: api.Plan
    per_key: Parameters
    done: dict[int, int]  # operations so far, by group of clients

    def next(self, context: api.Context) -> tuple[api.Answer, api.Generator]:
        group = context.process % self.plan.workload.concurrency // self.per_key.clients_per_key
        count = self.done.get(group, 0)
        key = api.stream_key(self.plan.seed, self.part, group)
        kind, pair = divmod(api.draw_below(key, count, 75), 25)
        value = (None, pair % 5, 10 * (pair // 5) + pair % 5)[kind]  # a cas: from, to
        name = f"{self.part}.{group}.{count // self.per_key.ops_per_key}"
        successor = msgspec.structs.replace(self, done={**self.done, group: count + 1})
        wanted = api.Invocation(f=("read", "write", "cas")[kind], key=name, value=value)
        return api.Scheduled(context.now_ns, wanted), successor

    def update(self, event: api.Completed) -> api.Generator:
        return self


def workload(plan: api.Plan) -> api.Workload:
    per_key = api.make_parameters(Parameters, plan.workload.parameters)

    def paced(part: str, limit_ms: int) -> api.Generator:
        pauses = api.stream_key(plan.seed, part, "stagger")
        mix = api.Stagger(Registers(part, plan, per_key, {}), 1e9 / plan.workload.rate_hz, pauses)
        return api.TimeLimit(mix, limit_ms * 1_000_000)

    stale = per_key.reads == "serializable"
    return api.Workload(
        name="register",
        queues=(),
        port="client",
        make_client=partial(EtcdClient, timeout_ms=plan.workload.op_timeout_ms, serializable=stale),
        generator=paced("load", plan.time_limit_ms),
        final_generator=paced("afterwards", 2000),
    )


JUDGE = api.Linearizability(
    model="shalott_etcd.model:PackedCasRegister", fs=("read", "write", "cas")
)
WORKLOAD = api.WorkloadRecord(
    name="register",
    summary="independent registers with compare-and-set, linearizable if reads are",
    needs=("etcd-v3",),
    parameters=Parameters,
    build=workload,
    checkers=lambda plan: (JUDGE,),
    reads=("read",),
)
