"""A controller's log as node events: its role among the controllers, elections, SyncStateSets.

The leader tells each decision with its result: which master in which epoch, or which set. Whose set
it is was told with the election before; ``complete_sets`` puts that in from all controllers' logs,
in order of the sets' epochs. What set an election leaves is in no line, so it is not told here.

With jRaft every controller applies every decision and writes it down, also when it starts anew and
reads its log again; here too the leader's word counts alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from shalott.broker.base.events import Event
from shalott.cluster.systems.rocketmq_original.log_lines import Line, NodeLog, Where

CONTROLLERS = "controller"  # the group of their own events
ROLE = re.compile(r"^Controller (\S+) change role to ([a-zA-Z]+)(?:, leaderId:(\S+))?")
TERM = re.compile(
    r"\[ChangeRoleTo\w+\] from term: (-?\d+)|has been elected to be the leader in term (\d+)"
)
APPLIED_ID = re.compile(
    r"ApplyBrokerIdEvent\{.*?brokerName='([^']+)', brokerAddress='([^']+)'.*?newBrokerId=(\d+)"
)
# Releases before 5.1.1 write isNewMasterElected, and call members by their addresses.
ELECTED = re.compile(
    r"ElectMasterEvent\{(?:isN|n)ewMasterElected=(true|false), brokerName='([^']+)'.*?\}\],"
    r" response=(?:null|\w+\{(.*)\})"
)
SET = re.compile(
    r"AlterSyncStateSetEvent\{brokerName='([^']+)', newSyncStateSet=\[([^\]]*)\].*"
    r"newSyncStateSetEpoch=(\d+)"
)
JRAFT_ROLE = re.compile(
    r"^node \S+ Start Leader, term=(?P<leads>\d+)"
    r"|^Start following, ctx=LeaderChangeContext \[leaderId=(?P<leader>\S+), term=(?P<follows>\d+)"
    r"|^node \S+ (?P<stops>Stop Leader)"
)
JRAFT_APPLIED = re.compile(r"^process event: term \d+, index \d+, request code \d+ success")
FIELD = re.compile(r"(\w+)='?([^',}]*)'?")
ROLES = {"leader": "leader", "candidate": "candidate", "follower": "follower"}


class ControllerLog(NodeLog):
    """``where`` learns which broker has which id."""

    def __init__(self, node: str, where: Where) -> None:
        super().__init__(node, CONTROLLERS)
        self._where = where
        self._term = 0
        self._told = ("", 0)

    def started(self, line: Line) -> Iterator[Event]:
        self._term, self._told = 0, ("", 0)
        yield self.event(line, "starting")

    def read(self, line: Line) -> Iterator[Event]:
        text = line.text
        if found := TERM.search(text):
            self._term = max(self._term, int(found[1] or found[2]))
        elif line.logger != "RocketmqController":
            return
        elif found := ROLE.match(text):
            leader = {"leader": self._where.controller(found[3])} if found[3] else {}
            yield from self._is(line, ROLES.get(found[2].lower(), "none"), leader)
        elif found := JRAFT_ROLE.match(text):
            yield from self._is_in_jraft(line, found)
        elif text.startswith("Event queue run event"):
            self._learn_ids(line)
            yield from self._read_decision(line)
        elif JRAFT_APPLIED.match(text):
            self._learn_ids(line)
            if self._told[0] == "leader":
                yield from self._read_decision(line)

    def _is(self, line: Line, role: str, leader: Mapping[str, str]) -> Iterator[Event]:
        if (role, self._term) != self._told:
            yield self.event(line, "role", role=role, epoch=self._term, detail=leader)
        self._told = (role, self._term)

    def _is_in_jraft(self, line: Line, found: re.Match[str]) -> Iterator[Event]:
        self._term = max(self._term, int(found["leads"] or found["follows"] or 0))
        if found["leads"]:
            yield from self._is(line, "leader", {"leader": self._node})
        elif found["stops"]:
            yield from self._is(line, "none", {})
        else:
            yield from self._is(line, "follower", {"leader": self._where.node(found["leader"])})

    def _learn_ids(self, line: Line) -> None:
        for _, address, number in APPLIED_ID.findall(line.text):
            self._where.learn(int(number), address)

    def _read_decision(self, line: Line) -> Iterator[Event]:
        if found := ELECTED.search(line.text):
            yield from self._elected(line, found)
        elif found := SET.search(line.text):
            members = self._where.members_of_set(found[2])
            word = "set_ids" if all(isinstance(member, int) for member in members) else "set"
            told = {word: members, "set_epoch": int(found[3])}
            yield self.event(line, "set_changed", group=found[1], detail=told)

    def _elected(self, line: Line, found: re.Match[str]) -> Iterator[Event]:
        fields = dict(FIELD.findall(found[3] or ""))
        epoch = _number(fields.get("masterEpoch"))
        address = fields.get("masterAddress") or fields.get("newMasterAddress", "")
        if found[1] == "false":  # for which epoch is in no line
            yield self.event(line, "gave_up", group=found[2])
        elif epoch is not None:
            yield self.event(
            line, "elected", group=found[2], epoch=epoch,
            master=self._where.node(address),
            master_id=_number(fields.get("masterBrokerId")),
            set_epoch=_number(fields.get("syncStateSetEpoch")),
        )  # fmt: skip


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdecimal() else None


def complete_sets(events: Sequence[Event], where: Where) -> list[Event]:
    """Names for the sets' members, and each set's master: the last one elected before it, by the
    epochs of the set. A set whose election is in no log stays without."""
    elections: dict[str, list[tuple[int, str]]] = {}
    for event in events:
        if event.kind == "elected" and event.detail.get("set_epoch") is not None:
            told = (int(event.detail["set_epoch"]), str(event.detail["master"]))
            elections.setdefault(event.group, []).append(told)
    return [_completed(event, elections.get(event.group, ()), where) for event in events]


def _completed(event: Event, elections: Sequence[tuple[int, str]], where: Where) -> Event:
    if event.kind != "set_changed" or "set_epoch" not in event.detail:
        return event
    set_epoch, ids = event.detail["set_epoch"], event.detail.get("set_ids")
    before = [told for told in elections if told[0] < set_epoch]
    named: dict[str, object] = (
        {} if ids is None else {"set": [where.broker(member) for member in ids]}
    )
    if before and max(before)[1]:
        named["master"] = max(before)[1]
    return msgspec.structs.replace(event, epoch=set_epoch, detail={**event.detail, **named})
