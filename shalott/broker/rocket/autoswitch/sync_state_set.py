"""SyncStateSet, as the master of one epoch knows it: a pure value with its rules.

The controllers own the set; the master reports changes to them (docs/protocols.md 2.8). While it
doesn't know what became of a report, both outcomes must be allowed for: a message counts as
replicated only when every member of the set as it was *and* of every set that was proposed has it.
Otherwise the controllers may make a broker the master that an acknowledgement did not wait for
(KB-RKT-10).

Upstream keeps one proposal and forgets it with any answer. Here a proposal is forgotten when it was
refused, for then it never will be, or when a newer set is known: reports name the epoch of the set
that they replace, and that is theirs no more. A report that was not answered at all stays.

Of a report of the broker's own former life this knows nothing: a master that is killed with one
under way and is back in the same epoch would count without the member that it brings. Therefore the
controllers give the set a new epoch when its master registers
(broker/rocket/controller/decisions.py).
"""

from __future__ import annotations

from collections.abc import Iterable

Members = tuple[int, ...]


class SyncStateSet:
    """Ids are sorted; the master is always among them.

    ``ignores_proposals``: KB-RKT-10. ``forgets_all``: KB-RKT-11, any answer ends every proposal.
    """

    def __init__(
        self,
        me: int,
        members: Iterable[int],
        epoch: int,
        *,
        ignores_proposals: bool = False,
        forgets_all: bool = False,
    ) -> None:
        self.me = me
        self.members = ordered([me, *members])
        self.epoch = epoch
        self._proposed: dict[Members, int] = {}  # and how many reports of it are not answered
        self._dropped: dict[int, None] = {}
        self._ignores_proposals = ignores_proposals
        self._forgets_all = forgets_all

    @property
    def judged(self) -> Members:
        """Who must have a message before it counts: local ∪ remote."""
        if self._ignores_proposals or not self._proposed:
            return self.local
        proposed = [one for each in self._proposed for one in each if one not in self._dropped]
        return ordered([*self.local, *proposed])

    @property
    def local(self) -> Members:
        """What the master takes the set for: the controllers' (but see KB-RKT-F)."""
        return tuple(one for one in self.members if one not in self._dropped)

    @property
    def is_synchronizing(self) -> bool:
        """Whether the controllers may know another set (isSynchronizingSyncStateSet)."""
        return bool(self._proposed)

    def drop(self, member: int) -> None:
        """KB-RKT-F: it counts no more, also if the controllers keep it."""
        self._dropped[member] = None

    def propose(self, members: Iterable[int]) -> Members:
        """To be called before the report is sent."""
        proposal = ordered([self.me, *members])
        self._proposed[proposal] = self._proposed.get(proposal, 0) + 1
        return proposal

    def of_next_epoch(self, members: Iterable[int], epoch: int) -> SyncStateSet:
        """The set with which the same master begins its next epoch."""
        return SyncStateSet(
            self.me,
            members,
            epoch,
            ignores_proposals=self._ignores_proposals,
            forgets_all=self._forgets_all,
        )

    @property
    def proposals(self) -> tuple[Members, ...]:
        """Those whose outcome is unknown."""
        return tuple(self._proposed)

    def refused(self, proposal: Members) -> None:
        """One report of it will never be carried out; an earlier one may yet be."""
        left = self._proposed.pop(proposal, 0) - 1
        if left > 0:
            self._proposed[proposal] = left
        if self._forgets_all:
            self._proposed.clear()

    def learn(self, members: Iterable[int], epoch: int) -> bool:
        """The controllers' word; whether it is news."""
        if self._forgets_all:
            self._proposed.clear()
        if epoch <= self.epoch:
            return False
        self.members, self.epoch = ordered([self.me, *members]), epoch
        self._proposed.clear()
        self._dropped.clear()
        return True


def ordered(ids: Iterable[int]) -> Members:
    return tuple(sorted(dict.fromkeys(ids)))
