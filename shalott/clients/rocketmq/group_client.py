"""GroupClient: the group workload's client of one node.

Sends and polls are those of the log workload's client. Besides:

    join          a member of the group begins, in the background; ok at once
    leave, die    one of this client's members of the group goes, in order or without a word; with
                  ``all`` every one. fail: there is none
    reset         the operator sets the group to the queue's begin or end (``to``) as mqadmin does,
                  for the whole topic, while members are online, or else the queue's offset alone;
                  a row for each queue
    set-up        the operator makes a topic and a group that no client uses, or sets them up anew:
                  slaves copy them
    lag           how far the group is behind in a queue, or how many messages of a level still
                  wait. ok: not at all; fail with error "behind" otherwise
    final-offset  what the master says of the group's offset

Members outlive operations, not their client: a worker that has members must never be told "info",
so it is given no sends while there are others for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from shalott.broker.rocket.remoting.command import ResponseCode
from shalott.checkers.groups.group_rules import Group
from shalott.clients.rocketmq import group_requests as requests
from shalott.clients.rocketmq.consumption import Listener, MemberSettings, Membership, fate_of
from shalott.clients.rocketmq.member import Member
from shalott.clients.rocketmq.rocket_client import (
    Dial,
    Queue,
    Refused,
    RocketClient,
    RocketError,
    Routes,
)
from shalott.core.client import Client, ClientRows
from shalott.core.errors import Definite, Indefinite
from shalott.core.history import Recorder
from shalott.core.op import Completion, Invocation, OpType

BEHIND = "behind"
OPERATORS = "shalott-operated"  # a topic and a group
LEAVING_SHARE = 0.8  # of an operation's time: what is not done by then is left undone


class GroupMember(Protocol):
    """Our own (member.py), or a library's. Begins when it is made."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> Group: ...

    def stands_at(self, key: str) -> int | None: ...

    async def leave(self) -> None: ...

    async def end(self, ended: str) -> None: ...


MakeMember = Callable[[Membership], GroupMember]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMeans:
    """What all clients of a run share: its groups by name, and what their listeners do.

    ``topic`` is one that has a route from the beginning.
    """

    topic: str
    groups: Mapping[str, Group]
    members: MemberSettings
    listener: Listener
    make_member: MakeMember = Member


