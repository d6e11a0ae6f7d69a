"""Who makes up the groups: our own client, or RocketMQ's C++ client (``--client``)."""

from __future__ import annotations

from functools import partial
from typing import Literal

from shalott.harness.core.client import Client
from shalott.workloads.clients.cpp.member import CppMember
from shalott.workloads.clients.cpp.process import require_library
from shalott.workloads.clients.cpp.sender import CppSender
from shalott.workloads.clients.members.client import MakeMember
from shalott.workloads.clients.members.member import Member
from shalott.workloads.clients.recovering.clients import OWN, refuse_in_simulation
from shalott.workloads.clients.rocketmq import Dial

RocketClientName = Literal["own", "cpp"]
# What the library leaves to the broker: the delay of each retry, and how many there are.
BROKERS_RETRY_LEVEL, BROKERS_MAX_RECONSUME = 0, 16
STUCK_AFTER_MS = 150_000  # a third retry's minute, and the library's intervals


def check_client(name: RocketClientName, backend: str) -> None:
    """Raises UsageError for a client that can't be had there."""
    refuse_in_simulation(name, backend)
    if name != OWN:
        require_library()


def member_maker(name: RocketClientName, body_bytes: int) -> MakeMember:
    return Member if name == OWN else partial(CppMember, body_bytes=body_bytes)


def sending_client(
    name: RocketClientName,
    name_server: str,
    own: Client,
    *,
    dial: Dial,
    body_bytes: int,
    op_timeout_ms: int,
) -> Client:
    """Who sends. ``own`` does everything else."""
    if name == OWN:
        return own
    return CppSender(
        name_server, own, dial=dial, body_bytes=body_bytes, op_timeout_ms=op_timeout_ms
    )
