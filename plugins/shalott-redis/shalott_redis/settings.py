"""What Redis and Valkey can be told, and what their manuals say may be lost with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import msgspec

import shalott.api as api

MANUALS = {
    "redis": "https://redis.io/docs/latest/operate/oss_and_stack/management",
    "valkey": "https://valkey.io/topics",
}
# On clusters, and on WAIT, where each manual has them.
CLUSTERS = {
    "redis": f"{MANUALS['redis']}/scaling/#redis-cluster-consistency-guarantees",
    "valkey": f"{MANUALS['valkey']}/cluster-tutorial/",
}
WAITS = {
    "redis": "https://redis.io/docs/latest/commands/wait/",
    "valkey": "https://valkey.io/commands/wait/",
}
FAILOVER_TIMEOUT_MS = 10_000
REPLICATION_TIMEOUT_S = 5


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """As shipped a master is taken for dead after 30 s (a cluster's after 15), and a link between
    copies after 60; 2 and 5 s keep runs short. So does a full copy that does not wait 5 s for
    others who may want one too."""

    mode: Annotated[
        Literal["sentinel", "cluster"], msgspec.Meta(description="What replaces a dead master.")
    ] = "sentinel"
    structure: Annotated[
        Literal["list", "stream"], msgspec.Meta(description="What a queue is.")
    ] = "list"
    aof: Annotated[bool, msgspec.Meta(description="appendonly.")] = False
    fsync: Annotated[
        Literal["always", "everysec", "no"], msgspec.Meta(description="appendfsync.")
    ] = "everysec"
    snapshots: Annotated[bool, msgspec.Meta(description="save as shipped; else never.")] = True
    min_replicas: Annotated[int, msgspec.Meta(ge=0, description="min-replicas-to-write.")] = 0
    max_lag_s: Annotated[int, msgspec.Meta(ge=1, description="min-replicas-max-lag.")] = 10
    copies: Annotated[
        Literal["none", "one", "all"],
        msgspec.Meta(description="Replicas that clients wait for: WAIT, WAITAOF where there is."),
    ] = "none"
    down_after_ms: Annotated[
        int, msgspec.Meta(ge=500, description="down-after-milliseconds, cluster-node-timeout.")
    ] = 2000


class RedisParameters(Parameters, frozen=True, kw_only=True):
    version: Annotated[
        Literal["7.0", "8.0"], msgspec.Meta(description="7.0 is Debian 12's, 8.0 Debian 13's.")
    ] = "7.0"


class ValkeyParameters(Parameters, frozen=True, kw_only=True):
    version: Annotated[
        Literal["8.1", "9.1"],
        msgspec.Meta(description="8.1 is Debian 13's, 9.1 of the suite after it."),
    ] = "8.1"


Own = RedisParameters | ValkeyParameters


def parameters_of(plan: api.Plan) -> Own:
    if plan.system.name == "redis":
        return api.make_parameters(RedisParameters, plan.system.parameters)
    return api.make_parameters(ValkeyParameters, plan.system.parameters)


def documented_losses(plan: api.Plan) -> Sequence[api.DocumentedLoss]:
    """What the plan's settings leave open. Clients that wait for all copies, and a log that is
    synced always, leave nothing."""
    name, own = plan.system.name, parameters_of(plan)
    found = []
    if own.copies != "all":
        found.append(_asynchronous(name, own))
    if not own.aof and not own.snapshots:
        found += _restarts(
            *("empty-master", "what a server without persistence held is gone with its process"),
            f"{MANUALS[name]}/replication/", None, "--aof", effects=("ends-processes",),
        )  # fmt: skip
    elif not own.aof:
        found += _restarts(
            *("snapshots", "what came since the last snapshot is gone with the process"),
            f"{MANUALS[name]}/persistence/", None, "--aof", effects=("ends-processes",),
            but_not=("in-order",),
        )  # fmt: skip
    elif own.fsync != "always":
        found += _restarts(
            *("unsynced", "what was not synced yet is gone with the power"),
            f"{MANUALS[name]}/persistence/",
            1000 if own.fsync == "everysec" else None,  # "no": when the kernel likes
            "--fsync always",
            effects=("loses-unsynced",),
        )  # fmt: skip
    return found


def _asynchronous(name: str, own: Own) -> api.DocumentedLoss:
    """A copy that is so far behind that its link is given up may be chosen no less; and who is cut
    off, or sleeps, goes on until its sentinels, or its cluster, can tell it."""
    manual = CLUSTERS[name] if own.mode == "cluster" else f"{MANUALS[name]}/sentinel/"
    return api.DocumentedLoss(
        name="asynchronous",
        text="a replica became master that had not got what its master had acknowledged",
        manual=WAITS[name] if own.copies == "one" else manual,
        closed_by="--copies all",
        effects=("ends-processes", "suspends", "cuts-links"),
        before_ms=REPLICATION_TIMEOUT_S * 1000,
        after_ms=FAILOVER_TIMEOUT_MS,
        successor="another",
    )


def _restarts(
    name: str,
    text: str,
    manual: str,
    before_ms: float | None,
    closed_by: str,
    *,
    effects: tuple[api.Effect, ...],
    but_not: tuple[api.Effect, ...] = (),
) -> Sequence[api.DocumentedLoss]:
    """Who comes back with less must come back as master, or with all the others, to do harm."""
    loss = api.DocumentedLoss(
        name=name, text=text, manual=manual, closed_by=closed_by, before_ms=before_ms,
        effects=effects, but_not=but_not, successor="same",
    )  # fmt: skip
    return (loss, replace(loss, hits="all", successor="any"))
