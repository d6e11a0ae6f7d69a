"""Oracles of mirrored queues: a confirm is on the disk that confirms, and comes from who counts.

Legal, and no finding: a message may be consumed before it is confirmed; then no journal need have
it, and its process does not tell of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import FLAGS_KEPT, SYNC_FIRST, SYNCHRONISED_ONLY

JOURNAL = "journal"  # in a queue's directory


class Queues:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.directories: dict[str, str] = {}  # by the queue's name
        self._synchronised: dict[str, bool] = {}  # by process; a master is
        self._stopping: dict[str, list[str]] = {}  # by process: its mirrors when it began to
        self._ended: dict[str, None] = {}  # processes, in order
        self._deliveries = 0
        # Of processes that are masters: the queue, and the deliveries before they were.
        self._reigns: dict[str, tuple[str, int]] = {}
        # By queue and message: by whom last, as which, and where the client's channel is.
        self._delivered: dict[tuple[str, int], tuple[str, int, str]] = {}

    def role(self, node: str, life: int, queue: str, pid: str, is_master: bool, path: str) -> None:
        self.directories[queue.rpartition("@")[0]] = path
        if is_master:
            self._synchronised[pid] = True
            self._reigns[pid] = (queue, self._deliveries)

    def synchronised(self, node: str, life: int, queue: str, pid: str, value: bool) -> None:
        """A mirror has, or lacks, what its master has."""
        self._synchronised[pid] = value

    def durable(self, node: str, life: int, queue: str, directory: str, message_id: int) -> None:
        """A queue's process is about to confirm a message that it must have on its disk."""
        watch = self._watch
        watch.asked(SYNC_FIRST, node)
        text = message_id.to_bytes(8, "big")  # as its record in the journal has it
        if not watch.disk(node).keeps_text(f"{directory}/{JOURNAL}", text):
            summary = f"{node} confirms message {message_id} of {queue}, which is not on its disk"
            watch.broken(SYNC_FIRST, node, summary, offset=message_id)

    def counted(
        self, node: str, life: int, channel: object, seq: int, queue: str, pids: Sequence[str]
    ) -> None:
        """A channel lets a publish count for the confirms of these processes."""
        watch = self._watch
        watch.asked(SYNCHRONISED_ONLY, node)
        weak = [pid for pid in pids if not self._synchronised.get(pid, False)]
        if weak:
            summary = f"{node} counts the confirm of {weak[0]} of {queue}, which isn't synchronised"
            watch.broken(SYNCHRONISED_ONLY, node, summary, process=weak[0])

    def delivered(self, node: str, life: int, pid: str, message_id: int, redelivered: bool) -> None:
        """A client gets a message of ``pid``'s queue. Another master may have delivered it since
        this one is: two at once, or a delivery that was on its way. So may the same one, if its
        deliveries go to two nodes."""
        watch, (queue, since) = self._watch, self._reigns.get(pid, ("", 0))
        self._deliveries += 1
        watch.asked(FLAGS_KEPT, node)
        by, number, at = self._delivered.get((queue, message_id), ("", 0, ""))
        self._delivered[queue, message_id] = (pid, self._deliveries, node)
        is_later = number <= since or (by, at) == (pid, node)
        if by and not redelivered and is_later:
            summary = f"{pid} delivers message {message_id} of {queue} as new, and {by} had before"
            watch.broken(FLAGS_KEPT, node, summary, offset=message_id)

    def stops(
        self, node: str, life: int, queue: str, pid: str, obliged: bool, mirrors: Sequence[str]
    ) -> None:
        """A master is to stop in order. ``obliged``: the policy leaves the queue to synchronised
        mirrors only. ``mirrors``: those that it sees alive."""
        if obliged:
            self._stopping[pid] = list(mirrors)

    def stopped(
        self, node: str, life: int, queue: str, pid: str, reason: str, left: Sequence[str]
    ) -> None:
        """A process ends. ``left``: the mirrors that its queue's row names, if it is the master."""
        watch, mirrors = self._watch, self._stopping.pop(pid, [])
        self._ended[pid] = None
        heirs = [one for one in mirrors if one in left and one not in self._ended]
        if reason != "shutdown" or not mirrors:
            return
        watch.asked(SYNCHRONISED_ONLY, node)
        if heirs and not any(self._synchronised.get(one, False) for one in mirrors):
            summary = f"{pid} leaves {queue} to {heirs[0]} by when-synced, which isn't synchronised"
            watch.broken(SYNCHRONISED_ONLY, node, summary, process=heirs[0])

    def promoted(self, node: str, life: int, queue: str, pid: str, obliged: bool) -> None:
        """``obliged``: the policy promotes synchronised mirrors only."""
        watch = self._watch
        watch.asked(SYNCHRONISED_ONLY, node)
        if obliged and not self._synchronised.get(pid, False):
            summary = f"{pid} becomes the master of {queue} by when-synced, and isn't synchronised"
            watch.broken(SYNCHRONISED_ONLY, node, summary, process=pid)
