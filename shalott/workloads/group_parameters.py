"""GroupParameters: what the workload ``group`` can be told, and what its judges must know of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from shalott.checkers.groups.group_rules import Group, GroupRules
from shalott.clients.library_choice import (
    BROKERS_MAX_RECONSUME,
    BROKERS_RETRY_LEVEL,
    CPP,
    STUCK_AFTER_MS,
    GroupClientName,
    JavaParameters,
    check_client,
)
from shalott.clients.rocketmq.group_requests import DEAD_PREFIX, SCHEDULE_TOPIC, retry_topic
from shalott.cluster.systems.record import promises_of
from shalott.core.errors import UsageError
from shalott.core.message_body import SMALLEST_BYTES
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.workloads.record import Values

TOPIC_PREFIX = "shalott"
# messageDelayLevel of RocketMQ: 1s 5s 10s 30s 1m to 10m 20m 30m 1h 2h; level 1 is the first.
LEVELS_MS: tuple[int, ...] = (
    *(1000, 5000, 10_000, 30_000),
    *(60_000 * minutes for minutes in range(1, 11)),
    *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
)
# Messages with a time of their own (TIMER_DELAY_MS), and that they may come a second early: brokers
# keep whole seconds. To judges they are levels behind the others.
TIMERS_MS: tuple[int, ...] = (1500, 2500, 4500)
TIMER_EARLY_MS = 1000
CLOCKS_APART_MS = 12_000  # the next master's clock may be so far behind
FIRST_RETRY_LEVEL = 3  # where the broker chooses
LOCK_EXPIRES_MS = 60_000  # at the broker: so long a dead member keeps an orderly queue
SLAVES_COPY_MS = 10_000  # unless the plan says otherwise
SLACK_MS = 15_000  # beyond all that a group may have to wait for
FEATURES = ("concurrent", "orderly", "tagged", "broadcast")


class GroupParameters(JavaParameters, frozen=True, kw_only=True):
    """Names of ``groups`` say what they are: concurrent, orderly, tagged (they want all tags but
    the last), broadcast, or several of these and a number, joined by "-".

    Shares are of the deliveries, but ``delayed`` (of the sends) and ``poison`` (of the messages,
    which no attempt can consume). Of members' changes ``die`` of the goings are without a word.
    """

    client: Annotated[
        GroupClientName,
        msgspec.Meta(
            description="Who makes up the groups: own, RocketMQ's cpp or java, or mixed: own, java."
        ),
    ] = "own"
    topics: Annotated[int, msgspec.Meta(ge=1, le=9, description="How many topics.")] = 2
    queues: Annotated[int, msgspec.Meta(ge=1, le=16, description="Queues of each topic.")] = 3
    groups: Annotated[
        tuple[str, ...], msgspec.Meta(description="Consumer groups, named after what they do.")
    ] = ("concurrent", "orderly", "tagged", "broadcast")
    members: Annotated[
        int, msgspec.Meta(ge=1, le=9, description="Of each group at its beginning.")
    ] = 2
    body_bytes: Annotated[int, msgspec.Meta(ge=SMALLEST_BYTES)] = 64
    tags: Annotated[int, msgspec.Meta(ge=0, le=9, description="Different tags; 0: none.")] = 3
    delayed: Annotated[float, msgspec.Meta(ge=0, le=1, description="Share of the sends.")] = 0.05
    delay_levels: Annotated[
        int, msgspec.Meta(ge=1, le=18, description="A delayed message has one of the first ones.")
    ] = 2
    timed: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Share of the delayed: by a time, no level.")
    ] = 0.0
    later: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Share that is sent back for a retry.")
    ] = 0.1
    suspend: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="The same of orderly groups, who wait.")
    ] = 0.1
    poison: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Messages that end as dead letters.")
    ] = 0.02
    slow: Annotated[float, msgspec.Meta(ge=0, le=1, description="Share of slow ones.")] = 0.02
    max_reconsume: Annotated[
        int, msgspec.Meta(ge=1, le=16, description="Retries before the dead letters.")
    ] = 2
    retry_level: Annotated[
        int, msgspec.Meta(ge=0, le=18, description="Of every retry; 0: the broker chooses.")
    ] = 1
    process_ms: Annotated[int, msgspec.Meta(ge=0, description="A message takes, on average.")] = 20
    slow_for_ms: Annotated[int, msgspec.Meta(ge=0, description="A slow one takes.")] = 2000
    suspend_for_ms: Annotated[int, msgspec.Meta(ge=1, description="An orderly queue waits.")] = 500
    parallel: Annotated[
        int, msgspec.Meta(ge=1, description="Messages at once of a concurrent member.")
    ] = 8
    heartbeat_ms: Annotated[int, msgspec.Meta(ge=100)] = 3000
    rebalance_ms: Annotated[int, msgspec.Meta(ge=100)] = 3000
    persist_ms: Annotated[int, msgspec.Meta(ge=50, description="Between two commits.")] = 2000
    lock_ms: Annotated[
        int, msgspec.Meta(ge=100, description="Orderly: between two renewals of the locks.")
    ] = 10_000
    pull_wait_ms: Annotated[int, msgspec.Meta(ge=0, description="A long poll.")] = 3000
    change_ms: Annotated[
        int, msgspec.Meta(ge=0, description="Between two changes of members; 0: none.")
    ] = 3000
    die: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Share of goings without a word.")
    ] = 0.4
    reset_ms: Annotated[
        int, msgspec.Meta(ge=0, description="Between two resets of offsets; 0: none.")
    ] = 20_000
    reset_to_end: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Share of resets that skip all.")
    ] = 0.2
    stuck_after_ms: Annotated[
        int, msgspec.Meta(ge=0, description="0: what the other times add up to.")
    ] = 0


def parameters_of(plan: Plan) -> GroupParameters:
    return make_parameters(GroupParameters, plan.workload.parameters)


def tags_of(parameters: GroupParameters) -> tuple[str, ...]:
    return tuple(f"tag{number}" for number in range(parameters.tags))


def topics_of(parameters: GroupParameters) -> tuple[str, ...]:
    return tuple(f"{TOPIC_PREFIX}-{number}" for number in range(parameters.topics))


def keys_of(parameters: GroupParameters, topics: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{topic}/{number}" for topic in topics for number in range(parameters.queues))


def groups_of(parameters: GroupParameters) -> tuple[Group, ...]:
    return tuple(_group(parameters, name) for name in parameters.groups)


def _group(parameters: GroupParameters, name: str) -> Group:
    features = name.split("-")
    tags = tags_of(parameters)
    return Group(
        name=name,
        topics=topics_of(parameters),
        tags=tags[:-1] if "tagged" in features else (),
        orderly="orderly" in features,
        broadcast="broadcast" in features,
        max_reconsume=parameters.max_reconsume,
    )


def as_the_client_can(values: Values, serving: int) -> Values:
    """What the C++ client leaves to the broker can't be chosen."""
    if values.get("client") != CPP:
        return values
    return {
        **values,
        "retry_level": BROKERS_RETRY_LEVEL,
        "max_reconsume": BROKERS_MAX_RECONSUME,
        "stuck_after_ms": values.get("stuck_after_ms") or STUCK_AFTER_MS,
    }


