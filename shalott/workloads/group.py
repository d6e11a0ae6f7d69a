"""The group workload: consumer groups of RocketMQ, whose members come, go and die.

Half of the processes send, to all queues of several topics, with tags and delays; the others are
given members, which consume in the background what RocketMQ's push consumers would
(clients/rocketmq/member.py). After the heal the listeners can do with everything: when
every group has consumed all there is, its members leave, and every queue is read to its end at
every broker. docs/reference/consumers.md says what stands in the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from shalott.checkers.checker import Checker
from shalott.checkers.groups.group_checkers import group_checkers
from shalott.checkers.mastership.elections import Elections
from shalott.checkers.runs.convergence import Convergence
from shalott.clients.library_choice import LibraryClients, library_clients
from shalott.clients.rocketmq.consumption import Listener, MemberSettings
from shalott.clients.rocketmq.group_client import GroupClient, GroupMeans
from shalott.clients.rocketmq.log_client import LogSettings
from shalott.core.client import Client
from shalott.core.generator import Generator, Phases, Stagger, TimeLimit
from shalott.core.log_generator import read_all
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.op import Invocation
from shalott.core.plan import Plan, nodes_hosting
from shalott.core.rng import Draw, Range, stream_key
from shalott.workloads.group_generator import (
    AskAll,
    GroupLoad,
    Idle,
    OnMembersThreads,
    UntilConsumed,
    churn,
    resets,
    send_mix,
)
from shalott.workloads.group_parameters import (
    LEVELS_MS,
    TIMERS_MS,
    GroupParameters,
    all_keys,
    as_the_client_can,
    check,
    consumed_keys,
    groups_of,
    keys_of,
    parameters_of,
    rules_of,
    schedule_keys,
    stuck_after_ms,
    tags_of,
    timers_ms,
    topics_of,
)
from shalott.workloads.log import PORTS, REMOTING, ROUTE_POLL_MS, dial, log_client, port_at
from shalott.workloads.record import SeveralPorts, Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import invariant_checkers, run_checkers

# Consumers come, settle and go in a second or two: many short runs show more than a few long ones.
SEARCHED = {"time_limit_ms": (15_000, 15_000, 30_000), "interval_ms": Range(3000, 8000, 500)}
READING_LIMIT_MS = 60_000
LEAVING_LIMIT_MS = 15_000
LATE_MS = 15_000  # the drain goes on so long after everything should have been consumed
NS_PER_MS = 1_000_000


def group_workload(plan: Plan) -> Workload:
    parameters = parameters_of(plan)
    members = _members(parameters)
    clients = library_clients(
        parameters.client,
        parameters,
        plan,
        dial=dial,
        body_bytes=parameters.body_bytes,
        members=members,
    )
    means = _means(plan, parameters, members, clients)

    def make_client(ports: Mapping[str, tuple[str, int]]) -> Client:
        return make_group_client(plan, means, clients, ports)

    return Workload(
        name="group",
        queues=all_keys(parameters),
        generator=load_generator(plan),
        final_generator=final_generator(plan),
        several=SeveralPorts(PORTS, make_client, partial(port_at, plan)),
        nodes=nodes_hosting(plan, "broker"),
        final_at=partial(final_generator, plan),
        writes_until_drained=True,
    )


def _members(parameters: GroupParameters) -> MemberSettings:
    return MemberSettings(
        heartbeat_ms=parameters.heartbeat_ms,
        rebalance_ms=parameters.rebalance_ms,
        persist_ms=parameters.persist_ms,
        lock_ms=parameters.lock_ms,
        route_poll_ms=ROUTE_POLL_MS,
        pull_wait_ms=parameters.pull_wait_ms,
        suspend_ms=parameters.suspend_for_ms,
        parallel=parameters.parallel,
        retry_level=parameters.retry_level,
    )


def _means(
    plan: Plan, parameters: GroupParameters, members: MemberSettings, clients: LibraryClients
) -> GroupMeans:
    return GroupMeans(
        topic=topics_of(parameters)[0],
        groups={group.name: group for group in groups_of(parameters)},
        members=members,
        listener=Listener(
            seed=plan.seed,
            process_ms=parameters.process_ms,
            slow_ms=parameters.slow_for_ms,
            slow=parameters.slow,
            later=parameters.later,
            suspend=parameters.suspend,
            poison=parameters.poison,
        ),
        make_member=clients.member,
    )


def make_group_client(
    plan: Plan, means: GroupMeans, clients: LibraryClients, ports: Mapping[str, tuple[str, int]]
) -> GroupClient:
    host, port = ports["nameserver"]
    log = log_client(plan, ports, LogSettings(body_bytes=parameters_of(plan).body_bytes))
    timeout_ms = plan.workload.op_timeout_ms
    sender = clients.sender(f"{host}:{port}", log)
    return GroupClient(f"{host}:{port}", sender, means, dial=dial, op_timeout_ms=timeout_ms)


# -- what they do ----------------------------------------------------------------------------------


def load_generator(plan: Plan) -> Generator:
    """Sends at the plan's rate, and members' changes beside them, for the plan's time."""
    parameters, threads, seed = parameters_of(plan), plan.workload.concurrency, plan.seed
    own = keys_of(parameters, topics_of(parameters))
    mix = send_mix(
        own,
        tags_of(parameters),
        delayed=parameters.delayed,
        levels=parameters.delay_levels,
        seed=seed,
        timed=parameters.timed,
        timers_ms=TIMERS_MS,
        first_timer=len(LEVELS_MS) + 1,
    )
    members = churn(
        parameters.groups,
        members=parameters.members,
        mean_ms=parameters.change_ms,
        die_fraction=parameters.die,
        threads=threads,
        seed=seed,
    )
    operator = resets(
        {group.name: own for group in groups_of(parameters) if not group.broadcast},
        mean_ms=parameters.reset_ms,
        to_end_fraction=parameters.reset_to_end,
        seed=seed,
    )
    paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(seed, "group", "stagger"))
    load = GroupLoad(paced, members, operator, threads)
    return TimeLimit(load, plan.time_limit_ms * NS_PER_MS)


