"""Oracles of epochs: what controllers decide, what brokers take for theirs, and what their epoch
files say are one story.

The controllers' word is what any of them has applied, since only what is committed is applied. It
is the newest that there is: a broker can't know more. A controller that starts again applies its
log from the beginning, or from a snapshot, so what it applies grows within one life only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import EPOCHS_AGREE

Members = tuple[int, ...]


class Epochs:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._hosts: Mapping[int, str] = {}
        self._set: tuple[int, Members] = (0, ())  # its epoch, and who is in it
        self._master_epoch = 0
        self._applied: dict[tuple[str, int, str], tuple[int, int]] = {}  # by node, life and group
        self._meaning: dict[tuple[str, str, int], object] = {}  # (kind, group, epoch) -> what it is
        self._roles: dict[tuple[str, int, str], int] = {}

    def members(self) -> list[str]:
        """The nodes in the SyncStateSet that was decided last."""
        return [self._hosts[one] for one in self._set[1] if one in self._hosts]

    def decided(
        self, node: str, life: int, group: str, master_epoch: int, master: int | None,
        set_epoch: int, members: Members, hosts: Mapping[int, str],
    ) -> None:  # fmt: skip
        """A controller has applied this state."""
        watch, epochs = self._watch, (master_epoch, set_epoch)
        watch.asked(EPOCHS_AGREE, node)
        before = self._applied.get((node, life, group), (0, 0))
        self._applied[node, life, group] = epochs
        if master_epoch < before[0] or set_epoch < before[1]:
            summary = f"the controller {node} went from the epochs {before} of {group} to {epochs}"
            watch.broken(EPOCHS_AGREE, node, summary, offset=master_epoch)
        self._mean(node, ("master", group, master_epoch), master)
        self._mean(node, ("SyncStateSet", group, set_epoch), members)
        if set_epoch >= self._set[0]:
            self._set, self._hosts = (set_epoch, members), hosts
        self._master_epoch = max(self._master_epoch, master_epoch)

    def role(self, node: str, life: int, group: str, role: str, epoch: int) -> None:
        """A broker has entered ``role`` in ``epoch``."""
        watch, key = self._watch, (node, life, group)
        watch.asked(EPOCHS_AGREE, node)
        if epoch > self._master_epoch:
            summary = f"{node} is {role} of {group} in epoch {epoch}, which was never decided"
            watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
        if epoch < self._roles.get(key, 0):
            summary = f"{node} went back from epoch {self._roles[key]} of {group} to {epoch}"
            watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
        self._roles[key] = epoch

    def file(self, node: str, life: int, entries: Sequence[tuple[int, int]]) -> None:
        """A broker's epoch file says so from now on: (epoch, where it starts) each."""
        watch = self._watch
        watch.asked(EPOCHS_AGREE, node)
        pairs, ruling = zip(entries, entries[1:], strict=False), self._master_epoch
        rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairs)
        if not rising or (entries and entries[-1][0] > ruling):
            summary = f"the epoch file of {node} ends with {entries[-3:]}; epoch {ruling} rules"
            watch.broken(EPOCHS_AGREE, node, summary, offset=entries[-1][0])
        for epoch, start in entries[-2:]:
            self._mean(node, ("start", "", epoch), start)

    def _mean(self, node: str, what: tuple[str, str, int], value: object) -> None:
        """One epoch is one thing to all who speak of it."""
        known = self._meaning.setdefault(what, value)
        if known != value:
            kind, _, epoch = what
            summary = f"epoch {epoch} has {kind} {value} at {node}, and {known} elsewhere"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
