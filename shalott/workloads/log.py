"""The log workload: sends and polls over the queues of one topic, and everything read at the end.

A process is bound to a node with a broker: it asks that node's name server where the master is,
sends there, and polls at that node's own broker, be it the master or a slave (at the master where
slaves answer no readers). Where name servers
have nodes of their own, each is asked by the processes of some brokers. After the heal every queue
is read at every broker from offset 0 to its end; checkers/logs/replicated_log.py says what
must be found there.

``elections`` is the same load, judged by the elections alone: what becomes of messages is not
asked, so nothing is read at the end but a few polls, which show that the cluster answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.logs.log_order import FreshReads
from shalott.checkers.logs.pops import Pops
from shalott.checkers.logs.replicated_log import ReplicatedLog
from shalott.checkers.mastership.elections import Elections
from shalott.checkers.runs.convergence import Convergence
from shalott.clients.library_choice import (
    JavaParameters,
    LogClientName,
    check_client,
    library_clients,
)
from shalott.clients.rocketmq.consumption import MemberSettings
from shalott.clients.rocketmq.log_client import LogClient, LogSettings
from shalott.clients.rocketmq.transactions import Book, Transactions
from shalott.cluster.systems.record import promises_of, readers_of
from shalott.core.client import OWN, Client
from shalott.core.errors import UsageError
from shalott.core.generator import Generator, Limit, Phases, Stagger, TimeLimit
from shalott.core.log_generator import Later, PopAll, Settle, log_mix, read_all
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan, nodes_hosting
from shalott.core.rng import Draw, Range, stream_key
from shalott.workloads.queue import Count, Share, Size, one_a_node
from shalott.workloads.record import SeveralPorts, Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import invariant_checkers, run_checkers

REMOTING = "rocketmq-remoting"  # brokers and name servers of RocketMQ

TOPIC = "log"  # not the name of a cluster or a broker group: brokers refuse those
PORTS = ("nameserver", "remoting")
READING_LIMIT_MS = 60_000
# Brokers ask about transactions every 30 or 60 s, those heard of in the last 30 s.
SETTLING_LIMIT_MS = 180_000
ROUTE_POLL_MS = 1000  # clients of an original wait 30 s for a new route: an outage of their own


class LogParameters(JavaParameters, frozen=True, kw_only=True):
    client: Annotated[
        LogClientName,
        msgspec.Meta(description="Who sends and polls: own, RocketMQ's java, or mixed: both."),
    ] = "own"
    queues: Count = 0  # of the topic
    enqueue_fraction: Share = 0.6  # sends
    body_bytes: Size = 64
    batch: Annotated[
        int,
        msgspec.Meta(
            ge=1, le=32, description="Every other message ends a batch of so many (own client)."
        ),
    ] = 1
    transactional: Annotated[
        float,
        msgspec.Meta(ge=0, le=1, description="Share of sends that are transactions (own client)."),
    ] = 0.0
    popping: Annotated[
        float,
        msgspec.Meta(ge=0, le=1, description="Share of polls that are a group's pops (own)."),
    ] = 0.0
    grows: Annotated[
        bool, msgspec.Meta(description="An operator adds a queue during the run (own client).")
    ] = False


def parameters_of(plan: Plan) -> LogParameters:
    return make_parameters(LogParameters, plan.workload.parameters)


def queue_keys(count: int) -> tuple[str, ...]:
    """log/0, log/1, ...: a topic and the number of its queue."""
    return tuple(f"{TOPIC}/{number}" for number in range(count))


def added_key(parameters: LogParameters) -> str:
    """Of the queue that an operator adds."""
    return f"{TOPIC}/{parameters.queues}"


def load_generator(plan: Plan) -> Generator:
    keys = queue_keys(parameters_of(plan).queues)
    parameters = parameters_of(plan)
    added = added_key(parameters) if parameters.grows else ""
    mix = log_mix(keys, parameters.enqueue_fraction, plan.seed, parameters.popping, added)
    paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(plan.seed, "log", "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * 1_000_000)


def reading_generator(
    plan: Plan, nodes: Sequence[str] | None = None, book: Book | None = None
) -> Generator:
    """Until every queue was read to its end at every node, at most a minute; before that, until
    transactions are decided and a group has popped everything, if there are any. ``nodes``: all
    that have a broker, if not given. A queue that was added is read if a message in it was
    acknowledged, says ``book``: a master that was replaced may have taken a queue with it."""
    keys = queue_keys(parameters_of(plan).queues)
    added = added_key(parameters_of(plan))
    keys = (*keys, added) if book and added in book.used else keys
    asked = nodes_hosting(plan, "broker") if nodes is None else nodes
    reading = TimeLimit(read_all(asked, keys), READING_LIMIT_MS * 1_000_000)
    parameters, first = parameters_of(plan), list[Generator]()
    if parameters.java_transactions or parameters.transactional:
        first.append(Settle(keys[0]))
    if parameters.popping:
        first.append(PopAll(keys[0]))
    limited = [TimeLimit(each, SETTLING_LIMIT_MS * 1_000_000) for each in first]
    return Phases((*limited, reading)) if limited else reading


def last_words(plan: Plan) -> Generator:
    """A few polls of each process."""
    mix = log_mix(queue_keys(parameters_of(plan).queues), 0.0, plan.seed)
    return TimeLimit(Limit(mix, 2 * plan.workload.concurrency), READING_LIMIT_MS * 1_000_000)


def log_workload(plan: Plan) -> Workload:
    book = Book()
    reading = reading_generator(plan)
    if parameters_of(plan).grows:
        reading = Later(partial(reading_generator, plan, book=book))
    workload = _workload(plan, "log", reading, book)
    return replace(workload, final_at=partial(reading_generator, plan, book=book))


def elections_workload(plan: Plan) -> Workload:
    """The load of ``log``, for judges of elections."""
    return _workload(plan, "elections", last_words(plan), Book())


def _workload(plan: Plan, name: str, final_generator: Generator, book: Book) -> Workload:
    parameters = parameters_of(plan)
    clients = library_clients(
        parameters.client,
        parameters,
        plan,
        dial=dial,
        body_bytes=parameters.body_bytes,
        members=MemberSettings(route_poll_ms=ROUTE_POLL_MS),
    )

    def make_client(ports: Mapping[str, tuple[str, int]]) -> Client:
        host, port = ports["nameserver"]
        return clients.sender(f"{host}:{port}", make_log_client(plan, ports, book))

    return Workload(
        name=name,
        queues=queue_keys(parameters.queues),
        generator=load_generator(plan),
        final_generator=final_generator,
        several=SeveralPorts(PORTS, make_client, partial(port_at, plan)),
        nodes=nodes_hosting(plan, "broker"),
        # Popped messages come back, and transactions are asked for, until nothing is left.
        writes_until_drained=bool(parameters.popping or parameters.transactional),
    )


def port_at(plan: Plan, node: str, port: str) -> str:
    """Whom a client of a broker's node asks at a port: routes of that node's own name server, or
    else of the others' in turn."""
    servers = nodes_hosting(plan, "nameserver")
    if port != "nameserver" or node in servers:
        return node
    return servers[nodes_hosting(plan, "broker").index(node) % len(servers)]


