"""Broadcasts: what a GM member has to say and has not said yet, and what it wants confirmed.

Numbers are given when a message is taken, so they are what the ring will see. A timer flushes the
buffer; a confirmed broadcast, and a full buffer, flush it at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from shalott.broker.rabbit.gm.activity import (
    Activity,
    ActivityItem,
    Catchup,
    MemberSnapshot,
    MembersState,
    Pub,
)
from shalott.broker.rabbit.gm.inputs import (
    CancelFlushTimer,
    Confirmed,
    Deliver,
    Output,
    Send,
    StartFlushTimer,
)
from shalott.broker.rabbit.gm.ring import Ring
from shalott.broker.rabbit.metadata.records import MemberId

BUFFER_BYTES_MAX = 100_000_000


class Broadcasts:
    """One member's. ``last`` is the number of the newest message, -1 before the first."""

    def __init__(
        self, id: MemberId, ring: Ring, publishers: MembersState, emit: Callable[[Output], None]
    ) -> None:
        self.last = -1
        self.pubs: list[Pub] = []  # in the buffer
        self._bytes = 0  # of their payloads
        self._wanted: deque[tuple[int, int]] = deque()  # (number, token)
        self._timer_runs = False
        self._id = id
        self._ring = ring
        self._publishers = publishers
        self._emit = emit

    def broadcast(self, payload: bytes) -> None:
        if not self._ring.is_alone:
            self.last += 1
            self.pubs.append((self.last, payload))
            self._bytes += len(payload)
        self._emit(Deliver(self._id.pid, payload))
        if self._bytes > BUFFER_BYTES_MAX:
            self.flush()

    def confirmed_broadcast(self, payload: bytes, token: int) -> None:
        """Confirmed(token) follows when every member has delivered it."""
        self.broadcast(payload)
        if self._ring.is_alone:
            self._emit(Confirmed(token))
        else:
            self._wanted.append((self.last, token))
            self.flush()

    def is_home(self, number: int) -> bool:
        """Whether every member has delivered all broadcasts of this one up to ``number``."""
        pending = (*self._publishers.own_pending, *self.pubs)
        return all(first > number for first, _ in pending[:1])

    # -- the buffer --------------------------------------------------------------------------------

    def flush(self) -> None:
        pubs = self._take()
        if pubs:
            self.send_right([ActivityItem(self._id, pubs, ())])
            self._publishers.of(self._id).publish(pubs)

    def send_right(self, items: Sequence[ActivityItem]) -> None:
        """Pubs and acks, this member's own and those that it passes on."""
        ring = self._ring
        assert ring.view is not None
        if items and ring.speaks:
            message = Activity(ring.right, self._id, ring.view.version, tuple(items))
            self._emit(Send(ring.right, message))

    def forward(self, states: tuple[MemberSnapshot, ...]) -> None:
        """A catchup, as it came from the left."""
        ring = self._ring
        assert ring.view is not None
        if not ring.is_alone:
            self._emit(Send(ring.right, Catchup(ring.right, self._id, ring.view.version, states)))

    def deliver(self, items: Sequence[ActivityItem]) -> None:
        """What others have published."""
        for item in items:
            for _, payload in item.pubs:
                self._emit(Deliver(item.publisher.pid, payload))

    def _take(self) -> tuple[Pub, ...]:
        """What is to be sent now; the buffer is empty then."""
        pubs, self.pubs, self._bytes = tuple(self.pubs), [], 0
        return pubs

    def drop(self) -> None:
        """No other member is left to be told."""
        self._take()

    def timer_fired(self) -> None:
        self._timer_runs = False
        self.flush()

    def keep_timer(self) -> None:
        """It runs while something is in the buffer."""
        if self.pubs and not self._timer_runs:
            self._timer_runs = True
            self._emit(StartFlushTimer())
        elif not self.pubs and self._timer_runs:
            self._timer_runs = False
            self._emit(CancelFlushTimer())

    # -- confirms ----------------------------------------------------------------------------------

    def came_home(self, numbers: Sequence[int]) -> None:
        """Confirm these, and with them all that is older."""
        while numbers and self._wanted and self._wanted[0][0] <= numbers[-1]:
            self._emit(Confirmed(self._wanted.popleft()[1]))

    def settle_confirms(self, *, ok: bool) -> None:
        """All that were asked for: this member is alone now, or it ends."""
        wanted, self._wanted = self._wanted, deque()
        for _, token in wanted:
            self._emit(Confirmed(token, ok=ok))
