"""What the original RocketMQ can be told besides its settings, and which releases there are."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Replication = Literal["master-slave", "dledger", "controller"]
# Of which all jars can be had.
Release = Literal[
    "4.9.4", "4.9.7", "5.0.0", "5.1.0", "5.1.1", "5.1.4", "5.2.0", "5.3.3", "5.4.0", "5.5.0"
]


class RocketmqParameters(msgspec.Struct, frozen=True, kw_only=True):
    """``topic_made_at``: brokers of the original copy their tables from the master 60 s after they
    have started and every 60 s then, so a topic that was made at the master alone is unknown to a
    slave that takes over before. "all" makes it at every broker, as if it had been made long ago.
    """

    replication: Annotated[
        Replication, msgspec.Meta(description="How brokers copy their log, and who elects.")
    ] = "controller"
    version: Annotated[Release, msgspec.Meta(description="Release of RocketMQ.")] = "5.3.3"
    topic_made_at: Annotated[
        Literal["all", "master"],
        msgspec.Meta(description="Which brokers know the topic when the load begins."),
    ] = "all"


def numbers(release: str) -> tuple[int, ...]:
    """For comparing: (5, 3, 3)."""
    return tuple(int(number) for number in release.split("."))


def has_controllers(release: str) -> bool:
    return numbers(release) >= (5, 0, 0)
