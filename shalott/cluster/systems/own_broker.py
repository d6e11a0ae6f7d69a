"""What systems share: node events as rows of EVENT_SCHEMA, put on the run's clock, and of our own
broker the known bugs that a plan switches on in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from shalott.broker.base.errors import ConfigError
from shalott.broker.base.events import Event
from shalott.broker.known_bugs import check_bugs, known_bug
from shalott.cluster.system import EventRow
from shalott.core.errors import UsageError
from shalott.core.plan import SystemPlan
from shalott.core.timeline import RunStart, place_log

log = logging.getLogger("shalott.cluster.systems")


def event_row(
    event: Event, run_start_wall_ns: int, group_of: Callable[[str], str] = str
) -> EventRow:
    """One row, of an event with a monotonic time. ``detail`` is JSON, or null if there is none.
    ``group_of``: as in NamesGroups. ``run_ns`` is null if it can't be placed."""
    start = run_start_wall_ns
    if isinstance(start, RunStart):
        return placed_row(event, start.place(event.node, event.at_ns, event.wall_ns), group_of)
    return placed_row(event, event.wall_ns - start, group_of)


def log_rows(events: Iterable[Event], run_start_wall_ns: int) -> list[EventRow]:
    """Rows of one node's log in its order, which has no other times than the wall clock's."""
    told = list(events)
    if not told:
        return []
    placed = place_log(run_start_wall_ns, told[0].node, [event.wall_ns for event in told])
    return [placed_row(event, run_ns) for event, run_ns in zip(told, placed, strict=True)]


def in_order(rows: Iterable[EventRow]) -> list[EventRow]:
    """By their times of the run; those that can't be placed last."""
    return sorted(rows, key=lambda row: (row["run_ns"] is None, row["run_ns"] or 0))


def placed_row(event: Event, run_ns: int | None, group_of: Callable[[str], str] = str) -> EventRow:
    """One row, at that time of the run."""
    row = msgspec.structs.asdict(event)
    row["group"] = group_of(event.group)
    row["run_ns"] = run_ns
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
