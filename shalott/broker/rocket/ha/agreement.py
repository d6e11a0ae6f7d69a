"""Agreement: a follower of a new master finds out up to where their logs are the same, and cuts.

Upstream leaves this to the operator who fails over by hand: a slave that follows another master
than before appends where its own log ends, without a look at what lies before (KB-RKT-06,
KB-RKT-03); its manual says to wipe it. HAService has no epochs to compare, but it sends bytes from
wherever it is asked, so ours asks for bytes that it has and compares.

A stored message bears its offset, its queue offset, its time and its store host, so equal bytes at
one offset were appended once, by one master, after one history: where a whole message is the same,
everything before it is. It is therefore enough to go back file by file until a file begins with a
message that both have. The first difference after that, or the end of the master's log (which its
heartbeat tells), is where the logs part, and the follower cuts there, between messages. What it
cuts was never acknowledged by a synchronous master that had a slave: that slave, or one that is
ahead of it, is the one to promote.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass

from shalott.broker.rocket.commitlog.api import Log
from shalott.broker.rocket.commitlog.log_reads import read_fully
from shalott.broker.rocket.ha.packets import Frame, FrameReader, HaProtocolError, encode_report

READ_BYTES = 1 << 17


@dataclass(frozen=True, slots=True)
class AgreementRules:
    """``silence_ms``: a master that says nothing for so long is gone."""

    segment_bytes: int
    connect_ms: float
    silence_ms: float


async def find_agreement(
    log: Log, dial: Callable[[], tuple[str, int]], rules: AgreementRules
) -> int:
    """The end of what this log and the master's share, between messages.

    Raises OSError, TimeoutError or HaProtocolError if the master does not let us compare now.
    """
    end = log.max_offset
    start = end
    while start > log.min_offset:
        start = max(log.min_offset, (start - 1) - (start - 1) % rules.segment_bytes)
        parted = await _compare(log, start, end, dial, rules)
        agreed = start if parted is None else await last_boundary(log, start, parted)
        if agreed > start:
            return agreed
    return start


async def _compare(
    log: Log, start: int, end: int, dial: Callable[[], tuple[str, int]], rules: AgreementRules
) -> int | None:
    """Where the logs part, at most ``end``; None if the master's log does not reach ``start``."""
    host, port = dial()
    async with asyncio.timeout(rules.connect_ms / 1000):
        reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(encode_report(start))
        return await _read_and_compare(log, start, end, reader, rules)
    except EOFError as error:
        if start == log.min_offset:  # no master refuses that: this one is none, or just died
            raise HaProtocolError("the master does not let us compare") from error
        return None
    finally:
        writer.transport.abort()


async def _read_and_compare(
    log: Log, start: int, end: int, reader: asyncio.StreamReader, rules: AgreementRules
) -> int:
    """Raises EOFError if the connection ends before a frame has come."""
    frames, position, heard = FrameReader(), start, False
    while position < end:
        async with asyncio.timeout(rules.silence_ms / 1000):
            data = await reader.read(READ_BYTES)
        if not data and not heard:
            raise EOFError
        if not data:
            raise HaProtocolError("the master ended the connection")
        for frame in frames.feed(data):
            heard = True
            if frame.offset != position:
                raise HaProtocolError(f"the master sends {frame.offset} instead of {position}")
            if not frame.body:
                return position
            same = await _equal_bytes(log, frame, end)
            if same < len(frame.body):
                return position + same
            position = frame.end
    return end


async def _equal_bytes(log: Log, frame: Frame, end: int) -> int:
    """How many bytes of the frame are also here; all of them if the rest is beyond ``end``."""
    size = min(len(frame.body), end - frame.offset)
    own = await read_fully(log, frame.offset, size)
    if own == frame.body[:size]:
        return len(frame.body)
    return next(
        (
            index
            for index, (one, other) in enumerate(zip(own, frame.body, strict=False))
            if one != other
        ),
        len(own),
    )


# -- where messages end ----------------------------------------------------------------------------
# A walk along the size fields of stored messages (docs/protocols.md 6.3). HAService sends raw
# bytes, so a slave's log may end in the middle of a message. A broker that becomes master, or
# cuts its log, cuts between messages.


SIZE = struct.Struct(">I")


async def last_boundary(log: Log, start: int, limit: int) -> int:
    """The last end of a whole message, or of a file's padding, that is not beyond ``limit``;
    ``start`` is one. Bytes from ``start`` on must have come from a master.
    """
    position = start
    while position + SIZE.size <= limit:
        head = await read_fully(log, position, SIZE.size)
        if len(head) < SIZE.size:
            break
        size = int(SIZE.unpack(head)[0])
        if size < SIZE.size or position + size > limit:
            break
        position += size
    return position
