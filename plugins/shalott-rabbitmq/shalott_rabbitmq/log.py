"""RabbitMQ 4's log as node events: who leads a quorum queue and in which term, partitions, pauses.

A role ends when the broker stops, for any reason; so every role that a log has given is taken back
at the next line that says so. The log has wall times only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from shalott.api import EventRow

LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d) \[\w+\] <[\d.]+> (.*)$")
QUEUE = re.compile(r"^queue '([^']*)' in vhost '[^']*': (.*)$")
LEADS = re.compile(r"^\w+ -> leader in term: (\d+)")
ABDICATES = re.compile(r"^leader (?:saw .* abdicates term: (\d+)|-> \w+ in term: (\d+))")
FOLLOWS = re.compile(r"^detected a new leader \{.*,'?rabbit@([\w.-]+?)'?\} in term (\d+)")
PARTED = re.compile(r"inconsistent_database, running_partitioned_network, '?rabbit@([\w.-]+?)'?\}")
PEER = re.compile(r"^rabbit on node '?rabbit@([\w.-]+?)'? (up|down)$")
MINORITY = "Cluster minority/secondary status detected"
EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


def read_log(path: Path, start: int) -> Iterator[EventRow]:
    """The node is told from ``path``: n1/log/rabbit@n1.log."""
    reader = _Reader(path.stem.removeprefix("rabbit@"), start)
    with path.open(errors="replace") as lines:
        for line in lines:
            if found := LINE.match(line):
                wall = datetime.fromisoformat(found[1]) - EPOCH_START
                yield from reader.read(wall // timedelta(microseconds=1) * 1000, found[2].strip())


class _Reader:
    """What a log has said so far: how often the broker started, and its role in each queue."""

    def __init__(self, node: str, start: int) -> None:
        self._node, self._start = node, start
        self._lives = 0
        self._roles: dict[str, str] = {}

    def read(self, wall_ns: int, text: str) -> Iterator[EventRow]:
        for group, kind, role, epoch, detail in self._told(text):
            yield {
                "run_ns": wall_ns - self._start, "at_ns": wall_ns, "wall_ns": wall_ns,
                "node": self._node, "incarnation": self._lives, "group": group, "kind": kind,
                "role": role, "epoch": epoch,
                "detail": msgspec.json.encode(detail).decode() if detail else None,
            }  # fmt: skip

    def _told(self, text: str) -> Iterator[tuple[str, str, str, int, dict[str, str]]]:
        if found := QUEUE.match(text):
            yield from self._told_of_queue(found[1], found[2])
        elif parted := PARTED.search(text):
            yield "", "partition", "", 0, {"parted_from": parted[1]}
        elif peer := PEER.match(text):
            yield "", f"peer_{peer[2]}", "", 0, {"peer": peer[1]}
        elif "Autoheal" in text:
            yield "", "autoheal", "", 0, {"text": text}
        elif MINORITY in text or text.startswith("Successfully stopped RabbitMQ"):
            yield from self._takes_roles()
            yield "", "role", "paused" if MINORITY in text else "stopped", 0, {}
        elif text.startswith("Starting RabbitMQ"):
            self._lives += 1
            yield "", "starting", "", 0, {}
            yield from self._takes_roles()
        elif text.startswith("Server startup complete"):
            yield "", "role", "running", 0, {}

    def _told_of_queue(
        self, queue: str, text: str
    ) -> Iterator[tuple[str, str, str, int, dict[str, str]]]:
        if leads := LEADS.match(text):
            self._roles[queue] = "master"
            yield queue, "promoted", "master", int(leads[1]), {}
            yield queue, "role", "master", int(leads[1]), {}
        elif (ends := ABDICATES.match(text)) and self._roles.get(queue) == "master":
            self._roles[queue] = "mirror"
            yield queue, "role", "mirror", int(ends[1] or ends[2]), {}
        elif (follows := FOLLOWS.match(text)) and follows[1] != self._node:
            self._roles[queue] = "mirror"
            yield queue, "role", "mirror", int(follows[2]), {"leader": follows[1]}

    def _takes_roles(self) -> Iterator[tuple[str, str, str, int, dict[str, str]]]:
        for queue in list(self._roles):
            del self._roles[queue]
            yield queue, "role", "none", 0, {}
