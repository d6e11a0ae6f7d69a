"""Counts: what channels have done, each for itself and all of a node together.

Names are those of the management API's ``message_stats`` (rabbit_core_metrics.hrl). A node's
counts live as long as its broker; a channel's end with it.
"""

from __future__ import annotations

from collections.abc import Mapping

PUBLISHED = ("publish", "confirm", "return_unroutable", "drop_unroutable")
DELIVERED = ("get", "get_no_ack", "deliver", "deliver_no_ack")
CONSUMED = (*DELIVERED, "redeliver", "ack", "get_empty")
# Of a node, beside those.
ROUTED, EXPECTED = "routed", "publish_confirm"  # messages to queues; publishes with confirms
PUBLISHERS = "publishers"  # channels that have published, and have not ended
DEAD = "dead_lettered_"  # and the reason
OPENED, CHANNELS_OPENED, CHANNELS_CLOSED = "opened", "channels_opened", "channels_closed"
AUTHENTICATED, REFUSED = "auth_attempts_succeeded", "auth_attempts_failed"


class Counts:
    """``within``: the node's, which count the same."""

    def __init__(self, within: Counts | None = None) -> None:
        self._within = within
        self._counts: dict[str, int] = {}

    def add(self, name: str, count: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + count
        if self._within is not None:
            self._within.add(name, count)

    def forget(self, *names: str) -> None:
        for name in names:
            self._counts.pop(name, None)

    def of(self, name: str) -> int:
        return self._counts.get(name, 0)

    def every(self) -> Mapping[str, int]:
        return dict(self._counts)

    def message_stats(self) -> Mapping[str, int]:
        """Of publishing and of consuming, each as soon as anything of it was done."""
        shown: dict[str, int] = {}
        for names in (PUBLISHED, CONSUMED):
            if any(map(self.of, names)):
                shown |= {name: self.of(name) for name in names}
        if CONSUMED[0] in shown:
            shown["deliver_get"] = sum(map(self.of, DELIVERED))
        return shown
