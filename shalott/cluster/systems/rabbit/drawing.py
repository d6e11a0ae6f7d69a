"""What a search draws of our mirrored queues: partition modes, timings, and settings that keep
what a profile promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shalott.cluster.systems.record import Drawn
from shalott.core.rng import Draw

BENIGN_SYNC_BATCHES = (1, 16, 4096)  # ha-sync-batch-size: how much travels at once, no promise
# A message takes 600 bytes and its own: the lowest stops publishers at a few dozen.
MEMORY_LIMITS = (0, 0, 0, 20_000, 60_000)
RECOVERY_DELAYS_MS = (0, 0, 0, 100, 500)
# All queues are in one; a name may have what a path has to escape.
VHOSTS = ("/", "/", "/", "orders", "a/b c%2f\u00fc")
ALL_MODES = ("ignore", "pause_minority", "autoheal")
SAFE_MODES = ("pause_minority",)  # ``safe`` promises something under this one only

# What every search wants to see, and what only some partition modes can show.
ALWAYS = (
    *("promoted", "not_promoted", "demoted", "sync_complete", "sync_interrupted", "partition"),
    *("rejoined_and_wiped", "client_ok", "client_fail", "client_info", "redelivered"),
)
BY_MODE: Mapping[str, Sequence[str]] = {
    "pause_minority": ("paused", "resumed"),
    "autoheal": ("autoheal", "autoheal_lost"),
    "ignore": ("operator_restart",),
}


def draw_mirrored(profile: str, node_count: int, draw: Draw) -> Drawn:
    return Drawn(
        parameters={
            "partition_mode": draw.knob("partition_modes", modes_of(profile)),
            "net_tick_ms": draw.knob("net_tick_ms", (1000, 2000, 4000)),
            "startup_delay_ms": draw.knob("startup_delay_ms", (0, 0, 0, 200, 1000)),
            "recovery_delay_ms": draw.knob("recovery_delay_ms", RECOVERY_DELAYS_MS),
            "memory_limit_bytes": draw.knob("memory_limit_bytes", MEMORY_LIMITS),
            "operator": draw.knob("operators", ("restart-minority",)),
            "vhost": draw.knob("vhosts", VHOSTS),
        },
        policy=draw.knob("policies", _policies(profile, node_count)),
    )


def modes_of(profile: str) -> tuple[str, ...]:
    return SAFE_MODES if profile == "safe" else ALL_MODES


def wanted_in(profile: str, knobs: Mapping[str, Any]) -> tuple[str, ...]:
    """What a campaign of these knobs wants to see."""
    modes = knobs.get("partition_modes", modes_of(profile))
    return (*ALWAYS, *(name for mode in modes for name in BY_MODE[mode]))


def _policies(profile: str, node_count: int) -> tuple[Mapping[str, Any], ...]:
    """Variations that keep what the profile promises."""
    some = node_count // 2 + 1
    spread: list[dict[str, Any]] = [{}, {}, {"ha-mode": "exactly", "ha-params": some}]
    if profile == "safe":
        batches = [{"ha-sync-batch-size": size} for size in BENIGN_SYNC_BATCHES]
        lazy: list[dict[str, Any]] = [{}, {}, {"queue-mode": "lazy"}]
        return tuple(
            {**one, **batch, **mode} for one in spread for batch in batches for mode in lazy
        )
    others: list[dict[str, Any]] = [
        {},
        {"ha-sync-mode": "automatic"},
        {"ha-promote-on-failure": "when-synced"},
        {"ha-promote-on-shutdown": "always"},
    ]
    return tuple({**one, **other} for one in spread for other in others)
