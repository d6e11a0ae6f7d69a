"""What a search draws of RocketMQ's systems: timings and sizes that keep what a profile promises.

Upstream's defaults are made for clusters that run for months; a simulated minute needs shorter
intervals to see a name server learn, a slave come back or a master be given up, so each is drawn
from a few. What a profile promises is never drawn: that is set by the profile alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shalott.cluster.systems.record import Drawn, Parameters, Search
from shalott.core.rng import Draw, Range

# The profile ``safe``: what RocketMQ's manual recommends against loss. A message is on the disk
# before it is acknowledged, and no reader sees what a power loss takes back.
_DURABLE = {"store.flush": "sync", "store.read_flushed_only": True}
_ENTRIES_ON_DISK = {"raft.flush_interval_ms": 0}
SAFE_SETTINGS: Mapping[str, Parameters] = {
    "master-slave": {**_DURABLE, "broker.role": "SYNC_MASTER"},
    "dledger": {**_DURABLE, **_ENTRIES_ON_DISK, "raft.read_index": True},
    "controller": {
        **_DURABLE,
        **_ENTRIES_ON_DISK,
        "ha.all_ack_in_sync_state_set": True,
        "ha.in_sync_replicas": 2,
        "ha.min_in_sync_replicas": 2,
        "controller.is_process_read_event": True,
    },
}

Choices = Mapping[str, tuple[Any, ...]]

EVERYWHERE: Choices = {
    "broker.register_interval_ms": (1000, 2000, 5000),
    "broker.slave_sync_interval_ms": (500, 1000, 3000),
    "name_server_scan_interval_ms": (1000, 5000),
    "name_server_broker_timeout_ms": (5000, 20_000, 120_000),
    "broker.transaction_timeout_ms": (500, 2000, 6000),
    "broker.transaction_check_interval_ms": (1000, 2000, 5000),
    "store.segment_bytes": (1 << 14, 1 << 16, 1 << 30),
    "store.queue_segment_units": (50, 1000, 300_000),
    "store.checkpoint_interval_ms": (500, 2000, 5000),
    "store.flush_interval_ms": (50, 500),
}
_HA: Choices = {
    "ha.heartbeat_interval_ms": (500, 1000, 5000),
    "ha.housekeeping_interval_ms": (5000, 20_000),
    "ha.reconnect_interval_ms": (500, 1000, 5000),
    "ha.transfer_batch_bytes": (1024, 4096, 32 * 1024),
    "ha.slave_timeout_ms": (1000, 3000),
}
_RAFT: Choices = {
    "raft.heartbeat_interval_ms": (200, 500, 2000),
    "raft.max_heartbeat_leak": (2, 3),
    "raft.ack_timeout_ms": (1000, 2500),
    "raft.push_timeout_ms": (500, 1000),
    "raft.max_push_bytes": (200, 2000, 1 << 20),
    "raft.max_inflight_pushes": (1, 16, 16),
    "raft.max_pending_requests": (8, 10_000, 10_000),
    "raft.commit_push_interval_ms": (200, 1000),
}
OF_SYSTEM: Mapping[str, Choices] = {
    "master-slave": _HA,
    "dledger": _RAFT,
    "controller": {
        **_HA,
        **_RAFT,
        "raft.snapshot_threshold": (0, 0, 3, 10),
        "ha.max_time_slave_not_catchup_ms": (2000, 5000, 15_000),
        "ha.check_sync_state_set_period_ms": (500, 1000, 5000),
        "broker.controller_heartbeat_interval_ms": (300, 1000),
        "broker.controller_heartbeat_timeout_ms": (1000, 2000, 5000),
        "broker.sync_broker_metadata_period_ms": (1000, 5000),
        "broker.sync_controller_metadata_period_ms": (2000, 10_000),
        "controller.scan_not_active_broker_interval_ms": (300, 500, 2000),
        "controller.scan_inactive_master_interval_ms": (500, 2000),
    },
}
# What keeps something alive is drawn to come at least twice before that is given up (upstream: four
# times and more). With heartbeats every 5 s and 2 s to catch up, slaves of an idle group
# would leave the SyncStateSet and come back for ever, so that a cluster is never at rest.
TWICE_WITHIN: tuple[tuple[str, str], ...] = (
    ("ha.heartbeat_interval_ms", "ha.housekeeping_interval_ms"),
    ("ha.heartbeat_interval_ms", "ha.max_time_slave_not_catchup_ms"),
    ("broker.register_interval_ms", "name_server_broker_timeout_ms"),
)
# Faults that a promise to survive the loss of one node does not cover here: a node that lost its
# disk comes back with neither its log nor its vote, and a master by configuration as an empty one.
BEYOND_ONE_NODE = ("disk-corrupt",)
# What a search of the safe profile draws besides. Nothing here may cost an acknowledged message:
# what is acknowledged is on the disks of a majority, or of the whole SyncStateSet, or of a master
# that is never replaced; so it also outlives several nodes at once, as long as their disks do. Half
# of the runs wait for their replicas between two faults, as a promise of one node at a time needs.
SAFE_PROMISES = ("one-at-a-time", "anything")
SAFE_TARGETS: Mapping[str, tuple[str, ...]] = {
    "master-slave": ("one", "one", "master", "majority"),
    "dledger": ("one", "one", "master", "majority"),
    "controller": ("one", "one", "master", "controller", "majority"),
}
# An operator who replaces a master loses nothing while all slaves have what counts.
SETTLED_FAULTS: Mapping[str, Mapping[str, float]] = {"master-slave": {"failover": 2}}
# A master that is gone is given up, another one elected, and found by clients, at the slowest of
# what is drawn; one by configuration is not replaced.
OUTAGES: Mapping[str, Parameters] = {
    "dledger": {"outages": 0.12, "outage_ms": 20_000},
    "controller": {"outages": 0.12, "outage_ms": 35_000},
}
# Replicas find each other again within seconds, so most runs are short and dense: twice as many
# clusters in the same time, each with as many faults.
SAFE_TIME_LIMITS_MS = (20_000, 20_000, 30_000, 60_000)
SAFE_INTERVAL_MS = Range(2000, 10_000, 500)
SAFE_POLICIES: Mapping[str, tuple[Parameters, ...]] = {
    "master-slave": ({},),
    "dledger": ({}, {}, {"raft.fast_advance_commit": True}),
    "controller": (
        *({}, {}),
        {"ha.max_gap_not_in_sync_bytes": 4096},
        {"controller.notify_broker_role_changed": False},
    ),
}

# Seldom, as more nodes cost more time: brokers, name servers and controllers on nodes of their own.
_TOGETHER = ("together",)
SAFE_LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "master-slave": (*(15 * _TOGETHER), "separate"),
    "dledger": (*(15 * _TOGETHER), "separate"),
    "controller": (*(8 * _TOGETHER), "separate", "standalone"),
}
# What every search wants to see, and what only some of these systems can show.
ALWAYS = ("became_master", "became_slave", "client_ok", "client_fail", "client_info")
WANTED: Mapping[str, tuple[str, ...]] = {
    "master-slave": ALWAYS,
    "dledger": (*ALWAYS, "mastership_moved", "truncated"),
    "controller": (
        *(*ALWAYS, "mastership_moved", "truncated", "elected", "set_expanded", "set_shrunk"),
    ),
}


def drawer_of(system: str) -> Callable[[str, int, Draw], Drawn]:
    """How a run of this system is drawn."""

    def draw_settings(profile: str, node_count: int, draw: Draw) -> Drawn:
        drawn = {
            name: draw.choice(f"setting {name}", choices)
            for name, choices in {**EVERYWHERE, **OF_SYSTEM[system]}.items()
        }
        for period, limit in TWICE_WITHIN:
            if period in drawn and limit in drawn:
                drawn[period] = min(drawn[period], drawn[limit] // 2)
        kept = SAFE_SETTINGS[system] if profile == "safe" else {}
        return Drawn(policy={**drawn, **kept, **draw.knob("policies", ({},))})

    return draw_settings


def searches_of(system: str) -> Mapping[str, Search]:
    """By profile: what a search of it is like."""

    def wanted(knobs: Parameters) -> tuple[str, ...]:
        return WANTED[system]

    safe = Search(
        settings={
            "promises": SAFE_PROMISES,
            "targets": SAFE_TARGETS[system],
            "settled_faults": SETTLED_FAULTS.get(system, {}),
            **OUTAGES.get(system, {}),
            "layouts": SAFE_LAYOUTS[system],
            "time_limit_ms": SAFE_TIME_LIMITS_MS,
            "interval_ms": SAFE_INTERVAL_MS,
            "policies": SAFE_POLICIES[system],
        },
        beyond=BEYOND_ONE_NODE,
        wanted=wanted,
    )
    return {"upstream": Search(wanted=wanted), "safe": safe}