def final_generator(plan: Plan, nodes: Sequence[str] | None = None) -> Generator:
    """A member more of each group and listeners that can do with everything, until nothing is left
    to consume; then no member, and everything is read. ``nodes``: all that have a broker, if not
    given."""
    parameters, threads = parameters_of(plan), plan.workload.concurrency
    asked = nodes_hosting(plan, "broker") if nodes is None else nodes
    names = parameters.groups
    joins = tuple(Invocation(f="join", key=name, extra={"calm": True}) for name in names)
    leaves = tuple(Invocation(f="leave", key=name, extra={"all": True}) for name in names)
    waits_ms = stuck_after_ms(parameters) + LATE_MS
    return Phases(
        (
            OnMembersThreads(joins, threads),
            _limited(Idle(), timers_ms(parameters)),
            _limited(UntilConsumed(_looks(parameters), threads), waits_ms),
            _limited(OnMembersThreads(leaves, threads, everywhere=True), LEAVING_LIMIT_MS),
            _limited(read_all(asked, all_keys(parameters)), READING_LIMIT_MS),
            _limited(AskAll(_last_questions(parameters)), LEAVING_LIMIT_MS),
        )
    )


def _limited(generator: Generator, limit_ms: int) -> TimeLimit:
    return TimeLimit(generator, limit_ms * NS_PER_MS)


def _looks(parameters: GroupParameters) -> tuple[tuple[Invocation, bool], ...]:
    """Delayed messages first: what is delivered then has still to be consumed."""
    waiting = [(Invocation(f="lag", key=key), False) for key in schedule_keys(parameters)]
    behind = [
        (Invocation(f="lag", key=key, extra={"group": group.name}), group.broadcast)
        for group in groups_of(parameters)
        for key in consumed_keys(parameters)[group.name]
    ]
    return (*waiting, *behind)


