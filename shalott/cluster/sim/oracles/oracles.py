"""Oracles: all of one simulation, put together. What is told goes to who asks about it.

``heard`` is every machine's witness (broker/base/env.py: Witness). ``clients`` hears the clients'
operations from the run's recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.oracles.clients import Clients
from shalott.cluster.sim.oracles.decisions import Decisions
from shalott.cluster.sim.oracles.epochs import Epochs
from shalott.cluster.sim.oracles.logs import Logs
from shalott.cluster.sim.oracles.mirrors import Mirrors
from shalott.cluster.sim.oracles.queues import Queues
from shalott.cluster.sim.oracles.raft import Raft
from shalott.cluster.sim.oracles.sets import Sets
from shalott.cluster.sim.oracles.watch import Promised, Watch, Watched


class Oracles:
    def __init__(self, loop: SimLoop, machines: Mapping[str, Watched], promised: Promised) -> None:
        watch = Watch(loop, machines, promised)
        sets, raft, queues = Sets(watch), Raft(watch), Queues(watch)
        epochs = Epochs(watch, sets)
        logs, mirrors = Logs(watch, epochs), Mirrors(watch)
        self._logs, self._decisions = logs, Decisions(watch)
        self.clients = Clients(watch, queues)
        self._ask: dict[str, Callable[..., None]] = {
            "acked": self._acked,
            "decides": self._decisions.decides,
            "notes": self._decisions.notes,
            "written": self._decisions.written,
            "copies": epochs.copied,
            "dispatched": logs.dispatched,
            "queue offset": logs.queue_offset,
            "confirmed": logs.confirmed,
            "failed over": logs.failed_over,
            "reads": logs.reads,
            "holds": logs.holds,
            "sends": logs.sends,
            "appends": logs.appends,
            "ends": logs.ends,
            "checkpoint": logs.checkpoint,
            "begins": logs.begins,
            "reigns": logs.reigns,
            "followed": epochs.followed,
            "heard": epochs.heard,
            "learnt": epochs.learnt,
            "cut": epochs.cut,
            "set": epochs.decided,
            "role": epochs.role,
            "waits for": sets.waits_for,
            "reports set": sets.reported,
            "set refused": sets.refused,
            "epochs": epochs.file,
            "left": raft.left,
            "raft.began": raft.began,
            "raft.term": raft.term,
            "raft.voted": raft.voted,
            "raft.cut": raft.cut,
            "raft.holds": raft.holds,
            "raft.counts": raft.counts,
            "raft.follows": raft.follows,
            "raft.leads": raft.leads,
            "raft.applied": raft.applied,
            "raft.led": raft.led,
            "raft.committed": raft.committed,
            "raft.asked": raft.asked,
            "raft.read": raft.read,
            "queue.role": queues.role,
            "synchronised": queues.synchronised,
            "replica": mirrors.replica,
            "sent": mirrors.sent,
            "ring.told": mirrors.told,
            "ring.heard": mirrors.heard,
            "ring.brought": mirrors.brought,
            "mirror.confirms": mirrors.mirror_confirms,
            "master.confirms": mirrors.master_confirms,
            "durable": queues.durable,
            "counted": queues.counted,
            "delivered": queues.delivered,
            "promoted": queues.promoted,
        }

    def _acked(
        self, node: str, life: int, directory: str, segment_bytes: int, begin: int, end: int,
        age_ns: int,
    ) -> None:  # fmt: skip
        self._logs.acked(node, life, directory, segment_bytes, begin, end, age_ns)
        self._decisions.acked(node, life, directory, segment_bytes, begin, end)

    def heard(self, node: str, life: int, what: str, /, *details: object) -> None:
        self._ask[what](node, life, *details)
