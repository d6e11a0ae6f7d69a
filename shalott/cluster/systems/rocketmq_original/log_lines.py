"""Lines of RocketMQ's logs, and what reading any of them has in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shalott.broker.base.events import Event

LINE = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z (\w+) (\S+) \[([^\]]*)\] (.*)$")
STARTING = "starting"  # what the node's own entry writes before a service begins (entry.sh)
ENTRY = "Shalott"
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Line:
    wall_ns: int
    logger: str
    text: str


@dataclass(slots=True)
class Where:
    """Nodes by what logs call them. ``hosts``: by address without a port. ``members`` and
    ``controllers``: by their ids in a Raft group. Brokers' numbers are learned as they are given.
    """

    hosts: Mapping[str, str]
    members: Mapping[str, str] = field(default_factory=dict)
    controllers: Mapping[str, str] = field(default_factory=dict)
    brokers: dict[int, str] = field(default_factory=dict)

    def node(self, address: str) -> str:
        return self.hosts.get(address.rpartition(":")[0], "")

    def member(self, name: str) -> str:
        return self.members.get(name, "")

    def controller(self, name: str) -> str:
        return self.controllers.get(name, "")

    def learn(self, number: int, address: str) -> None:
        self.brokers[number] = self.node(address)

    def members_of_set(self, text: str) -> list[int] | list[str]:
        """Of a SyncStateSet as a log has it: numbers, or, before 5.1.1, nodes by their
        addresses."""
        words = [word.strip() for word in text.split(",") if word.strip()]
        if all(word.lstrip("-").isdecimal() for word in words):
            return [int(word) for word in words]
        return [self.node(word) or word for word in words]

    def broker(self, number: int) -> str:
        return self.brokers.get(number, str(number))


class NodeLog:
    """Reads one service's log. A process that begins is another incarnation."""

    def __init__(self, node: str, group: str) -> None:
        self._node = node
        self._group = group
        self._incarnation = 0

    def events(self, path: Path) -> Iterator[Event]:
        for line in read_lines(path):
            if line.logger == ENTRY and line.text == STARTING:
                self._incarnation += 1
                yield from self.started(line)
            else:
                yield from self.read(line)

    def started(self, line: Line) -> Iterator[Event]:
        raise NotImplementedError

    def read(self, line: Line) -> Iterator[Event]:
        raise NotImplementedError

    def event(
        self,
        line: Line,
        kind: str,
        *,
        group: str | None = None,
        role: str = "",
        epoch: int = 0,
        detail: Mapping[str, object] | None = None,
        **more: object,
    ) -> Event:
        return Event(
            at_ns=line.wall_ns,  # logs have no other clock
            wall_ns=line.wall_ns,
            node=self._node,
            incarnation=self._incarnation,
            group=self._group if group is None else group,
            kind=kind,
            role=role,
            epoch=epoch,
            detail={**(detail or {}), **more},
        )


def read_lines(path: Path) -> Iterator[Line]:
    """Lines that begin with a time; what follows one, as a trace does, is passed over."""
    with path.open(errors="replace") as lines:
        for text in lines:
            found = LINE.match(text.rstrip("\n"))
            if found is not None:
                yield Line(_wall_ns(found[1]), found[3], found[5])


def _wall_ns(text: str) -> int:
    at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (at - _EPOCH_START) // timedelta(milliseconds=1) * 1_000_000
