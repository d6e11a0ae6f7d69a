"""Oracles of epochs: what controllers decide, what brokers take for theirs, and what their epoch
files say are one story.

The controllers' word is what any of them has applied, since only what is committed is applied. It
is the newest that there is: a broker can't know more. A controller that starts again applies its
log from the beginning, or from a snapshot, so what it applies grows within one life only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.cluster.sim.oracles.sets import Sets
from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import EPOCHS_AGREE

Members = tuple[int, ...]


class Epochs:
    def __init__(self, watch: Watch, sets: Sets) -> None:
        self._watch = watch
        self._sets = sets
        self._hosts: Mapping[int, str] = {}
        self._set: tuple[int, Members] = (0, ())  # its epoch, and who is in it
        self._master_epoch = 0
        self._applied: dict[tuple[str, int, str], tuple[int, int]] = {}  # by node, life and group
        self._meaning: dict[tuple[str, str, int], object] = {}  # (kind, group, epoch) -> what it is
        self._roles: dict[tuple[str, int, str], int] = {}
        self._last_roles: dict[tuple[str, int], tuple[str, int]] = {}  # and their epochs
        self._learnt: dict[tuple[str, int], int] = {}  # epochs of SyncStateSets, by node and life
        self._files: dict[tuple[str, int], list[tuple[int, int]]] = {}  # by node and life

    def members(self) -> list[str]:
        """The nodes in the SyncStateSet that was decided last, where one is promised."""
        if not self._watch.promised.by_set:
            return []
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
        self._sets.decided(node, master_epoch, master, set_epoch, members, hosts)

    def role(self, node: str, life: int, group: str, role: str, epoch: int) -> None:
        """A broker has entered ``role`` in ``epoch``."""
        watch, key = self._watch, (node, life, group)
        watch.asked(EPOCHS_AGREE, node)
        if role != "master":
            self._sets.stepped_down(node)
        if epoch > self._master_epoch:
            summary = f"{node} is {role} of {group} in epoch {epoch}, which was never decided"
            watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
        if epoch < self._roles.get(key, 0):
            summary = f"{node} went back from epoch {self._roles[key]} of {group} to {epoch}"
            watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
        elif role != "none":
            self._not_older(node, life, f"is {role} in", epoch)
        self._roles[key] = epoch
        self._last_roles[node, life] = role, epoch

    def heard(self, node: str, life: int, group: str, epoch: int, role: str, own: int) -> None:
        """A broker knows now that another one is the master of ``epoch``; it is ``role`` in its
        ``own`` epoch."""
        self._watch.asked(EPOCHS_AGREE, node)
        if role == "master" and own < epoch:
            summary = f"{node} is the master of {group} in epoch {own}, and knows of one in {epoch}"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)

    def learnt(self, node: str, life: int, group: str, epoch: int, members: Members) -> None:
        """A master takes this for the SyncStateSet of ``epoch``."""
        watch, key = self._watch, ("SyncStateSet", group, epoch)
        watch.asked(EPOCHS_AGREE, node)
        if key in self._meaning:
            self._mean(node, key, members)
        before = self._learnt.get((node, life), 0)
        if epoch < before:
            summary = f"{node} goes back from the SyncStateSet of epoch {before} to that of {epoch}"
            watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
        self._learnt[node, life] = epoch

    def followed(self, node: str, life: int, group: str, epoch: int) -> None:
        """A slave is about to make its log that of a master of ``epoch``."""
        self._watch.asked(EPOCHS_AGREE, node)
        known = self._roles.get((node, life, group), 0)
        if epoch < known:
            summary = f"{node} is {group}'s slave in epoch {known}, and follows a master of {epoch}"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
        else:
            self._not_older(node, life, "follows a master of", epoch)

    def copied(self, node: str, life: int, epoch: int) -> None:
        """A slave takes a table that it asked its master for in ``epoch``."""
        if (node, life) not in self._last_roles:
            return  # nodes of this system tell no roles
        role, own = self._last_roles[node, life]
        self._watch.asked(EPOCHS_AGREE, node)
        if role != "slave" or epoch < own:
            summary = f"{node} is {role} in epoch {own}, and copies what it asked for in {epoch}"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)

    def cut(self, node: str, life: int, end: int) -> None:
        """A slave has cut its log to ``end``, and what its epoch file says of the rest."""
        known = self._files.get((node, life), [])
        if known and known[-1][1] >= max(1, end):
            summary = f"{node} has cut its log to {end}, and its epoch file ends with {known[-1]}"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=end)

    def written_in(self, node: str, life: int, begin: int, end: int) -> tuple[int, int] | None:
        """Of the epoch that the node's file has for these bytes: its number, and where it begins;
        None if they are of two, or of none."""
        known = self._files.get((node, life), [])
        after = next((n for n, entry in enumerate(known) if entry[1] > begin), len(known))
        if not after or (after < len(known) and known[after][1] < end):
            return None
        return known[after - 1]

    def _not_older(self, node: str, life: int, does: str, epoch: int) -> None:
        """Than what the node's epoch file says of its own log."""
        last = self._files.get((node, life), [(0, 0)])[-1]
        if epoch < last[0]:
            summary = f"{node} {does} epoch {epoch}, and its log has epoch {last[0]}"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)

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
        self._files[node, life] = list(entries) or [(0, 0)]

    def _mean(self, node: str, what: tuple[str, str, int], value: object) -> None:
        """One epoch is one thing to all who speak of it."""
        known = self._meaning.setdefault(what, value)
        if known != value:
            kind, _, epoch = what
            summary = f"epoch {epoch} has {kind} {value} at {node}, and {known} elsewhere"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=epoch)
