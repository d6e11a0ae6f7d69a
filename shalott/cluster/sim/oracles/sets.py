"""Oracles of SyncStateSets: each follows from the one before, and a master waits for all members of
what controllers have decided, and of what it has asked for and they may still carry out.

A report may be carried out until it is refused, or the set is another one by then; also when it
was not answered, and when the master that sent it has started again since.
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import SETS_COUNT

Members = tuple[int, ...]
Report = tuple[int, int, Members]  # the master's epoch, the set's that it replaces, the members


class Sets:
    """Of one group. ``_waits``: for whom masters wait, by node: life, epoch, members."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._master_epoch, self._set_epoch = 0, 0
        self._master = ""
        self._members: Members = ()
        self._waits: dict[str, tuple[int, int, Members]] = {}
        self._reports: dict[str, dict[Report, int]] = {}  # by node: how many are not refused

    def decided(
        self, node: str, master_epoch: int, master: int | None, set_epoch: int, members: Members,
        hosts: Mapping[int, str],
    ) -> None:  # fmt: skip
        """A controller has applied this state, perhaps as the first one."""
        if (master_epoch, set_epoch) <= (self._master_epoch, self._set_epoch):
            return
        watch, before, had = self._watch, self._master_epoch, self._set_epoch
        watch.asked(SETS_COUNT, node)
        is_next = master_epoch == before + 1 and set_epoch <= had + 1
        lost = members != self._members if master is None else master not in self._members
        if is_next and had and lost and watch.promised.by_set:
            summary = f"epoch {master_epoch} has master {master} and the set {members}, after"
            watch.broken(SETS_COUNT, node, f"{summary} the set {self._members}", offset=set_epoch)
        self._master_epoch, self._set_epoch, self._members = master_epoch, set_epoch, members
        self._master = "" if master is None else hosts.get(master, "")
        self._judge(self._master)

    def waits_for(self, node: str, life: int, epoch: int, members: Members) -> None:
        """What a master tells producers waits for these from now on."""
        self._waits[node] = (life, epoch, members)
        self._judge(node)

    def stepped_down(self, node: str) -> None:
        self._waits.pop(node, None)

    def reported(
        self, node: str, life: int, master_epoch: int, set_epoch: int, members: Members
    ) -> None:
        """A master asks for this set in place of the one of ``set_epoch``."""
        known = self._reports.setdefault(node, {})
        report = (master_epoch, set_epoch, members)
        known[report] = known.get(report, 0) + 1

    def refused(
        self, node: str, life: int, master_epoch: int, set_epoch: int, members: Members
    ) -> None:
        """One such report of the node will never be carried out."""
        known, report = self._reports.get(node, {}), (master_epoch, set_epoch, members)
        known[report] = known.get(report, 0) - 1

    def _judge(self, node: str) -> None:
        """Whether the master there waits for all."""
        watch = self._watch
        if node not in self._waits or node != self._master or not watch.promised.by_set:
            return
        life, epoch, waits = self._waits[node]
        process = watch.machines[node].process
        if epoch != self._master_epoch or process is None or process.incarnation != life:
            return
        watch.asked(SETS_COUNT, node)
        ruling = (self._master_epoch, self._set_epoch)
        left = [each for each, count in self._reports.get(node, {}).items() if count > 0]
        asked = [one for *epochs, members in left if tuple(epochs) == ruling for one in members]
        missing = sorted({one: None for one in (*self._members, *asked) if one not in waits})
        if missing:
            summary = (
                f"{node} waits for {waits} in epoch {epoch}; the set is {self._members}, and may"
                f" become one with {missing}"
            )
            watch.broken(SETS_COUNT, node, summary, offset=self._set_epoch)
