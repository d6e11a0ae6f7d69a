"""AckedEvents: tells the event log when sends were taken that were acknowledged with SEND_OK.

The checkers judge from these intervals whether two brokers of a group acknowledged at once or in
one epoch, so an interval never spans a change of epoch, and what was acknowledged is told at most
100 ms later. The times are those at which the sends were taken: what was replicated in time may be
acknowledged late, after a pause say, when another broker is master already, and nothing is wrong.

``end`` is how far the log was acknowledged, and ``holders`` who had each of the messages when it
was acknowledged, where brokers have ids: what the invariants are judged by (docs/protocols.md 2.9).
"""

from __future__ import annotations

import asyncio

from shalott.broker.base.env import Env

INTERVAL_S = 0.1


class AckedEvents:
    """Of one broker group on this node."""

    def __init__(self, env: Env, group: str) -> None:
        self._env = env
        self._group = group
        self._epoch = 0
        self._first_ns = 0
        self._last_ns = 0
        self._count = 0
        self._end = 0
        self._holders: tuple[int, ...] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def acked(
        self,
        epoch: int,
        taken_ns: int,
        count: int = 1,
        *,
        end: int = 0,
        holders: tuple[int, ...] | None = None,
    ) -> None:
        """``count`` messages that were taken then are acknowledged now, under ``epoch``. The last
        one ends at ``end``; ``holders`` have them, too.
        """
        if self._count and epoch != self._epoch:
            self.flush()
        if not self._count:
            self._first_ns = self._last_ns = taken_ns
            self._epoch, self._end, self._holders = epoch, end, holders
        self._first_ns = min(self._first_ns, taken_ns)
        self._last_ns = max(self._last_ns, taken_ns)
        self._count += count
        self._end = max(self._end, end)
        if holders is not None and self._holders is not None:
            self._holders = tuple(one for one in self._holders if one in holders)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._time_is_up)

    def flush(self) -> None:
        """Tell what has gathered."""
        if self._count:
            detail: dict[str, object] = {
                "first_ns": self._first_ns,
                "last_ns": self._last_ns,
                "count": self._count,
                "end": self._end,
            }
            if self._holders is not None:
                detail["holders"] = list(self._holders)
            self._count = 0
            self._env.events.emit(
                self._group, "acked", role="master", epoch=self._epoch, detail=detail
            )

    def stop(self) -> None:
        """At the node's orderly end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.flush()

    def _time_is_up(self) -> None:
        self._timer = None
        self.flush()
