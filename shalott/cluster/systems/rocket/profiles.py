"""The settings of RocketMQ's profile ``safe``: what its manual recommends against loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
