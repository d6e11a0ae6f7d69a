"""The oracle of what clients were told: at the instant of the answer so many disks have the
message's bytes. No broker is asked.

Legal, and no finding: a queue's message may be consumed before its producer hears of the confirm,
and then no disk need have it. So nothing is asked while a dequeue of its queue is under way, or
once the message has come out. Nor is anything asked of a queue whose files are not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from shalott.cluster.sim.oracles.queues import JOURNAL, Queues
from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.message_body import encode_body
from shalott.core.op import Completion, Invocation
from shalott.core.oracles import DISK_COPIES

LOGS = ("commitlog", "dledger/data")  # directories of segmented logs
SEND, ENQUEUE, DEQUEUE = "send", "enqueue", "dequeue"


class Clients:
    def __init__(self, watch: Watch, queues: Queues) -> None:
        self._watch = watch
        self._queues = queues
        self._asked: dict[int, tuple[str, Invocation]] = {}  # by index: by the client of which node
        self._dequeues: dict[str, int] = {}  # under way, by queue
        self._came_out: dict[int, None] = {}

    def invoked(self, index: int, node: str, invocation: Invocation) -> None:
        if invocation.f == self._watch.promised.f:
            self._asked[index] = (node, invocation)
        elif invocation.f == DEQUEUE:
            self._asked[index] = (node, invocation)
            self._dequeues[invocation.key] = self._dequeues.get(invocation.key, 0) + 1

    def completed(self, index: int, completion: Completion) -> None:
        node, invocation = self._asked.pop(index, ("", None))
        if invocation is None:
            return
        if invocation.f == DEQUEUE:
            self._dequeues[invocation.key] -= 1
            if completion.value is not None:
                self._came_out[completion.value] = None
        elif completion.type == "ok" and node in self._watch.machines:
            self._acknowledged(node, invocation)

    def _acknowledged(self, node: str, invocation: Invocation) -> None:
        watch, promised, value = self._watch, self._watch.promised, invocation.value
        consumed = self._dequeues.get(invocation.key) or value in self._came_out
        if value is None or consumed or not promised.disks:
            return
        text = encode_body(value, promised.body_bytes)
        having: list[str] = []
        looked = False
        for one in watch.machines:
            paths = list(self._paths(one, invocation))
            looked = looked or bool(paths)
            if any(watch.disk(one).keeps_text(path, text) for path in paths):
                having.append(one)
            if len(having) == promised.disks:
                break
        if not looked:
            return
        watch.asked(DISK_COPIES, node)
        if len(having) < promised.disks:
            where = " and ".join(having) or "none"
            summary = f"a client was told that {value} is kept: of the disks {where} has it"
            watch.broken(DISK_COPIES, node, summary, value=value, disks=having)

    def _paths(self, node: str, invocation: Invocation) -> Iterator[str]:
        """Where the message may be, the likeliest first."""
        if invocation.f == ENQUEUE:
            if directory := self._queues.directories.get(invocation.key):
                yield f"{directory}/{JOURNAL}"
            return
        for directory in LOGS:
            for name in reversed(self._watch.disk(node).names(directory)):
                yield f"{directory}/{name}"
