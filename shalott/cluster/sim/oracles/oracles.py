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
from shalott.cluster.sim.oracles.heirs import Heirs
from shalott.cluster.sim.oracles.journals import Journals
from shalott.cluster.sim.oracles.logs import Logs
from shalott.cluster.sim.oracles.mirrors import Mirrors
from shalott.cluster.sim.oracles.queues import Queues
from shalott.cluster.sim.oracles.raft import Raft
from shalott.cluster.sim.oracles.sets import Sets
from shalott.cluster.sim.oracles.verdicts import Verdicts
from shalott.cluster.sim.oracles.watch import Promised, Watch, Watched

Asks = Mapping[str, tuple[Callable[..., None], ...]]


class Oracles:
    def __init__(self, loop: SimLoop, machines: Mapping[str, Watched], promised: Promised) -> None:
        watch = Watch(loop, machines, promised)
        queues = Queues(watch)
        self.clients = Clients(watch, queues)
        self._ask = {**_of_logs(watch), **_of_raft(watch), **_of_queues(watch, queues)}

    def heard(self, node: str, life: int, what: str, /, *details: object) -> None:
        for ask in self._ask[what]:
            ask(node, life, *details)


def _of_logs(watch: Watch) -> Asks:
    sets, decisions = Sets(watch), Decisions(watch)
    epochs = Epochs(watch, sets)
    logs = Logs(watch, epochs)
    return {
        "acked": (logs.acked, decisions.acked),
        "dispatched": (logs.dispatched,),
        "queue offset": (logs.queue_offset,),
        "confirmed": (logs.confirmed,),
        "failed over": (logs.failed_over,),
        "reads": (logs.reads,),
        "holds": (logs.holds,),
        "sends": (logs.sends,),
        "appends": (logs.appends,),
        "checkpoint": (logs.checkpoint,),
        "reigns": (logs.reigns,),
        "followed": (epochs.followed,),
        "heard": (epochs.heard,),
        "learnt": (epochs.learnt,),
        "cut": (epochs.cut,),
        "set": (epochs.decided,),
        "role": (epochs.role,),
        "epochs": (epochs.file,),
        "decides": (decisions.decides,),
        "notes": (decisions.notes,),
        "written": (decisions.written,),
        "copies": (epochs.copied,),
        "ends": (logs.cut,),
        "begins": (logs.begins,),
        "waits for": (sets.waits_for,),
        "reports set": (sets.reported,),
        "set refused": (sets.refused,),
    }


def _of_raft(watch: Watch) -> Asks:
    raft = Raft(watch)
    return {
        "left": (raft.left,),
        "raft.began": (raft.began,),
        "raft.voted": (raft.voted,),
        "raft.cut": (raft.cut,),
        "raft.holds": (raft.holds,),
        "raft.follows": (raft.follows,),
        "raft.leads": (raft.leads,),
        "raft.applied": (raft.applied,),
        "raft.led": (raft.led,),
        "raft.committed": (raft.committed,),
        "raft.asked": (raft.asked,),
        "raft.read": (raft.read,),
        "raft.term": (raft.term,),
        "raft.counts": (raft.counts,),
    }


def _of_queues(watch: Watch, queues: Queues) -> Asks:
    mirrors, verdicts = Mirrors(watch), Verdicts(watch)
    heirs, journals = Heirs(watch), Journals(watch)
    return {
        "queue.role": (queues.role,),
        "synchronised": (queues.synchronised,),
        "replica": (mirrors.replica,),
        "sent": (mirrors.sent,),
        "ring.told": (mirrors.told,),
        "ring.heard": (mirrors.heard,),
        "ring.brought": (mirrors.brought, heirs.brought),
        "mirror.confirms": (mirrors.mirror_confirms, heirs.answers),
        "master.confirms": (mirrors.master_confirms, heirs.answers),
        "durable": (queues.durable, journals.durable),
        "counted": (queues.counted, verdicts.counted),
        "delivered": (queues.delivered,),
        "promoted": (queues.promoted,),
        "published": (verdicts.published,),
        "answered": (verdicts.answered,),
        "committed": (verdicts.committed,),
        "mirror.takes": (heirs.takes,),
        "mirror.forgets": (heirs.forgets,),
        "refuses": (heirs.answers,),
        "master.takes": (heirs.master_takes,),
        "succeeded": (heirs.succeeded,),
        "deaths": (heirs.deaths,),
        "stays": (heirs.stays,),
        "recovered": (journals.recovered,),
        "rests": (journals.rests,),
        "sync.began": (mirrors.sync_began,),
        "sync.ended": (mirrors.sync_ended,),
        "prefetch": (verdicts.prefetch,),
        "stops": (queues.stops,),
        "stopped": (queues.stopped,),
    }
