"""RabbitMQ's log as node events: promotions, mirrors that come and go, syncs, partitions, pauses,
autoheal; of quorum queues who leads, in which term.

The log says when a mirror joins and when one is promoted, not who is a queue's first master: that
is known from observations. A role ends when the broker stops, for any reason, so every role
that a log has given is taken back ("none") at the next line that says so: stopped, paused, or
starting again. RabbitMQ keeps no versions of its queue records, so every epoch is 0 but for quorum
queues, whose epochs are Raft's terms; and no monotonic clock in its log, so ``at_ns`` is the wall
clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shalott.broker.base.events import Event
from shalott.cluster.system import EventRow
from shalott.cluster.systems.own_broker import in_order, log_rows

LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d) \[\w+\] <[\d.]+> (.*)$")
QUEUE_LINE = re.compile(r"^Mirrored queue '([^']*)' in vhost '[^']*': (.*)$")
QUORUM_LINE = re.compile(r"^queue '([^']*)' in vhost '[^']*': (.*)$")
LEADS = re.compile(r"^\w+ -> leader in term: (\d+)")
ABDICATES = re.compile(r"^leader (?:saw .* abdicates term: (\d+)|-> \w+ in term: (\d+))")
FOLLOWS = re.compile(r"^detected a new leader \{.*,rabbit@([\w.-]+?)\} in term (\d+)")
ADDED = re.compile(r"^Adding mirror on node rabbit@([\w.-]+):")
PROMOTED = re.compile(r"^Promoting mirror <[^>]+> to leader")
REPLICAS_DOWN = re.compile(r"detected replica (.*) to be down")
PROCESS = re.compile(r"<rabbit@([\w.-]+?)\.\d+\.\d+\.\d+>")
SYNC_STARTED = re.compile(r"^Synchronising: (\d+) messages to synchronise")
PARTED = re.compile(r"inconsistent_database, running_partitioned_network, rabbit@([\w.-]+?)\}")
PEER = re.compile(r"^rabbit on node rabbit@([\w.-]+) (up|down)$")
MINORITY = "Cluster minority/secondary status detected"
STOPPED = "Successfully stopped RabbitMQ"
STARTING = "Starting RabbitMQ "
STARTED = "Server startup complete"
AUTOHEAL = "Autoheal"

EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


def read_rabbitmq_logs(collected: Path, run_start_wall_ns: int) -> Sequence[EventRow]:
    """Node events out of the logs of every node, of RabbitMQ 3 and 4."""
    return in_order(
        row
        for path in sorted(collected.glob("*/log/rabbit@*.log"))
        for row in log_rows(read_log(path), run_start_wall_ns)
    )


def read_log(path: Path) -> Iterator[Event]:
    """The events of one node's log; the node's name is in the file's name."""
    reader = _LogReader(path.stem.removeprefix("rabbit@"))
    with path.open(errors="replace") as lines:
        for line in lines:
            match = LINE.match(line)
            if match:
                yield from reader.read(_wall_ns(match[1]), match[2].strip())


def _wall_ns(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH_START) // timedelta(microseconds=1) * 1000


class _LogReader:
    """What a log has said so far: how often the broker started, and its role in each queue."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._incarnation = 0
        self._roles: dict[str, str] = {}  # by queue

    def read(self, wall_ns: int, text: str) -> Iterator[Event]:
        def event(
            group: str, kind: str, *, role: str = "", epoch: int = 0, **detail: object
        ) -> Event:
            return Event(
                at_ns=wall_ns,
                wall_ns=wall_ns,
                node=self._node,
                incarnation=self._incarnation,
                group=group,
                kind=kind,
                role=role,
                epoch=epoch,
                detail=detail,
            )

        queue_line = QUEUE_LINE.match(text)
        if queue_line:
            yield from self._read_queue(event, queue_line[1], queue_line[2])
        elif quorum_line := QUORUM_LINE.match(text):
            yield from self._read_quorum(event, quorum_line[1], quorum_line[2])
        elif parted := PARTED.search(text):
            yield event("", "partition", parted_from=parted[1])
        elif peer := PEER.match(text):
            yield event("", f"peer_{peer[2]}", peer=peer[1])
        elif text.startswith(AUTOHEAL):
            yield event("", "autoheal", text=text)
        else:
            yield from self._read_life(event, text)

    def _read_queue(self, event: Callable[..., Event], queue: str, text: str) -> Iterator[Event]:
        if added := ADDED.match(text):
            if added[1] == self._node:
                self._roles[queue] = "mirror"
                yield event(queue, "role", role="mirror")
            else:
                yield event(queue, "set_changed", added=added[1])
        elif PROMOTED.match(text):
            self._roles[queue] = "master"
            yield event(queue, "promoted", role="master")
            yield event(queue, "role", role="master")
        elif down := REPLICAS_DOWN.search(text):
            yield event(queue, "set_changed", down=sorted(PROCESS.findall(down[1])))
        elif started := SYNC_STARTED.match(text):
            yield event(queue, "sync_started", messages=int(started[1]))
        elif text.startswith(("Synchronising: complete", "Synchronising: all mirrors already")):
            yield event(queue, "sync_done")
        elif text.startswith("Stopping all nodes on master shutdown"):
            yield event(queue, "mirrors_stopped", text=text)

    def _read_quorum(self, event: Callable[..., Event], queue: str, text: str) -> Iterator[Event]:
        if leads := LEADS.match(text):
            term = int(leads[1])
            self._roles[queue] = "master"
            yield event(queue, "promoted", role="master", epoch=term)
            yield event(queue, "role", role="master", epoch=term)
        elif (abdicates := ABDICATES.match(text)) and self._roles.get(queue) == "master":
            self._roles[queue] = "mirror"
            yield event(queue, "role", role="mirror", epoch=int(abdicates[1] or abdicates[2]))
        elif (follows := FOLLOWS.match(text)) and follows[1] != self._node:
            self._roles[queue] = "mirror"
            yield event(queue, "role", role="mirror", epoch=int(follows[2]), leader=follows[1])

    def _read_life(self, event: Callable[..., Event], text: str) -> Iterator[Event]:
        if MINORITY in text:
            yield from self._take_roles(event)
            yield event("", "role", role="paused")
        elif text.startswith(STOPPED):
            yield from self._take_roles(event)
            yield event("", "role", role="stopped")
        elif text.startswith(STARTING):
            # The roles ended with the last life, at an unknown time: only the new one speaks now.
            self._incarnation += 1
            yield event("", "starting")
            yield from self._take_roles(event)
        elif text.startswith(STARTED):
            yield event("", "role", role="running")

    def _take_roles(self, event: Callable[..., Event]) -> Iterator[Event]:
        """This node's broker is down: it has no role in any queue any more."""
        for queue in list(self._roles):
            del self._roles[queue]
            yield event(queue, "role", role="none")
