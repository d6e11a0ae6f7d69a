"""A node of toy-partitions: logs that transactions send to and poll.

The first node is the leader. It does each transaction under one lock, writes what it sends into a
journal that it syncs, and answers then; the others pass transactions on to it. A poll is given what
is committed, and nothing of its own transaction. A key belongs to the member of the group that
subscribed to it first, until that leaves or is silent; the next one goes on where the group
committed. So all is as Kafka promises, and more, until one rule is broken: see ``RULES``.

    python -m shalott_partitions.toy_node NODE.JSON
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from shalott.api import (
    Disk,
    Endpoint,
    Request,
    Response,
    Stream,
    json_response,
)
from shalott_toys.node import ABORTED, Journal, pass_on, run_alone, serve

POLLED_MAX = 6  # messages of a key that one poll returns
INVENTED = 1_000_000_000
SILENT_S = 4.0  # a member that asked for nothing for so long has left
FOLLOWED_MAX = 20  # messages of a key that the last node follows, where it is behind
UNKNOWN_MEMBER = 404  # it is to subscribe again

Rule = Literal[
    "none",
    "lost-write",  # some messages are acknowledged, and no poll finds them
    "hidden-newest",  # the newest message of a key is shown when another one is behind it
    "sent-twice",  # a message is stored again at the next offset
    "lying-abort",  # some that are committed are said to be aborted
    "own-read",  # a poll sees what its own transaction sent
    "uncommitted-read",  # a poll sees what transactions sent that still go on
    "wrong-offset",  # some acknowledgements tell the next offset
    "gaps",  # a poll leaves out a message between others
    "turned-polls",  # a poll returns its newest message first
    "jumps",  # a poll leaves out the first message of several
    "goes-back",  # a poll begins with a message that was polled already
    "late-sends",  # some are acknowledged, and stored later
    "turned-sends",  # what a transaction sends is stored in the other order
    "invented",  # a poll returns a message that was never sent
    "commits-ahead",  # a commit takes the end of the log for what was polled
    "node-behind",  # the last node stops following the logs
    "node-differs",  # the last node has other messages in place of some
]
RULES: tuple[Rule, ...] = get_args(Rule)

Pairs = list[tuple[int, int]]
Send = tuple[int, int, int]  # key, offset, value


class Mop(msgspec.Struct, frozen=True, array_like=True):
    """["send", key, value] or ["poll"]."""

    f: str
    key: int = -1
    value: int = -1


class NodeConfig(msgspec.Struct, frozen=True):
    name: str
    listen: Endpoint
    leader: Endpoint | None  # None: it is this one
    is_last: bool
    breaks: Rule
    seed: int


class Asked(msgspec.Struct, frozen=True):
    mops: list[Mop] = []
    places: dict[int, int] = {}
    member: str = ""  # of the group; its polls go by what the group gives it
    keys: list[int] = []


class Member(msgspec.Struct):
    keys: list[int]
    heard: float
    places: dict[int, int] = {}


class Node:
    """One life of a node, on the disk of its earlier ones."""

    def __init__(self, config: NodeConfig, disk: Disk) -> None:
        self.config, self._journal = config, Journal(disk)
        self._rule = config.breaks
        self._logs: dict[int, dict[int, int]] = {}  # by key: by offset, ascending
        self._ends: dict[int, int] = {}
        self._lock = asyncio.Lock()
        self._drawn = Stream(config.seed, "toy-partitions", config.name)
        self._late: set[asyncio.Task[None]] = set()
        self._members: dict[str, Member] = {}  # by age
        self._committed: dict[int, int] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._journal.open(self._read)
        await serve(self.config.listen, self._respond)
        await asyncio.Event().wait()

    async def _respond(self, request: Request) -> Response:
        what = "/".join(request.segments)
        if what == "status":
            return json_response({"leader": self.config.leader is None})
        body = request.body or b"{}"
        if self.config.leader is not None:
            path = f"/{what}"
            return self._own_copy(
                await pass_on(self.config.leader, msgspec.json.decode(body), path=path)
            )
        asked = msgspec.json.decode(body, type=Asked)
        if what == "subscribe":
            self._subscribe(asked)
            return json_response([])
        places = asked.places
        if asked.member:
            if asked.member not in self._members:
                return json_response({"error": "unknown member"}, UNKNOWN_MEMBER)
            places = self._places_of(asked.member)
        if what == "commit":
            return await self._commit(asked, places)
        answers = await self._transact(asked.mops, places)
        if self._rule == "lying-abort" and len(answers) > 0 and self._drawn.random() < 0.05:
            return json_response({"error": "aborted"}, ABORTED)
        return json_response(answers)

    def _read(self, line: bytes) -> None:
        if line.startswith(b"{"):
            found = msgspec.json.decode(line, type=dict[str, dict[int, int]])
            self._committed |= found["committed"]
        else:
            self._take(msgspec.json.decode(line, type=list[Send]))

    def _own_copy(self, told: Response) -> Response:
        """What the last node shows of the leader's answers, where it is to break a rule."""
        keeps = self._rule not in ("node-behind", "node-differs")
        if keeps or not self.config.is_last or told.status != 200:
            return told
        found: list[object] = []
        for answer in msgspec.json.decode(told.body):
            if isinstance(answer, dict) and self._rule == "node-behind":
                answer = {
                    key: [pair for pair in pairs if pair[0] < FOLLOWED_MAX]
                    for key, pairs in answer.items()
                }
            elif isinstance(answer, dict):
                answer = {
                    key: [(at, value if at % 8 else INVENTED + value) for at, value in pairs]
                    for key, pairs in answer.items()
                }
            found.append(answer)
        return json_response(found)

    # -- the group ---------------------------------------------------------------------------------

    def _subscribe(self, asked: Asked) -> None:
        self._members.pop(asked.member, None)
        if asked.keys:
            now = asyncio.get_running_loop().time()
            self._members[asked.member] = Member(asked.keys, now, {})

    def _places_of(self, name: str) -> dict[int, int]:
        """Of the keys that are its own: where it is, at first where the group is."""
        now = asyncio.get_running_loop().time()
        self._members[name].heard = now
        for other, member in list(self._members.items()):
            if member.heard < now - SILENT_S:
                del self._members[other]
        owners: dict[int, str] = {}
        for other, member in self._members.items():
            for key in member.keys:
                owners.setdefault(key, other)
        own = self._members[name]
        own.places = {
            key: own.places.get(key, self._committed.get(key, 0))
            for key in own.keys
            if owners[key] == name
        }
        return own.places

    async def _commit(self, asked: Asked, owned: Mapping[int, int]) -> Response:
        if not set(asked.places) <= set(owned):
            return json_response({"error": "another member has a key by now"}, ABORTED)
        async with self._lock:
            places = asked.places
            if self._rule == "commits-ahead":
                places = {key: self._ends.get(key, 0) for key in places}
            await self._journal.append({"committed": places})
            self._committed |= places
        return json_response([])

    # -- what the leader does ----------------------------------------------------------------------

    async def _transact(self, mops: Sequence[Mop], places: dict[int, int]) -> list[object]:
        if self._rule == "uncommitted-read":
            return await self._in_the_open(mops, dict(places))
        is_send = [mop.f for mop in mops] == ["send"]
        if self._rule == "late-sends" and is_send and self._drawn.random() < 0.3:
            task = asyncio.ensure_future(self._send_late(mops))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return [(-1, mops[0].value)]
        async with self._lock:
            return await self._isolated(mops, places)

    async def _isolated(self, mops: Sequence[Mop], places: dict[int, int]) -> list[object]:
        sends = self._placed([mop for mop in mops if mop.f == "send"])
        own: list[Send] = []
        answers: list[object] = []
        for mop in mops:
            if mop.f == "send":
                sent = next(each for each in sends if each[2] == mop.value)
                own.append(sent)
                answers.append((self._told(sent[1]), sent[2]))
            else:
                seen = own if self._rule == "own-read" else []
                answers.append(self._polled(places, seen))
        if sends:
            await self._write_down(self._stored(sends))
        return answers

    async def _in_the_open(self, mops: Sequence[Mop], places: dict[int, int]) -> list[object]:
        """Each send can be polled at once by others."""
        answers: list[object] = []
        sends: list[Send] = []
        for mop in mops:
            if mop.f == "send":
                [sent] = self._placed([mop])
                sends.append(sent)
                self._take([sent])
                answers.append((sent[1], sent[2]))
            else:
                own = {value for _, _, value in sends}
                polled = self._polled(places, [])
                answers.append(
                    {key: [pair for pair in pairs if pair[1] not in own]
                     for key, pairs in polled.items()}
                )  # fmt: skip
            await asyncio.sleep(0.001 + 0.03 * self._drawn.random())
        if sends:
            async with self._lock:
                await self._write_down(sends)
        return answers

    async def _send_late(self, mops: Sequence[Mop]) -> None:
        await asyncio.sleep(0.5 + self._drawn.random())
        async with self._lock:
            await self._isolated(mops, {})

    def _placed(self, mops: Sequence[Mop]) -> list[Send]:
        """Where the next messages stand; nothing is stored yet."""
        ends = dict(self._ends)
        sends: list[Send] = []
        for mop in reversed(mops) if self._rule == "turned-sends" else mops:
            offset = ends.get(mop.key, 0)
            sends.append((mop.key, offset, mop.value))
            ends[mop.key] = offset + (2 if self._rule == "sent-twice" else 1)
        return sends

    def _stored(self, sends: list[Send]) -> list[Send]:
        if self._rule == "sent-twice":
            return [
                again for key, offset, value in sends
                for again in ((key, offset, value), (key, offset + 1, value))
            ]  # fmt: skip
        return sends

    def _told(self, offset: int) -> int:
        return offset + (self._rule == "wrong-offset" and self._drawn.random() < 0.1)

    async def _write_down(self, sends: list[Send]) -> None:
        await self._journal.append(sends)
        self._take(sends)

    def _take(self, sends: list[Send]) -> None:
        for key, offset, value in sends:
            self._ends[key] = max(self._ends.get(key, 0), offset + 1)
            if self._rule != "lost-write" or value % 16:
                self._logs.setdefault(key, {})[offset] = value

    # -- polls -------------------------------------------------------------------------------------

    def _polled(self, places: dict[int, int], own: list[Send]) -> dict[int, Pairs]:
        """From each place on; the places are moved behind what is returned."""
        polled = {}
        for key, place in sorted(places.items()):
            log = self._logs.get(key, {})
            begin = max(0, place - (self._rule == "goes-back"))
            end = self._ends.get(key, 0) - (self._rule == "hidden-newest")
            offsets = [offset for offset in range(begin, end) if offset in log][:POLLED_MAX]
            pairs = [(offset, log[offset]) for offset in offsets]
            pairs += [(offset, value) for k, offset, value in own if k == key]
            if pairs and pairs[-1][0] >= place:
                places[key] = pairs[-1][0] + 1
                polled[key] = self._broken(pairs)
        return polled

    def _broken(self, pairs: Pairs) -> Pairs:
        """What the rules about single polls make of it."""
        if self._rule == "gaps" and len(pairs) > 2:
            return [pairs[0], *pairs[2:]]
        if self._rule == "jumps" and len(pairs) > 1:
            return pairs[1:]
        if self._rule == "turned-polls" and len(pairs) > 1:
            return pairs[::-1]
        if self._rule == "invented" and self._drawn.random() < 0.05:
            return [*pairs[:-1], (pairs[-1][0], INVENTED + pairs[-1][1])]
        return pairs


if __name__ == "__main__":
    run_alone(NodeConfig, Node)
