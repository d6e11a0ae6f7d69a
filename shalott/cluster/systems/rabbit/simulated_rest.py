"""What the nodes of mirrored queues wait for: see cluster/sim/rest.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shalott.broker.rabbit.amqp.alarms import Resource
from shalott.broker.rabbit.amqp.channel import Channel
from shalott.broker.rabbit.amqp.connection import Connection
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.node.node import Node
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.runtime import Actor
from shalott.broker.rabbit.queue_process.process import QueueProcess
from shalott.broker.rabbit.queue_process.state import QueueState
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.replica.mirror import Mirror
from shalott.cluster.sim.machine import Machine

Actors = Mapping[Pid, Actor]


def waits(machines: Mapping[str, Machine]) -> Iterator[tuple[str, str, str]]:
    """What is not at rest: (node, its queue or "", what it waits for)."""
    nodes = {
        name: machine.node
        for name, machine in machines.items()
        if machine.is_alive and isinstance(machine.node, Node) and machine.node.broker is not None
    }
    actors = {pid: one for node in nodes.values() for pid, one in node.runtime.processes.items()}
    for name, node in nodes.items():
        for other, its in nodes.items():
            known = node.alarms.of(other)
            if {*known} != {*_short_of(its)}:
                yield name, "", f"it knows of alarms {known} of {other}, which has {_short_of(its)}"
        for queue, what in _of_tables(node):
            yield name, queue, what
        for actor in node.runtime.processes.values():
            for queue, what in _of_actor(node, actor, actors):
                yield name, queue, what


def _of_tables(node: Node) -> Iterator[tuple[str, str]]:
    """Of the queues as this node's tables have them."""
    for key, row in node.metadata.rows(rows.QUEUE):
        durable = node.metadata.read(rows.DURABLE, key)
        if isinstance(row, QueueRow) and isinstance(durable, QueueRow) and durable.pid != row.pid:
            yield key, f"would be recovered from {durable.pid}, and {row.pid} is its master"


def _short_of(node: Node) -> list[Resource]:
    """Of what it is short now."""
    memory, disk = node.memory, node.disk_space
    found: list[Resource] = []
    if memory.limit_bytes is not None and memory.used > memory.limit_bytes:
        found.append("memory")
    if disk.is_alarmed:
        found.append("disk")
    return found


def _of_actor(node: Node, actor: Actor, actors: Actors) -> Iterator[tuple[str, str]]:
    match actor:
        case Channel() if actor.has_started:
            yield from (("", f"channel {actor.pid} {what}") for what in _of_channel(actor, actors))
        case Connection() if actor.info().state == "blocked" and not node.alarms.in_effect:
            yield "", f"connection {actor.pid} is blocked, and there is no alarm"
        case QueueProcess():
            said = _of_queue(actor.state, actors)
            yield from ((actor.state.key, f"{actor.pid} {what}") for what in said)


def _of_channel(channel: Channel, actors: Actors) -> Iterator[str]:
    if undecided := len(channel.verdicts):
        yield f"has told its client nothing of {undecided} publishes"
    if channel.transactions.is_committing:
        yield "has not answered a commit"
    for tag, process in channel.consumers.places():
        master = _master(actors, process)
        known = () if master is None else (one.request for one in master.consumers)
        if not any(one.channel == channel.pid and one.tag == tag for one in known):
            yield f"has the consumer {tag}, of which no master knows"
    dead = [p for p in channel.unsettled.deliveries.processes() if _master(actors, p) is None]
    if dead:
        yield f"holds deliveries of {len(dead)} queue processes that are no masters"


def _of_queue(state: QueueState, actors: Actors) -> Iterator[str]:
    role = state.role
    if role is None or (state.is_blocked and isinstance(role, Master)) or state.sync.is_running:
        yield "serves no client"
    if role is None:
        return
    index, owed = role.queue.index, role.confirms.owed_count
    if index.durable_mark < index.mark:
        yield f"has {index.mark - index.durable_mark} records that are not on its disk"
    if owed:
        yield f"owes {owed} confirms"
    if isinstance(role, Mirror):
        return
    consumers, messages = role.consumers, role.queue.messages
    if consumers.in_question is not None:
        yield f"waits for channel {consumers.in_question[0]} to say whether it has room"
    if messages.ready and consumers.has_ready():
        yield f"has {messages.ready} messages, and a consumer with room for them"
    held = sum(len(use.deliveries) for use in consumers.channels.values())
    if messages.unacked != held:
        yield f"has {messages.unacked} messages unsettled, and gave clients {held}"
    if gone := [channel for channel in consumers.channels if channel not in actors]:
        yield f"serves {len(gone)} channels that are dead"


def _master(actors: Actors, process: Pid | None) -> Master | None:
    actor = None if process is None else actors.get(process)
    role = actor.role if isinstance(actor, QueueProcess) else None
    return role if isinstance(role, Master) else None