class GroupClient:
    """``name_server`` is the node's, as host:port; ``log`` sends and polls there."""

    def __init__(
        self, name_server: str, log: Client, means: GroupMeans, *, dial: Dial, op_timeout_ms: int
    ) -> None:
        self._name_server = name_server
        self._log = log
        self._means = means
        self._dial = dial
        self._op_timeout_ms = op_timeout_ms
        self._client = RocketClient([name_server], dial=dial, timeout_ms=op_timeout_ms / 3)
        self._routes = Routes(self._client, means.members.route_poll_ms)
        self._members: list[GroupMember] = []
        self._joined = 0
        self._rows: ClientRows | None = None

    def record_in(self, recorder: Recorder, process: int, node: str) -> None:
        self._rows = ClientRows(recorder, process, node)

    async def open(self) -> None:
        await self._log.open()

    async def close(self) -> None:
        members, self._members = self._members, []
        for member in members:
            await member.end("closed")
        await self._client.close()
        await self._log.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        match invocation.f:
            case "send" | "poll":
                return await self._log.invoke(invocation)
            case "join":
                return self._join(invocation)
            case "leave" | "die":
                return await self._go(invocation)
            case "reset":
                return await self._reset(invocation)
            case "set-up":
                return await self._set_up(invocation)
            case "lag":
                return await self._lag(invocation)
            case "final-offset":
                return await self._final_offset(invocation)
        raise Definite(f"a group's client knows no {invocation.f}")

    # -- members -----------------------------------------------------------------------------------

    def _join(self, invocation: Invocation) -> Completion:
        assert self._rows is not None, "a client that records is told where"
        group, rows = self._means.groups[invocation.key], self._rows
        if (invocation.extra or {}).get("calm"):
            self._means.listener.calm = True
        name = f"{group.name}-{rows.process}-{self._joined}"
        self._joined += 1
        membership = Membership(
            name=name,
            group=group,
            settings=self._means.members,
            name_server=self._name_server,
            dial=self._dial,
            listener=self._means.listener,
            rows=rows,
        )
        self._members.append(self._means.make_member(membership))
        return Completion(type="ok", extra={"member": name})

    async def _go(self, invocation: Invocation) -> Completion:
        own = [one for one in self._members if one.group.name == invocation.key]
        chosen = own if (invocation.extra or {}).get("all") else own[:1]
        if not chosen:
            raise Definite("no member of this client is left in the group")
        self._members = [one for one in self._members if one not in chosen]
        if invocation.f == "leave":
            await asyncio.gather(*(self._leave(one) for one in chosen))
        for member in chosen:
            await member.end("died")
        return Completion(type="ok", extra={"members": [one.name for one in chosen]})

    async def _leave(self, member: GroupMember) -> None:
        """In order, or, if that takes too long, without."""
        try:
            async with asyncio.timeout(self._op_timeout_ms / 1000 * LEAVING_SHARE):
                await member.leave()
        except TimeoutError:
            pass

    # -- the operator ------------------------------------------------------------------------------

    async def _reset(self, invocation: Invocation) -> Completion:
        extra = invocation.extra or {}
        group, to_end = self._means.groups[extra["group"]], extra.get("to") == "end"
        queue, master = await self._master(invocation.key)
        others = await self._begin_others(queue, extra)
        try:
            offsets = await requests.reset(
                self._client, master, group.name, queue.topic, -1 if to_end else 0
            )
        except RocketError as error:
            self._end_others(others, {}, error)
            if isinstance(error, Refused) and error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return await self._reset_alone(queue, master, group, to_end=to_end)
            raise _fate(error) from error
        self._end_others(others, offsets, None)
        if queue.queue_id not in offsets:
            raise Indefinite("the broker does not say where the queue was set to")
        return Completion(type="ok", offset=offsets[queue.queue_id])

    async def _set_up(self, invocation: Invocation) -> Completion:
        """A topic and a group that no client uses: with another number each time."""
        _, master = await self._master(invocation.key)
        number = 1 + (invocation.value or 0)
        try:
            await self._client.create_topic(master, OPERATORS, number)
            await requests.set_group(self._client, master, OPERATORS, retries=number)
        except RocketError as error:
            raise _fate(error) from error
        return Completion(type="ok")

    async def _reset_alone(
        self, queue: Queue, master: str, group: Group, *, to_end: bool
    ) -> Completion:
        """While no member is online."""
        ask = self._client.max_offset if to_end else self._client.min_offset
        try:
            offset = await ask(master, queue)
        except RocketError as error:
            raise Definite(str(error)) from error
        try:
            await self._client.commit_offset(master, queue, offset, group.name)
        except RocketError as error:
            raise _fate(error) from error
        return Completion(type="ok", offset=offset)

    async def _begin_others(self, queue: Queue, extra: Mapping[str, str]) -> dict[int, int]:
        """ClientRows of the topic's other queues, by number."""
        assert self._rows is not None, "a client that records is told where"
        return {
            other.queue_id: self._rows.begin("reset", f"{other.topic}/{other.queue_id}", extra)
            for other in await self._routes.queues(queue.topic)
            if other != queue
        }

    def _end_others(
        self, rows: Mapping[int, int], offsets: Mapping[int, int], error: RocketError | None
    ) -> None:
        assert self._rows is not None, "a client that records is told where"
        for number, row in rows.items():
            if error is not None:
                kind: OpType = "fail" if isinstance(error, Refused) else fate_of(error)
                self._rows.end(row, Completion(type=kind, error=str(error)))
            elif number in offsets:
                self._rows.end(row, Completion(type="ok", offset=offsets[number]))
            else:
                self._rows.end(
                    row,
                    Completion(type="info", error="the broker does not say where it was set to"),
                )

    # -- looks -------------------------------------------------------------------------------------

    async def _lag(self, invocation: Invocation) -> Completion:
        extra = dict(invocation.extra or {})
        queue, master = await self._master(invocation.key)
        try:
            end = await self._client.max_offset(master, queue)
            if queue.topic == requests.SCHEDULE_TOPIC:
                delivered = await requests.delay_offsets(self._client, master)
                behind = end - delivered.get(queue.queue_id + 1, 0)
            else:
                behind = await self._behind(master, queue, self._means.groups[extra["group"]], end)
        except RocketError as error:
            raise Definite(str(error)) from error
        extra |= {"behind": behind, "end": end}
        if behind > 0:
            return Completion(type="fail", error=BEHIND, extra=extra)
        return Completion(type="ok", extra=extra)

    async def _behind(self, master: str, queue: Queue, group: Group, end: int) -> int:
        if group.broadcast:
            key = f"{queue.topic}/{queue.queue_id}"
            own = [one.stands_at(key) for one in self._members if one.group.name == group.name]
            return max((end - (stand or 0) for stand in own), default=0)
        committed = await self._client.consumer_offset(master, queue, group.name)
        return end - (committed or 0)

    async def _final_offset(self, invocation: Invocation) -> Completion:
        group = (invocation.extra or {})["group"]
        queue, master = await self._master(invocation.key)
        try:
            offset = await self._client.consumer_offset(master, queue, group)
        except RocketError as error:
            raise Definite(str(error)) from error
        return Completion(type="ok", offset=offset)

    async def _master(self, key: str) -> tuple[Queue, str]:
        """Whom to ask. Raises Definite."""
        topic, _, number = key.rpartition("/")
        known = topic if topic != requests.SCHEDULE_TOPIC else self._means.topic
        try:
            route = await self._routes.get(known)
            for data in route.queue_datas:
                queue = Queue(topic, data.broker_name, int(number))
                return queue, await self._routes.address(replace(queue, topic=known))
        except RocketError as error:
            self._routes.forget(topic)
            raise Definite(str(error)) from error
        raise Definite(f"nobody has {topic}")


def _fate(error: RocketError) -> Definite | Indefinite:
    """A refused reset was not done."""
    if isinstance(error, Refused) or fate_of(error) == "fail":
        return Definite(str(error))
    return Indefinite(str(error))
