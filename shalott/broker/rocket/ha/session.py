"""One slave's connection as its master sees it: a state machine without a socket or a clock.

After store/ha/DefaultHAConnection.java; docs/protocols.md 1.3. ``received`` takes the slave's
bytes, ``next_step`` says what to send. Its driver sends a frame completely before it asks
for the next step.

Where ours differs from 4.9.8, each behind the switch of the bug:
- A report beyond the master's log ends the connection, also the first one, which 4.9.8 exempts:
  that slave has what its master lost (an unflushed tail, say), so what follows at that offset here
  is other bytes, and its report confirms nothing (KB-RKT-06). Upstream 5.x believes all reports
  (KB-RKT-01), and so does ours with that switch: any eight stray bytes acknowledge anything.
- With KB-RKT-03, a slave whose offset is not there is not told: it gets heartbeats for ever.
- A new slave gets the log from its beginning; with KB-RKT-04 (or sync_from_last_file) only from
  the beginning of the newest file.
"""

from __future__ import annotations

from dataclasses import dataclass

from shalott.broker.rocket.ha.packets import HaProtocolError, ReportReader

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Extent:
    """The master's log: ``end`` is where transfer ends now, ``max`` where appending goes on."""

    min: int
    end: int
    max: int


@dataclass(frozen=True, slots=True)
class SessionRules:
    """What a session is configured with. Times are ms of one clock."""

    batch_bytes: int
    heartbeat_interval_ms: float
    housekeeping_interval_ms: float
    segment_bytes: int
    last_file_only: bool = False  # KB-RKT-04, sync_from_last_file
    trusts_reports: bool = False  # KB-RKT-01
    acks_beyond_end: bool = False  # KB-RKT-06: the first report is exempt from the check
    stalls_on_missing: bool = False  # KB-RKT-03


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``size`` bytes of the log from ``offset``; 0 bytes is a heartbeat."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to send before ``until_ms``, unless the log grows or the slave reports."""

    until_ms: float


class MasterSession:
    def __init__(self, rules: SessionRules, now_ms: float) -> None:
        self.slave_request_offset = UNKNOWN
        self.slave_ack_offset = UNKNOWN
        self.next_transfer_from = UNKNOWN
        self.transferred_bytes = 0
        self._rules = rules
        self._reports = ReportReader()
        self._last_read_ms = now_ms
        self._last_write_ms = now_ms

    def received(self, data: bytes, extent: Extent, now_ms: float) -> bool:
        """Take bytes of the slave; whether there was a report. Raises HaProtocolError for a report
        that can't be true.
        """
        self._last_read_ms = now_ms
        offset = self._reports.feed(data)
        if offset is None:
            return False
        self._check(offset, extent)
        if self._is_missing(offset, extent) and not self._acks_what_is_missing():
            if self.slave_request_offset < 0:
                self.slave_request_offset = offset  # KB-RKT-03: it stalls, acknowledging nothing
            return True
        self.slave_ack_offset = offset
        if self.slave_request_offset < 0:
            self.slave_request_offset = offset
        return True

    def _check(self, offset: int, extent: Extent) -> None:
        rules, is_first = self._rules, self.slave_request_offset < 0
        if rules.trusts_reports:
            return
        if offset < 0:
            raise HaProtocolError(f"the slave reports {offset}")
        if not self._is_missing(offset, extent):
            return
        if rules.stalls_on_missing or (is_first and rules.acks_beyond_end):
            return
        raise HaProtocolError(
            f"the slave reports {offset}; this log is from {extent.min} to {extent.max}"
        )

    def _is_missing(self, offset: int, extent: Extent) -> bool:
        """Whether the log has no bytes there and none come next. A report of 0 asks for the start
        rule, so it never is.
        """
        before = self.slave_request_offset < 0 and 0 < offset < extent.min
        return before or offset > extent.max

    def _acks_what_is_missing(self) -> bool:
        return self._rules.trusts_reports or self._rules.acks_beyond_end

    def next_step(self, extent: Extent, now_ms: float) -> Send | Wait:
        """What to do now. Raises HaProtocolError when the slave has been silent for too long."""
        rules = self._rules
        silent_at_ms = self._last_read_ms + rules.housekeeping_interval_ms
        if now_ms >= silent_at_ms:
            raise HaProtocolError("the slave is silent")
        if self.slave_request_offset < 0:
            return Wait(silent_at_ms)
        if self.next_transfer_from < 0:
            self.next_transfer_from = self._start(extent)
        if extent.min <= self.next_transfer_from < extent.end:
            size = min(rules.batch_bytes, extent.end - self.next_transfer_from)
            return Send(self.next_transfer_from, size)
        if self.next_transfer_from < extent.min and not rules.stalls_on_missing:
            # Files went under a slave that is far behind: it hears so, instead of heartbeats.
            raise HaProtocolError(f"the bytes at {self.next_transfer_from} are gone")
        heartbeat_at_ms = self._last_write_ms + rules.heartbeat_interval_ms
        if now_ms >= heartbeat_at_ms:
            return Send(self.next_transfer_from, 0)
        return Wait(min(heartbeat_at_ms, silent_at_ms))

    def _start(self, extent: Extent) -> int:
        if self.slave_request_offset > 0:
            return self.slave_request_offset
        if self._rules.last_file_only:
            return max(extent.min, extent.end - extent.end % self._rules.segment_bytes)
        return extent.min

    def sent(self, step: Send, size: int, now_ms: float) -> None:
        """``step`` went out, with so many bytes (the log may give fewer at a file's end)."""
        assert step.offset == self.next_transfer_from
        self.next_transfer_from += size
        self.transferred_bytes += size
        self._last_write_ms = now_ms
