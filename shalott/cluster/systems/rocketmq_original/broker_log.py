"""A broker's log as node events: roles, epochs, SyncStateSets as a master takes them, cut logs.

Lines are RocketMQ's own, with times in UTC and milliseconds (cluster/images/rocketmq/logback.xml).
What a line does not say is not in its event: a slave's epoch is the one that it was told to follow
in, the epoch of a SyncStateSet is in no line of a broker's. A broker with a role by configuration
has it from its "boot success" on; epochs are 0 there, as there are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shalott.broker.base.events import Event
from shalott.cluster.systems.rocketmq_original.log_lines import Line, NodeLog, Where

CONFIGURED = re.compile(r"^(brokerRole|enableControllerMode|enableDLegerCommitLog)=(\w+)$")
BOOTED = re.compile(r"^The broker\[[^\],]*, ([^\]]*)\] boot success")
LOADED = re.compile(r"^load over, and the max phy offset = (\d+)$")
TO_MASTER = re.compile(r"^Begin to change to master, .*new Epoch:(\d+)")
IS_MASTER = re.compile(r"^Change ha to master success, newMasterEpoch:(\d+), startOffset:(\d+)")
TO_SLAVE = re.compile(
    r"^Begin to change to slave, .*newMasterAddress=([\d.]+:\d+), newMasterEpoch=(\d+)"
)
# Releases before 5.1.1 say in no other line whom a slave follows, and in which epoch.
IS_SLAVE = re.compile(
    r"^Change ha to slave success, newMasterAddress:([\d.]+:\d+), newMasterEpoch:(\d+)"
)
SET = re.compile(r"^SyncStateSet changed from \[[^\]]*\] to \[([^\]]*)\]")
LOCAL_EPOCHS = re.compile(r"^local epoch entries is (\[.*\])$")
ENTRY = re.compile(r"epoch=(\d+), startOffset=(\d+), endOffset=(\d+)")
TRUNCATE_TO = re.compile(r"^truncateOffset is (\d+)$")
NOTHING_TO_TRUNCATE = re.compile(r"^no need to truncate files, truncate offset is (\d+)")
TRUNCATED = re.compile(r"^Truncate slave log to (\d+) success")
RAFT_ROLE = re.compile(
    r"^(Begin|Finish) handling broker role change (?:succ=true )?term=(-?\d+) role=(\w+)"
)
RAFT_LEADER = re.compile(r"\[ChangeRoleToFollower\] from term: (-?\d+) leaderId: (\S+)")


class BrokerLog(NodeLog):
    """``where`` knows nodes by their addresses and by their ids in the brokers' Raft group."""

    def __init__(self, node: str, group: str, where: Where) -> None:
        super().__init__(node, group)
        self._where = where
        self._forget()

    def _forget(self) -> None:
        """A new process knows nothing of the one before."""
        self._configured: dict[str, str] = {}
        self._epoch = 0
        self._local_end: int | None = None
        self._loaded_end: int | None = None
        self._cut_to: int | None = None
        self._leader = ""
        self._told = ("", -1)

    def started(self, line: Line) -> Iterator[Event]:
        self._forget()
        yield self.event(line, "starting", group="")
        yield self.event(line, "role", role="none")

    def read(self, line: Line) -> Iterator[Event]:
        text = line.text
        if found := CONFIGURED.match(text):
            self._configured[found[1]] = found[2]
        elif found := BOOTED.match(text):
            detail = {"address": found[1]}  # under which clients know it
            yield self.event(line, "role", group="", role="running", detail=detail)
            yield from self._configured_role(line)
        elif "RocketmqBroker" in line.logger:
            yield from self._read_roles(line)
        elif "Store" in line.logger:
            yield from self._read_store(line)
        elif found := RAFT_LEADER.search(text):
            self._leader = self._where.member(found[2])

    def _configured_role(self, line: Line) -> Iterator[Event]:
        """Where there are no elections."""
        elects = ("enableControllerMode", "enableDLegerCommitLog")
        if any(self._configured.get(name) == "true" for name in elects):
            return
        if self._configured.get("brokerRole") == "SLAVE":
            yield self.event(line, "role", role="slave")
        else:
            end = {} if self._loaded_end is None else {"end": self._loaded_end}
            yield self.event(line, "role", role="master", detail=end)

    def _read_roles(self, line: Line) -> Iterator[Event]:
        text = line.text
        if found := TO_MASTER.match(text):
            self._epoch = int(found[1])
        elif found := TO_SLAVE.match(text):
            yield from self._follows(line, found)
        elif found := SET.match(text):
            members = self._where.members_of_set(found[1])
            yield self.event(line, "set_changed", role="master", epoch=self._epoch, set=members)
        elif found := RAFT_ROLE.match(text):
            yield from self._raft_role(line, found[1], int(found[2]), found[3])

    def _follows(self, line: Line, found: re.Match[str]) -> Iterator[Event]:
        """Once for each master and epoch: some releases say it twice."""
        master, epoch = self._where.node(found[1]), int(found[2])
        if self._told != (master, epoch):
            self._epoch, self._told = epoch, (master, epoch)
            yield self.event(line, "role", role="slave", epoch=epoch, master=master)

    def _raft_role(self, line: Line, when: str, term: int, word: str) -> Iterator[Event]:
        """A leader serves when it has changed its role, and no more when it begins to."""
        if (when == "Finish") != (word == "LEADER"):
            return
        role = {"LEADER": "master", "FOLLOWER": "slave"}.get(word, "none")
        if (role, term) == self._told:
            return
        self._told = (role, term)
        known = {"master": self._leader} if role == "slave" and self._leader else {}
        yield self.event(line, "role", role=role, epoch=max(0, term), detail=known)

    def _read_store(self, line: Line) -> Iterator[Event]:
        text = line.text
        if found := IS_MASTER.match(text):
            self._epoch, start = int(found[1]), int(found[2])
            yield self.event(line, "role", role="master", epoch=self._epoch, end=start)
            yield self.event(line, "epoch", role="master", epoch=self._epoch, start=start)
        elif found := IS_SLAVE.match(text):
            yield from self._follows(line, found)
        elif found := LOADED.match(text):
            self._loaded_end = int(found[1])
        elif found := LOCAL_EPOCHS.match(text):
            ends = [int(end) for _, _, end in ENTRY.findall(found[1])]
            self._local_end = max(ends, default=None)
        elif found := TRUNCATE_TO.match(text):
            self._cut_to = int(found[1])
        elif NOTHING_TO_TRUNCATE.match(text):
            self._cut_to = None
        elif found := TRUNCATED.match(text):
            yield from self._truncated(line, int(found[1]))

    def _truncated(self, line: Line, to: int) -> Iterator[Event]:
        """Only if something was cut; how far the log went is in its own list of epochs."""
        if self._cut_to is not None:
            yield self.event(line, "truncated", detail={"from": self._local_end, "to": to})
        self._cut_to = None
