"""What the systems of our own broker share: its node events as rows of EVENT_SCHEMA, put on the
run's clock by their wall clock, and the known bugs that a plan switches on in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from shalott.broker.base.errors import ConfigError
from shalott.broker.base.events import Event
from shalott.broker.known_bugs import check_bugs, known_bug
from shalott.cluster.system import EventRow
from shalott.core.errors import UsageError
from shalott.core.plan import SystemPlan

log = logging.getLogger("shalott.cluster.systems")


def event_row(
    event: Event, run_start_wall_ns: int, group_of: Callable[[str], str] = str
) -> EventRow:
    """One row. ``detail`` is JSON, or null if there is none. ``group_of``: as in NamesGroups."""
    row = msgspec.structs.asdict(event)
    row["group"] = group_of(event.group)
    row["run_ns"] = event.wall_ns - run_start_wall_ns
    row["detail"] = msgspec.json.encode(event.detail).decode() if event.detail else None
    return row


def read_event_file(path: Path) -> Iterator[Event]:
    """The events of one ``events.jsonl``. A line that a kill cut short is passed over, with a
    warning."""
    if not path.is_file():
        log.warning("there are no node events in %s", path)
        return
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            yield msgspec.json.decode(line, type=Event)
        except msgspec.MsgspecError as error:
            log.warning("%s:%d is not an event: %s", path, number, error)


def check_own_bugs(system: SystemPlan) -> None:
    """Raises UsageError for what is no known bug, or one of another system."""
    try:
        check_bugs(system.bugs)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    for bug in map(known_bug, system.bugs):
        if system.name not in bug.systems:
            raise UsageError(
                f"{bug.id} is a bug of {' and '.join(bug.systems)}, not of {system.name}: leave it"
                f" out, or use --system {bug.systems[0]}"
            )