def make_log_client(
    plan: Plan, ports: Mapping[str, tuple[str, int]], book: Book | None = None
) -> LogClient:
    parameters = parameters_of(plan)
    settings = LogSettings(
        body_bytes=parameters.body_bytes,
        batch=parameters.batch,
        transactions=Transactions(
            parameters.transactional, stream_key(plan.seed, "log", "transactions")
        ),
        book=book or Book(),
    )
    return log_client(plan, ports, settings)


def log_client(
    plan: Plan, ports: Mapping[str, tuple[str, int]], settings: LogSettings
) -> LogClient:
    """The same, of any workload that sends to topics."""
    host, port = ports["nameserver"]
    broker_host, broker_port = ports["remoting"]
    readers = readers_of(plan)
    return LogClient(
        host,
        port,
        dial=dial,
        broker=f"{broker_host}:{broker_port}" if readers.at_slaves else None,
        settings=replace(
            settings,
            op_timeout_ms=plan.workload.op_timeout_ms,
            route_poll_ms=ROUTE_POLL_MS,
            poll_wait_ms=readers.wait_ms,
            tell_where=readers.tell_where,
        ),
    )


def dial(address: str) -> tuple[str, int]:
    """Where the harness reaches what is advertised: there; no fault stands between."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def log_checkers(plan: Plan) -> Sequence[Checker]:
    """A replicated log's messages, and who was its master."""
    reads = (FreshReads(),) if promises_of(plan).fresh_reads else ()
    equal = () if plan.gates.must_converge else (Convergence(),)  # with the gate it is there
    pops = (Pops(),) if parameters_of(plan).popping else ()
    return (ReplicatedLog(), *pops, *elections_checkers(plan), *equal, *reads)


def elections_checkers(plan: Plan) -> Sequence[Checker]:
    """Who was a replicated log's master, and what that took and kept."""
    return (Elections(), *invariant_checkers(plan), *run_checkers(plan))


def draw_parameters(draw: Draw) -> Values:
    return {
        "client": draw.knob("client", ("own",)),  # libraries: where a search's world has real time
        "queues": draw.knob("queues", (1, 1, 2, 3)),
        "enqueue_fraction": draw.knob("enqueue_fraction", Range(0.5, 0.8, 0.05)),
        "body_bytes": draw.knob("body_bytes", (12, 64, 64, 256, 1024, 8192)),
        "batch": draw.knob("batch", (1, 1, 1, 4)),
    }


def draw_log(draw: Draw) -> Values:
    return {
        **draw_parameters(draw),
        "transactional": draw.knob("transactional", (0.0, 0.3, 0.3)),
        "popping": draw.knob("popping", (0.0, 0.0, 0.4)),
        "grows": draw.knob("grows", (False, True)),
    }


def check(plan: Plan) -> None:
    """Raises UsageError."""
    parameters = parameters_of(plan)
    check_client(parameters.client, parameters, plan)
    if (parameters.client, plan.workload.name) != (OWN, "log"):
        for flag in ("transactional", "popping", "grows"):
            if getattr(parameters, flag):
                raise UsageError(f"--{flag}: of --client own in the workload log")


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return f"{parameters.queues} queues of one topic, {parameters.enqueue_fraction:.0%} sends"


LOG = WorkloadRecord(
    name="log",
    summary="sends and polls of one topic, and everything read at the end",
    needs=(REMOTING,),
    parameters=LogParameters,
    complete=one_a_node,
    build=log_workload,
    checkers=log_checkers,
    check=check,
    draw=draw_log,
    describe=describe,
    lower=("queues",),
    calm={"body_bytes": SMALLEST_BYTES, "enqueue_fraction": 1.0},
)
ELECTIONS = WorkloadRecord(
    name="elections",
    summary="the load of log, judged by who was master",
    needs=(REMOTING,),
    parameters=LogParameters,
    complete=one_a_node,
    build=elections_workload,
    checkers=elections_checkers,
    check=check,
    draw=draw_parameters,
    describe=describe,
    lower=("queues",),
    calm={"body_bytes": SMALLEST_BYTES, "enqueue_fraction": 1.0},
)
