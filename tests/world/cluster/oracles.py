"""Oracles over a world in which every disk has the first 500 bytes of every log for sure."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

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
from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import Oracle


@dataclass(slots=True)
class Disk:
    """``content``: of every file that is read; ``kept``: of one, what a cut leaves."""

    content: bytes = b""
    kept: str = ""
    emptied: bool = False
    rotted: bool = False

    def durable_size(self, path: str) -> int:
        return len(self.content) or 500

    def is_damaged(self, path: str) -> bool:
        return False

    def seen(self, path: str, begin: int, end: int) -> bytes:
        return self.content[begin:end]

    def may_return(self, path: str, begin: int) -> bool:
        return path == self.kept

    def keeps_bytes(self, path: str, begin: int, wanted: bytes) -> bool:
        return self.seen(path, begin, begin + len(wanted)) == wanted

    def keeps_text(self, path: str, text: bytes) -> bool:
        return False


class FakeWatch:
    """Every disk has the first 500 bytes of every log for sure."""

    def __init__(self) -> None:
        self.summaries: list[str] = []
        self.promised = SimpleNamespace(disks=1, by_set=True)
        process = SimpleNamespace(incarnation=2)
        self.machines = {"n1": SimpleNamespace(process=process)}
        self.all_disks = Disk()

    def disk(self, node: str) -> Disk:
        return self.all_disks

    def asked(self, oracle: Oracle, node: str) -> None:
        return

    def broken(self, oracle: Oracle, node: str, summary: str, **where: object) -> None:
        self.summaries.append(summary)


class World:
    def __init__(self) -> None:
        self.watch = FakeWatch()
        watch = cast(Watch, self.watch)
        self.sets, self.raft, self.decisions = Sets(watch), Raft(watch), Decisions(watch)
        self.epochs = Epochs(watch, self.sets)
        self.queues, self.mirrors = Queues(watch), Mirrors(watch)
        self.verdicts, self.heirs, self.journals = Verdicts(watch), Heirs(watch), Journals(watch)
        self.logs = Logs(watch, self.epochs)
        self.epochs.decided("c1", 1, "g", 3, 1, 7, (1, 2), {})
        self.epochs.file("n1", 1, [(1, 0), (3, 100)])