def _last_questions(parameters: GroupParameters) -> tuple[Invocation, ...]:
    return tuple(
        Invocation(f="final-offset", key=key, extra={"group": group.name})
        for group in groups_of(parameters)
        if not group.broadcast
        for key in consumed_keys(parameters)[group.name]
    )


# -- what judges them ------------------------------------------------------------------------------


def group_workload_checkers(plan: Plan) -> Sequence[Checker]:
    """What groups were promised, who was master, and what every run has."""
    equal = () if plan.gates.must_converge else (Convergence(),)  # with the gate it is there
    own = group_checkers(rules_of(plan))
    return (*own, Elections(), *invariant_checkers(plan), *run_checkers(plan), *equal)


# -- how a search draws it -------------------------------------------------------------------------

_GROUPS = (
    ("concurrent", "orderly", "tagged", "broadcast"),
    ("concurrent", "orderly"),
    ("concurrent", "tagged-orderly"),
    ("concurrent", "concurrent-2"),
    ("orderly", "tagged"),
    ("concurrent", "broadcast-tagged"),
)


def draw_parameters(draw: Draw) -> Values:
    return {
        "client": draw.knob("client", ("own",)),  # libraries: where a search's world has real time
        "topics": draw.knob("topics", (1, 1, 2)),
        "queues": draw.knob("queues", (1, 2, 3, 4)),
        "groups": list(draw.knob("groups", _GROUPS)),
        "members": draw.knob("members", (1, 2, 2, 3)),
        "body_bytes": draw.knob("body_bytes", (12, 64, 64, 256, 1024)),
        "tags": draw.knob("tags", (2, 3)),
        "delayed": draw.knob("delayed", (0.0, 0.05, 0.2)),
        "delay_levels": draw.knob("delay_levels", (1, 2, 3)),
        "timed": draw.knob("timed", (0.0, 0.3, 0.3)),
        "later": draw.knob("later", (0.0, 0.05, 0.2)),
        "suspend": draw.knob("suspend", (0.0, 0.05, 0.2)),
        "poison": draw.knob("poison", (0.0, 0.02, 0.05)),
        "slow": draw.knob("slow", (0.0, 0.02, 0.1)),
        "max_reconsume": draw.knob("max_reconsume", (1, 2, 3)),
        "retry_level": draw.knob("retry_level", (1, 1, 2, 0)),
        "process_ms": draw.knob("process_ms", (1, 20, 100)),
        "parallel": draw.knob("parallel", (1, 4, 20)),
        "heartbeat_ms": draw.knob("heartbeat_ms", (1000, 3000, 10_000)),
        "rebalance_ms": draw.knob("rebalance_ms", (1000, 3000, 10_000)),
        "persist_ms": draw.knob("persist_ms", (500, 2000, 5000)),
        "lock_ms": draw.knob("lock_ms", (2000, 10_000, 20_000)),
        "change_ms": int(draw.knob("change_ms", Range(1000, 6000, 500))),
        "die": draw.knob("die", (0.0, 0.4, 0.8)),
        "reset_ms": draw.knob("reset_ms", (0, 5000, 10_000, 30_000)),
    }


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return (
        f"groups {', '.join(parameters.groups)} of {parameters.members} members,"
        f" {parameters.topics} topics of {parameters.queues} queues"
    )


WORKLOAD = WorkloadRecord(
    name="group",
    summary="consumer groups of several topics: rebalances, retries, locks, delays, resets",
    needs=(REMOTING,),
    parameters=GroupParameters,
    complete=as_the_client_can,
    build=group_workload,
    checkers=group_workload_checkers,
    check=check,
    draw=draw_parameters,
    search=SEARCHED,
    describe=describe,
    lower=("topics", "queues", "members", "max_reconsume", "delay_levels"),
    calm={
        "body_bytes": SMALLEST_BYTES,
        "delayed": 0.0,
        "timed": 0.0,
        "later": 0.0,
        "suspend": 0.0,
        "poison": 0.0,
        "slow": 0.0,
        "change_ms": 0,
        "reset_ms": 0,
        "parallel": 1,
        "die": 0.0,
    },
)
