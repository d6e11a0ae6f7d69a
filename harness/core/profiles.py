"""Systems and their profiles: what each system is set to unless the user says otherwise.

``upstream`` is what the original does by default, which loses data in documented ways; ``safe`` is
what its manual recommends against loss. A profile's ``policy`` is a RabbitMQ policy definition in
systems with mirrored queues, and in RocketMQ's a table of settings under dotted names
(broker/rocket/config.py), which ``--policy`` is laid over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shalott.harness.core.errors import UsageError

QUEUE_SYSTEMS = ("mirrored", "rabbitmq")
LOG_SYSTEMS = ("master-slave", "dledger", "controller")
SYSTEMS = (*QUEUE_SYSTEMS, *LOG_SYSTEMS)
LOG_WORKLOADS = ("log", "elections")
Operator = Literal["restart-minority", "none"]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile sets unless the user says otherwise."""

    partition_mode: str
    policy: Mapping[str, Any]


# upstream: what RabbitMQ does when one only asks for mirrors: manual synchronisation, promotion of
# an unsynchronised mirror on failure, no handling of partitions.
PROFILES: Mapping[str, Profile] = {
    "upstream": Profile(partition_mode="ignore", policy={"ha-mode": "all"}),
    "safe": Profile(
        partition_mode="pause_minority",
        policy={
            "ha-mode": "all",
            "ha-sync-mode": "automatic",
            "ha-promote-on-failure": "when-synced",
            "ha-promote-on-shutdown": "when-synced",
        },
    ),
}

# On the disk before it is acknowledged, and nobody reads what a power loss takes back.
_DURABLE = {"store.flush": "sync", "store.read_flushed_only": True}
_ENTRIES_ON_DISK = {"raft.flush_interval_ms": 0}
SAFE_SETTINGS: Mapping[str, Mapping[str, Any]] = {
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
# They have no partition mode: each side does what its master and its quorum allow.
_LOG_PROFILES: Mapping[str, Mapping[str, Profile]] = {
    system: {
        "upstream": Profile(partition_mode="ignore", policy={}),
        "safe": Profile(partition_mode="ignore", policy=settings),
    }
    for system, settings in SAFE_SETTINGS.items()
}


def is_log_system(system: str) -> bool:
    """Whether it keeps logs, as RocketMQ does, instead of queues."""
    return system in LOG_SYSTEMS


def profile_of(system: str, name: str) -> Profile:
    """Raises UsageError, naming the known ones."""
    profiles = _LOG_PROFILES.get(system, PROFILES)
    if name not in profiles:
        raise UsageError(f"unknown profile {name}: choose one of {', '.join(profiles)}")
    return profiles[name]


def default_workload(system: str) -> str:
    return "log" if is_log_system(system) else "queue"


def check_pairing(system: str, workload: str) -> None:
    """Refuse a workload that the system does not understand. Raises UsageError."""
    if (workload in LOG_WORKLOADS) != is_log_system(system):
        fitting = LOG_SYSTEMS if workload in LOG_WORKLOADS else QUEUE_SYSTEMS
        raise UsageError(
            f"the workload {workload} is for {', '.join(fitting)}, and not for {system}: leave out"
            " --workload for the one that fits"
        )
