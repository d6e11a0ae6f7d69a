"""Where in a node's log a second of the run stands.

Lines say when they were written in one of three ways: seconds since the run's start (nodes of the
simulation), a date and a time (brokers on real nodes; UTC, unless the line names another zone), or
``wall_ns`` in JSON. Logs are written in the order of time, so a place is found by halving the file;
lines without a time, such as those of a stack trace, belong to the last one that has one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import BinaryIO

PROBE_BYTES = 64 << 10  # a line with a time is looked for in so much
_SINCE_START = re.compile(rb"\s*(\d{1,9}\.\d{3,9})\s")
_DATED = re.compile(
    rb"\D{0,40}(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?"
)
_JSON = re.compile(rb'\{.{0,200}?"wall_ns":\s*(\d{1,19})')


def time_of(line: bytes, start_wall_ns: int) -> int | None:
    """When the line was written, in ns since the run's start; None if it does not say."""
    if found := _SINCE_START.match(line):
        return round(float(found[1]) * 1e9)
    if found := _JSON.match(line):
        return int(found[1]) - start_wall_ns
    if found := _DATED.match(line):
        day, clock, fraction, zone = (None if x is None else x.decode() for x in found.groups())
        try:
            at = datetime.fromisoformat(f"{day}T{clock}{zone or '+00:00'}")
        except ValueError:
            return None
        whole_s = round((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
        return whole_s * 10**9 + int((fraction or "0").ljust(9, "0")) - start_wall_ns
    return None


def place_of_time(file: BinaryIO, at_ns: int, start_wall_ns: int) -> int | None:
    """The byte at which the first line begins that was written at ``at_ns`` or later; the file's
    size if there is none, None if no line says when it was written."""
    low, high = 0, file.seek(0, 2)
    size, seen = high, False
    while low < high:
        middle = (low + high) // 2
        found = _next_timed(file, middle, high, start_wall_ns)
        if found is None:
            high = middle
            continue
        seen = True
        begin, end, time_ns = found
        if time_ns < at_ns:
            low = end
        elif begin <= low or middle <= low:
            return begin
        else:
            high = middle
    if seen:
        found = _next_timed(file, low, size, start_wall_ns)
        return found[0] if found is not None else size
    return None


def _next_timed(
    file: BinaryIO, at: int, end: int, start_wall_ns: int
) -> tuple[int, int, int] | None:
    """(begin, end, time) of the first line with a time that begins at ``at`` or later."""
    file.seek(max(0, at - 1))
    data = file.read(PROBE_BYTES)
    place = 0 if at == 0 else data.find(b"\n") + 1
    begin = max(0, at - 1)
    if at and not place:
        return None
    while place < len(data) and begin + place < end:
        after = data.find(b"\n", place) + 1 or len(data)
        time_ns = time_of(data[place:after], start_wall_ns)
        if time_ns is not None:
            return begin + place, begin + after, time_ns
        place = after
    return None