def check(plan: Plan) -> None:
    """Raises UsageError."""
    parameters = parameters_of(plan)
    check_client(parameters.client, parameters, plan)
    if parameters.timed and parameters.client != "own":
        raise UsageError("--timed: clients of RocketMQ's are told levels only; use --client own")
    if not parameters.groups:
        raise UsageError("--groups: name at least one")
    for name in parameters.groups:
        features = [part for part in name.split("-") if not part.isdecimal()]
        unknown = [part for part in features if part not in FEATURES]
        if unknown or not features:
            known = ", ".join(FEATURES)
            raise UsageError(f"--groups {name}: a name is made of {known} and a number")
        if "broadcast" in features and "orderly" in features:
            raise UsageError(f"--groups {name}: no member locks a broadcast's queues")
        if "tagged" in features and parameters.tags < 2:
            raise UsageError(f"--groups {name}: that takes --tags 2 at least")


def used_levels(parameters: GroupParameters) -> tuple[int, ...]:
    """The levels at which messages of this run may wait."""
    levels = list(range(1, parameters.delay_levels + 1)) if parameters.delayed else []
    if parameters.retry_level:
        levels.append(parameters.retry_level)
    else:
        retries = range(FIRST_RETRY_LEVEL, FIRST_RETRY_LEVEL + parameters.max_reconsume + 1)
        levels += [min(level, len(LEVELS_MS)) for level in retries]
    return tuple(sorted(dict.fromkeys(levels)))


def stuck_after_ms(parameters: GroupParameters) -> int:
    """After the heal everything is consumed within this time: the longest delay, the expiry of a
    dead member's lock, and a few intervals of members that notice."""
    if parameters.stuck_after_ms:
        return parameters.stuck_after_ms
    waits_ms = max((LEVELS_MS[level - 1] for level in used_levels(parameters)), default=0)
    if any(group.orderly for group in groups_of(parameters)):
        waits_ms += LOCK_EXPIRES_MS
    intervals_ms = 2 * parameters.rebalance_ms + parameters.heartbeat_ms + 2 * parameters.persist_ms
    return waits_ms + intervals_ms + parameters.slow_for_ms + SLACK_MS


def timers_ms(parameters: GroupParameters) -> int:
    """So long after the last send all of its timers have come."""
    return max(TIMERS_MS) + CLOCKS_APART_MS if parameters.delayed and parameters.timed else 0


def rules_of(plan: Plan) -> GroupRules:
    parameters, policy = parameters_of(plan), plan.system.policy
    return GroupRules(
        groups=groups_of(parameters),
        queues=keys_of(parameters, topics_of(parameters)),
        levels_ms=(*LEVELS_MS, *(timer - TIMER_EARLY_MS for timer in TIMERS_MS)),
        first_retry_level=FIRST_RETRY_LEVEL,
        keeps_acknowledged=promises_of(plan).keeps_acknowledged,
        offsets_follow_ms=int(policy.get("broker.slave_sync_interval_ms", SLAVES_COPY_MS)),
        stuck_after_ms=stuck_after_ms(parameters),
        client=parameters.client,
    )


def consumed_keys(parameters: GroupParameters) -> Mapping[str, tuple[str, ...]]:
    """By group: the queues that it consumes, its retries too."""
    own = keys_of(parameters, topics_of(parameters))
    return {
        group.name: own if group.broadcast else (*own, f"{retry_topic(group.name)}/0")
        for group in groups_of(parameters)
    }


def all_keys(parameters: GroupParameters) -> tuple[str, ...]:
    """Every queue of the run, those of retries and dead letters too."""
    own = keys_of(parameters, topics_of(parameters))
    names = [group.name for group in groups_of(parameters) if not group.broadcast]
    retries = tuple(f"{retry_topic(name)}/0" for name in names)
    return (*own, *retries, *(f"{DEAD_PREFIX}{name}/0" for name in names))


def schedule_keys(parameters: GroupParameters) -> tuple[str, ...]:
    """Where delayed messages wait, by level."""
    return tuple(f"{SCHEDULE_TOPIC}/{level - 1}" for level in used_levels(parameters))
