"""toy-register: registers for trying workloads and faults where etcd itself can't run, which is in
the simulation and in plain processes.

One node keeps everything (toy_node.py), so a register is linearizable, until a read is
``serializable`` or the profile ``upstream`` makes every read so: those come from a copy.
"""

from __future__ import annotations

import msgspec

from shalott.api import Plan, Profile, Registers, SystemRecord, make_parameters
from shalott_registers.client import EtcdClient, read_request
from shalott_registers.toy_node import Node, NodeConfig
from shalott_toys.system import WORLDS, ToySystem, program_of, search_of


class ToyParameters(msgspec.Struct, frozen=True):
    stale_reads: bool = False


def make(plan: Plan) -> ToySystem:
    own = {"stale_reads": make_parameters(ToyParameters, plan.system.parameters).stale_reads}
    ready = ("/v3/kv/range", read_request("ready", serializable=False))
    return ToySystem("toy-register", 2379, "shalott_registers.toy_node", ready, own)


PROFILES = {"upstream": Profile(parameters={"stale_reads": True}), "safe": Profile()}
SYSTEM = SystemRecord(
    name="toy-register",
    summary="one node keeps registers, the others copy them: to try workloads without containers",
    make=make,
    speaks=("registers",),
    registers=lambda plan: Registers(port="client", make_client=EtcdClient),
    workload="register",
    profiles=PROFILES,
    parameters=ToyParameters,
    worlds=WORLDS,
    program=program_of(NodeConfig, Node),
    stays_up=True,
    search=search_of(PROFILES),
)
