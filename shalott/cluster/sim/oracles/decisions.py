"""Oracles of what RocketMQ's brokers keep beside messages: transactions that are noted as committed
have been stored, and count; tables that count as written are on the disk.
"""

from __future__ import annotations

from shalott.cluster.sim.oracles.messages import messages_in
from shalott.cluster.sim.oracles.watch import Watch, pieces
from shalott.core.oracles import COMMITS_STORED, SYNC_FIRST


class Decisions:
    """``_open``: by node and life, where the half messages lie whose commits are under way, by
    their queue offsets; None: the message under its own topic counts."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._open: dict[tuple[str, int], dict[int, int | None]] = {}

    def decides(self, node: str, life: int, number: int, offset: int, commits: bool) -> None:
        """A master begins to end a transaction."""
        self._open.setdefault((node, life), {})[number] = offset if commits else None

    def acked(
        self, node: str, life: int, directory: str, segment_bytes: int, begin: int, end: int,
        *_: object,
    ) -> None:  # fmt: skip
        """These messages count: any disk shows which they are, for a majority may be without the
        leader's."""
        waiting = self._open.get((node, life))
        if not waiting:
            return
        place = list(pieces(directory, segment_bytes, begin, end))
        halves: dict[int, None] = {}
        for each in self._watch.machines:
            log = b"".join(self._watch.disk(each).seen(*piece) for piece in place)
            halves |= {one.prepared: None for one in messages_in(log)}
        for number in [number for number, offset in waiting.items() if offset in halves]:
            waiting[number] = None

    def written(self, node: str, life: int, path: str, content: bytes) -> None:
        """A table counts as written."""
        watch = self._watch
        watch.asked(SYNC_FIRST, node)
        if not watch.disk(node).keeps_bytes(path, 0, content):
            summary = f"{node} takes {path} for written, and its disk has something else"
            watch.broken(SYNC_FIRST, node, summary)

    def notes(self, node: str, life: int, number: int) -> None:
        """A master is about to note that a transaction has ended."""
        self._watch.asked(COMMITS_STORED, node)
        if self._open.get((node, life), {}).pop(number, None) is not None:
            summary = f"{node} notes that transaction {number} is committed, and it is not stored"
            self._watch.broken(COMMITS_STORED, node, summary, offset=number)
