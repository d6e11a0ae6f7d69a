"""All that the nodes' logs tell, as rows of EVENT_SCHEMA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shalott.broker.base.events import Event
from shalott.cluster.systems.events import event_row
from shalott.cluster.systems.rocketmq_original.broker_log import BrokerLog
from shalott.cluster.systems.rocketmq_original.config import GROUP
from shalott.cluster.systems.rocketmq_original.controller_log import ControllerLog, complete_sets
from shalott.cluster.systems.rocketmq_original.lines import Where

# A name server has its node's controller in it.
WITH_CONTROLLERS = ("nameserver", "controller")


def read_events(
    collected: Path, run_start_wall_ns: int, where: Where
) -> Sequence[Mapping[str, Any]]:
    """``collected``: a directory for each node, with its ``log``."""
    found: list[Event] = []
    for directory in sorted(collected.glob("*/log")):
        node = directory.parent.name
        broker = directory / "broker.log"
        if broker.is_file():
            found += BrokerLog(node, GROUP, where).events(broker)
        for service in WITH_CONTROLLERS:
            path = directory / f"{service}.log"
            if path.is_file():
                found += ControllerLog(node, where).events(path)
    found.sort(key=lambda event: event.wall_ns)
    return [event_row(event, run_start_wall_ns) for event in complete_sets(found, where)]
