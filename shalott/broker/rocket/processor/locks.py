"""QueueLocks: which client of a group consumes a queue in order (upstream: RebalanceLockManager).

A lock is its client's for 60 seconds after the last request for it, which clients repeat every 20.
It is in this broker's memory only, as upstream's: a new master knows of none.
"""

from __future__ import annotations

from dataclasses import dataclass

LOCK_EXPIRES_MS = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime

QueueKey = tuple[str, int]  # topic, queue id


@dataclass(slots=True)
class _Lock:
    client_id: str
    updated_ms: int


class QueueLocks:
    """Of one broker; time is the node's monotonic clock."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, QueueKey], _Lock] = {}

    def lock(self, group: str, client_id: str, queues: list[QueueKey], now_ms: int) -> list[int]:
        """Indexes of the queues that the client holds now."""
        return [
            index
            for index, queue in enumerate(queues)
            if self._lock_one(group, client_id, queue, now_ms)
        ]

    def unlock(self, group: str, client_id: str, queues: list[QueueKey]) -> None:
        """Give up those that the client holds; those of others stay."""
        for queue in queues:
            lock = self._locks.get((group, queue))
            if lock is not None and lock.client_id == client_id:
                del self._locks[group, queue]

    def _lock_one(self, group: str, client_id: str, queue: QueueKey, now_ms: int) -> bool:
        lock = self._locks.get((group, queue))
        if lock is None:
            self._locks[group, queue] = _Lock(client_id, now_ms)
            return True
        if lock.client_id != client_id and now_ms - lock.updated_ms <= LOCK_EXPIRES_MS:
            return False
        lock.client_id, lock.updated_ms = client_id, now_ms
        return True
