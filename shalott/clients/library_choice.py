"""Which client a process of the workloads for RocketMQ's systems is: our own, or one of upstream's
(``--client``). ``mixed``: every second one is a Java client."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import msgspec

from shalott.clients.cpp.member import CppMember
from shalott.clients.cpp.process import require_library
from shalott.clients.cpp.sender import CppSender
from shalott.clients.java.build import java_client
from shalott.clients.java.client import JavaLogClient, Settings
from shalott.clients.java.machine import JavaMachine
from shalott.clients.java.member import JavaMember
from shalott.clients.rocketmq.consumption import MemberSettings, Membership
from shalott.clients.rocketmq.group_client import GroupMember, MakeMember
from shalott.clients.rocketmq.member import Member
from shalott.clients.rocketmq.rocket_client import Dial
from shalott.clients.rocketmq.transactions import Transactions
from shalott.core.client import OWN, Client, refuse_in_simulation
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.core.rng import stream_key

log = logging.getLogger("shalott.clients")

LogClientName = Literal["own", "java", "mixed"]
GroupClientName = Literal["own", "cpp", "java", "mixed"]
CPP, JAVA, MIXED = "cpp", "java", "mixed"
JAVAS = (JAVA, MIXED)
TRANSACTED = ("log",)  # workloads
# What the C++ library leaves to the broker: the delay of each retry, and how many there are.
BROKERS_RETRY_LEVEL, BROKERS_MAX_RECONSUME = 0, 16
STUCK_AFTER_MS = 150_000  # a third retry's minute, and the library's intervals

WrapSender = Callable[[str, Client], Client]


class JavaParameters(msgspec.Struct, frozen=True, kw_only=True):
    """How users of the Java client set it."""

    java_version: Annotated[
        str, msgspec.Meta(description="Release of the Java client: the system's, or a pinned one.")
    ] = ""
    java_retries: Annotated[
        int, msgspec.Meta(ge=0, le=16, description="Java: retryTimesWhenSendFailed.")
    ] = 2
    java_again: Annotated[
        bool, msgspec.Meta(description="Java: retryAnotherBrokerWhenNotStoreOK.")
    ] = False
    java_timeout_ms: Annotated[
        int, msgspec.Meta(ge=100, description="Java: sendMsgTimeout, of all attempts of a send.")
    ] = 3000
    java_transactions: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Java: share of sends that are transactions.")
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryClients:
    """The clients of one run. ``sender`` wraps our own client of a name server into who sends (and,
    in the workload log, polls); ``member`` makes a member of a group."""

    sender: WrapSender
    member: MakeMember


def check_client(name: str, parameters: JavaParameters, plan: Plan) -> None:
    """Raises UsageError for a client that can't be had there."""
    refuse_in_simulation(name, plan.cluster.backend)
    if parameters.java_transactions:
        _check_transactions(name, plan)
    if name == CPP:
        require_library()
    elif name != OWN:
        longest_ms = plan.workload.op_timeout_ms
        if parameters.java_timeout_ms >= longest_ms:
            raise UsageError(
                f"--java-timeout {parameters.java_timeout_ms}ms: an operation takes"
                f" {longest_ms} ms at most (--op-timeout), and the library must be done before"
            )
        java_client(java_version(parameters, plan), _tell)


def _check_transactions(name: str, plan: Plan) -> None:
    if name not in JAVAS:
        raise UsageError(f"--java-transactions: of --client {' or '.join(JAVAS)}, not of {name}")
    if plan.workload.name not in TRANSACTED:
        name = plan.workload.name
        raise UsageError(f"--java-transactions: the workload {name} does not judge transactions")


def java_version(parameters: JavaParameters, plan: Plan) -> str:
    """The plan's, or that of the original under test; "" for the pinned one."""
    return parameters.java_version or str(plan.system.parameters.get("version", ""))


def library_clients(
    name: str,
    parameters: JavaParameters,
    plan: Plan,
    *,
    dial: Dial,
    body_bytes: int,
    members: MemberSettings,
) -> LibraryClients:
    """Those that ``name`` says."""
    timeout_ms = plan.workload.op_timeout_ms
    if name == OWN:
        return LibraryClients(sender=lambda name_server, own: own, member=Member)
    if name == CPP:
        return LibraryClients(
            sender=lambda name_server, own: CppSender(
                name_server, own, dial=dial, body_bytes=body_bytes, op_timeout_ms=timeout_ms
            ),
            member=partial(CppMember, body_bytes=body_bytes),
        )
    found = partial(java_client, java_version(parameters, plan))
    machine = JavaMachine(found, _properties(members))
    settings = Settings(
        timeout_ms=parameters.java_timeout_ms,
        retries=parameters.java_retries,
        again=parameters.java_again,
        transactions=Transactions(
            parameters.java_transactions, stream_key(plan.seed, "log", "transactions")
        ),
        heartbeat_ms=members.heartbeat_ms,
        route_poll_ms=members.route_poll_ms,
    )

    def java_sender(name_server: str, own: Client) -> Client:
        return JavaLogClient(
            name_server,
            own,
            machine=machine,
            dial=dial,
            settings=settings,
            body_bytes=body_bytes,
            op_timeout_ms=timeout_ms,
        )

    java_member = partial(JavaMember, machine=machine)
    if name != MIXED:
        return LibraryClients(sender=java_sender, member=java_member)
    senders = itertools.count()

    def some_sender(name_server: str, own: Client) -> Client:
        return own if next(senders) % 2 else java_sender(name_server, own)

    return LibraryClients(sender=some_sender, member=_InTurns((java_member, Member)))


class _InTurns:
    """Members of a group are made by one after the other of these."""

    def __init__(self, makers: Sequence[MakeMember]) -> None:
        self._makers = makers
        self._joined: dict[str, int] = {}

    def __call__(self, of: Membership) -> GroupMember:
        number = self._joined.get(of.group.name, 0)
        self._joined[of.group.name] = number + 1
        return self._makers[number % len(self._makers)](of)


def _properties(members: MemberSettings) -> dict[str, str]:
    """What the library reads from the system's properties."""
    return {
        "rocketmq.client.rebalance.waitInterval": str(members.rebalance_ms),
        "rocketmq.client.rebalance.lockInterval": str(members.lock_ms),
    }


def _tell(sentence: str) -> None:
    log.warning("%s", sentence)
