"""The known ways to lose an acknowledged message: what each is, and what setting closes it.

L1 to L12 are RabbitMQ's documented windows (docs/evidence/loss-windows.md), as the checker
``total-queue`` names them. The others are what became of a master of a replicated log, as the
checker ``log`` does (checkers/logs/log_loss_story.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shalott.core.plan import Plan

# Window -> what it is, and what closes it, in words.
LOSS_WINDOWS: dict[str, tuple[str, str]] = {
    "L1": (
        "an unsynchronised mirror was promoted",
        "ha-promote-on-failure=when-synced, ha-sync-mode=automatic",
    ),
    "L2": ("a mirror had joined empty and the master died", "ha-sync-mode=automatic"),
    "L3": (
        "the losing side of a partition was discarded",
        "pause_minority, all but its last moment",
    ),
    "L4": ("restarted mirrors wiped their contents", "awaiting a sync between restarts"),
    "L5": ("a consumer without acknowledgements failed over", "manual acknowledgements"),
    "L6": ("the queue or its messages were transient", "durable queues, persistent messages"),
    "L7": ("the publisher awaited no confirms", "publisher confirms"),
    "L8": (
        "an unsynchronised mirror was promoted at a shutdown",
        "ha-promote-on-shutdown=when-synced",
    ),
    "L9": ("acknowledgements had not reached the mirrors: delivered twice", "idempotent consumers"),
    "L10": ("exclusive queues are never mirrored", "queues that are not exclusive"),
    "L11": ("a suspended master went on acting as master", "nothing: it is in the design"),
    "L12": (
        "every node had stopped, and the one that recovered the queue had not stopped last",
        "starting the last to stop first",
    ),
    "unflushed": (
        "what was acknowledged had not been flushed, and a loss of power took it",
        "flushing before the acknowledgement",
    ),
    "alone": (
        "a master that was cut off acknowledged alone, was deposed, and cut its log",
        "acknowledging only what other nodes have",
    ),
    "asleep": (
        "a master that had been suspended acknowledged alone when it woke up, and was deposed",
        "acknowledging only what other nodes have",
    ),
    "deposed": (
        "a master acknowledged when another one had taken its place",
        "nothing that is known: who is deposed may acknowledge no more",
    ),
    "behind": (
        "who became master did not have all that the one before had acknowledged",
        "acknowledging only what other nodes have, and promoting who is furthest ahead",
    ),
}

_WHEN_SYNCED = {"ha-promote-on-failure": "when-synced", "ha-sync-mode": "automatic"}
_PAUSE_MINORITY = {"partition_mode": "pause_minority"}
_COPIES_FIRST: dict[str, Mapping[str, object]] = {
    "master-slave": {"broker.role": "SYNC_MASTER"},
    "controller": {"ha.all_ack_in_sync_state_set": True, "ha.min_in_sync_replicas": 2},
}
# By window and system ("": any) the settings that close it. Where there are none, none does.
_SETTINGS: dict[str, Mapping[str, Mapping[str, object]]] = {
    "L1": {"": _WHEN_SYNCED},
    "L2": {"": {"ha-sync-mode": "automatic"}},
    "L3": {"": _PAUSE_MINORITY},
    "L4": {"": _WHEN_SYNCED},
    "L8": {"": {"ha-promote-on-shutdown": "when-synced"}},
    "unflushed": {
        "master-slave": {"store.flush": "sync"},
        "controller": {"store.flush": "sync"},
        "dledger": {"raft.flush_interval_ms": 0},
    },
    "alone": _COPIES_FIRST,
    "asleep": _COPIES_FIRST,
    "behind": _COPIES_FIRST,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """``closed``: what would close the window; ``own``: what the run had, or "" for a default."""

    name: str
    closed: str
    own: str

    @property
    def is_set(self) -> bool:
        return self.own == self.closed


def closing_settings(window: str, plan: Plan) -> list[Setting]:
    """The settings that close a window in the plan's system, beside the plan's own."""
    by_system = _SETTINGS.get(window, {})
    wanted = by_system.get(plan.system.name, by_system.get("", {}))
    had = {**plan.system.parameters, **plan.system.policy}
    return [
        Setting(name, _word(value), _word(had[name]) if name in had else "")
        for name, value in wanted.items()
    ]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
