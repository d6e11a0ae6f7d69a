"""Oracles of channels. What they tell publishers: an acknowledgement covers what is decided, and so
does the answer to a commit.

A channel tells of each publish that wants a verdict, and of each queue whose processes decided on
it. ``basic.ack`` with ``multiple`` settles at the client all that came before as well. In a
transaction the answer to the commit stands for all. And what they count against a prefetch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import ANSWERS_DUE, PREFETCH_TRUE


class Verdicts:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # By channel, in order of sequence number: the queues that have not decided.
        self._open: dict[Hashable, dict[int, dict[str, None]]] = {}

    def published(
        self, node: str, life: int, channel: Hashable, seq: int, queues: Sequence[str]
    ) -> None:
        self._open.setdefault(channel, {})[seq] = dict.fromkeys(queues)

    def counted(
        self, node: str, life: int, channel: Hashable, seq: int, queue: str, pids: Sequence[str]
    ) -> None:
        self._open.get(channel, {}).get(seq, {}).pop(queue, None)

    def answered(
        self, node: str, life: int, channel: Hashable, seq: int, is_ack: bool, multiple: bool
    ) -> None:
        watch, waiting = self._watch, self._open.setdefault(channel, {})
        watch.asked(ANSWERS_DUE, node)
        if seq not in waiting:
            summary = f"{channel} tells its client of publish {seq}, which it has told before"
            watch.broken(ANSWERS_DUE, node, summary, number=seq)
        covered = [one for one in waiting if one <= seq] if multiple else [seq]
        for one in covered:
            if (queues := waiting.pop(one, {})) and is_ack:
                summary = f"{channel} acknowledges {one}, and {next(iter(queues))} has not decided"
                watch.broken(ANSWERS_DUE, node, summary, number=one)

    def prefetch(
        self, node: str, life: int, channel: Hashable, counted: int, held: Callable[[], int]
    ) -> None:
        """What a channel counts, and what its client has, of queues that live."""
        self._watch.asked(PREFETCH_TRUE, node)
        if counted != (has := held()):
            summary = f"{channel} counts {counted} deliveries against its prefetch, not {has}"
            self._watch.broken(PREFETCH_TRUE, node, summary)

    def committed(self, node: str, life: int, channel: Hashable) -> None:
        """What was refused stays open: no client hears of it but by this."""
        watch, waiting = self._watch, self._open.pop(channel, {})
        watch.asked(ANSWERS_DUE, node)
        for seq, queues in waiting.items():
            if queues:
                summary = f"{channel} says that all is committed, and {next(iter(queues))} has not"
                watch.broken(ANSWERS_DUE, node, f"{summary} got {seq}", number=seq)
                return
