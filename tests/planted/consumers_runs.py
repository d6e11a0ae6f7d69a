"""The runs that show the planted defects of consumers' code, and in which the sound broker is
valid. Short: each submission makes some of them, and nights make all.
"""

from __future__ import annotations

from collections.abc import Mapping

_AMQP = (
    *("test", "--system", "mirrored", "--profile", "safe", "--workload", "consume"),
    *("--cluster", "sim", "--rate", "100"),
)
_CALM = (*_AMQP, "--nemesis", "none", "--time-limit", "6")
_KILL = (
    *(*_AMQP, "--nemesis", "kill", "--targets", "master", "--time-limit", "9"),
    *("--nemesis-interval", "4", "--nemesis-duration", "2", "--settle", "400ms"),
)
_GROUP = (
    *("test", "--system", "controller", "--profile", "safe", "--workload", "group"),
    *("--cluster", "sim", "--rate", "50"),
)
RUNS: Mapping[str, tuple[str, ...]] = {
    # Consumers of each kind; some share a channel, or settle several at once.
    "calm": (
        *(*_CALM, "--seed", "1"),
        *("--kinds", "plain,dead-letters+ttl,length+dead-letters,single-active,priorities"),
        *("--per-channel", "0.4", "--shared-channels", "0.5", "--consumer-priorities", "0.5"),
        *("--batches", "0.5", "--recovers", "0.01"),
    ),
    "kill": (
        *(*_KILL, "--seed", "1", "--cancel-on-failover", "0.5"),
        *("--kinds", "plain,dead-letters+ttl,single-active,exclusive,priorities"),
    ),
    "group": (
        *(*_GROUP, "--nemesis", "none", "--time-limit", "10", "--seed", "1"),
        *("--change", "1500ms", "--later", "0.2", "--poison", "0.05"),
    ),
}
