"""DirectedLink and Lane: what one direction of a relayed connection does with its bytes.

A link is what a fault speaks of: (source, destination), cut or not, with a delay and a rate. A
lane is one direction of one TCP connection over it. A cut link holds its bytes as TCP would:
nothing more is read from the sender, so its buffers fill and it hangs; what was read already
waits here; all of it goes on in order after the mend, the end of the stream too. So a node that
dies behind a cut is not noticed on the other side until the cut ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

HELD_BYTES_MAX = 256 * 1024  # per lane; then the sender is no longer read
SLICE_S = 0.02  # a throttled lane sends at most this much worth of bytes at once


class Mark(Enum):
    """What a lane carries besides bytes, in their order."""

    END = "the sender closed its side"
    RESET = "the sender's connection broke"


class Sink(Protocol):
    """Where a lane's bytes go: a transport, or a probe."""

    def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool: ...


class Source(Protocol):
    """Where a lane's bytes come from: a transport."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool: ...


class DirectedLink:
    """All that is sent from one node to another, over whatever connection."""

    def __init__(self) -> None:
        self.is_cut = False
        self.delay_s = 0.0
        self.rate_bytes_s = 0
        self.free_at = 0.0  # when the throttled line has sent what it was given
        self._lanes: dict[Lane, None] = {}
        self._on_mend: list[Callable[[], None]] = []

    def add(self, lane: Lane) -> None:
        self._lanes[lane] = None

    def discard(self, lane: Lane) -> None:
        self._lanes.pop(lane, None)

    def set_cut(self, is_cut: bool) -> None:
        self.is_cut = is_cut
        self._wake()
        if not is_cut:
            waiting, self._on_mend = self._on_mend, []
            for callback in waiting:
                callback()

    def set_shape(self, delay_s: float, rate_bytes_s: int) -> None:
        self.delay_s, self.rate_bytes_s, self.free_at = delay_s, rate_bytes_s, 0.0
        self._wake()

    def when_mended(self, callback: Callable[[], None]) -> None:
        """Call back once, at the next mend."""
        self._on_mend.append(callback)

    def _wake(self) -> None:
        for lane in list(self._lanes):
            lane.pump()


class Lane:
    """One direction of one connection. ``sink`` is None until the far side is connected.

    ``on_end`` is called when the end of the stream has been passed on.
    """

    def __init__(self, link: DirectedLink, on_end: Callable[[], None]) -> None:
        self.link = link
        self._on_end = on_end
        self.source: Source | None = None
        self.sink: Sink | None = None
        self._sink_full = False
        self._reading = True
        self._queue: deque[tuple[float, bytes | Mark]] = deque()  # each when it is due
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        link.add(self)

    def feed(self, item: bytes | Mark) -> None:
        """Something from the sender."""
        self._queue.append((self._loop.time() + self.link.delay_s, item))
        self._held_bytes += len(item) if isinstance(item, bytes) else 0
        self.pump()

    def connect(self, source: Source, sink: Sink) -> None:
        self.source, self.sink = source, sink
        self.pump()

    def sink_is_full(self, full: bool) -> None:
        """The receiver's side says whether it takes more."""
        self._sink_full = full
        self.pump()

    def close(self) -> None:
        self.link.discard(self)
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def pump(self) -> None:
        """Send what may go now; come back when more may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and self.sink is not None and not (self.link.is_cut or self._sink_full):
            due, item = self._queue[0]
            wait_until = max(due, self.link.free_at if self.link.rate_bytes_s else 0)
            if wait_until > self._loop.time():
                self._timer = self._loop.call_at(wait_until, self.pump)
                break
            self._queue.popleft()
            if isinstance(item, Mark):
                self._pass_on(self.sink, item)
            else:
                self._send(self.sink, due, item)
        self._regulate()

    def _pass_on(self, sink: Sink, mark: Mark) -> None:
        if mark is Mark.RESET:
            sink.abort()
        else:
            sink.write_eof()
            self._on_end()

    def _send(self, sink: Sink, due: float, data: bytes) -> None:
        rate = self.link.rate_bytes_s
        if rate:
            size = max(1, int(rate * SLICE_S))
            if len(data) > size:
                self._queue.appendleft((due, data[size:]))
                data = data[:size]
            self.link.free_at = max(self._loop.time(), self.link.free_at) + len(data) / rate
        self._held_bytes -= len(data)
        if not sink.is_closing():  # else the receiver is gone, and its reset is on its way back
            sink.write(data)

    def _regulate(self) -> None:
        """Read from the sender only while there is room and the link is whole."""
        # Before the far side is connected reading goes on: a dialler that gives up must be noticed.
        blocked = self.sink is not None and (self.link.is_cut or self._sink_full)
        wanted = not blocked and self._held_bytes < HELD_BYTES_MAX
        if self.source is None or wanted == self._reading or self.source.is_closing():
            return
        self._reading = wanted
        if wanted:
            self.source.resume_reading()
        else:
            self.source.pause_reading()
