"""What RocketMQ's C++ member says to brokers, as rows of the history.

The library tells its application of deliveries and of nothing else: when it joins, which queues are
its own, what it locks, commits and sends back is read off the wire (tap.py). Queues are its own
from its first pull until an answer of the group's members gives them to another member, by the one
strategy that it has (average allocation), and until nothing of them is worked on any more.

Requests are those of the release of 2018: 34, 38, 14 and 30, 11, 15, 36, 41 and 42, 35.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.route_data import PERM_READ
from shalott.checkers.groups.group_rules import Group
from shalott.clients.cpp.process import LibraryLine
from shalott.clients.cpp.tap import decode_route
from shalott.clients.rocketmq.consumption import allocate_averagely
from shalott.clients.rocketmq.group_requests import retry_topic
from shalott.clients.rocketmq.log_client import NOTHING_STORED
from shalott.clients.rocketmq.stored_messages import Malformed, PulledMessage, decode_messages
from shalott.core.client import ClientRows
from shalott.core.message_body import decode_body
from shalott.core.op import Completion, OpType

PULLED_MAX = 20_000  # messages that may still be sent back
_STORING = (
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
)
UNANSWERED = "the connection ended before the answer"


@dataclass(slots=True)
class Assignment:
    """A queue that is the member's. ``busy`` counts messages that the listener works on;
    ``pending`` has the offsets that were pulled and not consumed."""

    row: int
    start: int
    why: str
    next_offset: int
    pending: dict[int, None] = field(default_factory=dict)
    busy: int = 0
    ended: str = ""  # why, though something may still be worked on


@dataclass(slots=True)
class _Pulled:
    key: str
    message: PulledMessage
    value: int | None


@dataclass(slots=True)
class MemberRows:
    """Listens to the tap of one member. ``end`` once, when it is gone."""

    name: str
    group: Group
    rows: ClientRows
    client_id: str = ""
    assignments: dict[str, Assignment] = field(default_factory=dict)  # by key
    _row: int | None = None
    _queues: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # by topic
    _starts: dict[str, str] = field(default_factory=dict)  # key -> why it would begin there
    _asked: dict[int, tuple[Command, list[int]]] = field(default_factory=dict)  # by id(request)
    _by_log_offset: dict[tuple[str, int], _Pulled] = field(default_factory=dict)
    _order: deque[tuple[str, int]] = field(default_factory=deque)
    _sent_back: dict[int, int] = field(default_factory=dict)  # row -> queue offset

    @property
    def words(self) -> dict[str, object]:
        """Of every row."""
        return {"member": self.name, "group": self.group.name}

    @property
    def _own_words(self) -> dict[str, object]:
        group = self.group
        return self.words | {
            "broadcast": group.broadcast,
            "orderly": group.orderly,
            "tags": list(group.tags),
        }

    def end(self, ended: str) -> None:
        """Every row that is open."""
        for _, rows in self._asked.values():
            for row in rows:
                self.rows.end(row, Completion(type="info", error="its member is gone"))
        self._asked.clear()
        for key, one in list(self.assignments.items()):
            one.ended = one.ended or ended
            one.busy = 0
            self._end_if_idle(key, one)
        if self._row is not None:
            self.rows.end(
                self._row, Completion(type="ok", extra=self._own_words | {"ended": ended})
            )
            self._row = None

    # -- what the tap tells ------------------------------------------------------------------------

    def asked(self, behind: str, request: Command) -> None:
        match request.code:
            case RequestCode.HEART_BEAT:
                self._heartbeat(request)
            case RequestCode.PULL_MESSAGE:
                self._pull(request)
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                self._open(request, [self.rows.begin("commit", _key(request.ext), self.words)])
            case RequestCode.CONSUMER_SEND_MSG_BACK:
                self._send_back(behind, request)
            case RequestCode.LOCK_BATCH_MQ:
                keys = _locked(request.body, "mqSet")
                rows = [self.rows.begin("lock", key, self.words) for key in keys]
                self._open(request, rows)
            case RequestCode.UNLOCK_BATCH_MQ:
                for key in _locked(request.body, "mqSet"):
                    self.give_up(key, "rebalanced")

    def answered(self, behind: str, request: Command, answer: Command) -> None:
        is_done = answer.code == ResponseCode.SUCCESS
        match request.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC if is_done:
                self._route(request.ext.get("topic", ""), answer.body)
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP if is_done:
                self._members(answer.body)
            case RequestCode.QUERY_CONSUMER_OFFSET:
                self._starts[_key(request.ext)] = "committed" if is_done else "first"
            case RequestCode.GET_MAX_OFFSET if is_done:
                self._starts[_key(request.ext)] = "last"
            case RequestCode.PULL_MESSAGE:
                self._pulled(behind, request, answer)
            case RequestCode.LOCK_BATCH_MQ if is_done:
                self._lock(request, _locked(answer.body, "lockOKMQSet"))
            case code if code in _STORING and not is_done and NOTHING_STORED not in answer.remark:
                self._close(request, "info", f"{answer.code}: {answer.remark}")
            case _:
                error = "" if is_done else f"{answer.code}: {answer.remark}"
                self._close(request, "ok" if is_done else "fail", error)

    def unanswered(self, behind: str, request: Command) -> None:
        self._close(request, "info", UNANSWERED)

    def _open(self, request: Command, rows: list[int]) -> None:
        self._asked[id(request)] = (request, rows)

    def _close(self, request: Command, kind: OpType, error: str) -> None:
        _, rows = self._asked.pop(id(request), (request, []))
        offset = None
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            offset = int(request.ext.get("commitOffset", 0))
        elif rows:
            offset = self._sent_back.pop(rows[0], None)
        for row in rows:
            self.rows.end(row, Completion(type=kind, offset=offset, error=error or None))

    # -- its life ----------------------------------------------------------------------------------

    def _heartbeat(self, request: Command) -> None:
        said = msgspec.json.decode(request.body)
        if not said.get("consumerDataSet"):
            return
        self.client_id = str(said.get("clientID", ""))
        if self._row is None:
            self._row = self.rows.begin("member", self.group.name, self._own_words)

    def _route(self, topic: str, body: bytes) -> None:
        route = decode_route(body)
        self._queues[topic] = sorted(
            (str(data["brokerName"]), number)
            for data in route.get("queueDatas", ())
            if int(data["perm"]) & PERM_READ
            for number in range(int(data["readQueueNums"]))
        )

    def _members(self, body: bytes) -> None:
        """Who else is in the group, as the broker says: what is whose follows from it."""
        if self.group.broadcast:
            return
        members = [str(each) for each in msgspec.json.decode(body).get("consumerIdList", ())]
        for key in list(self.assignments):
            topic, _, number = key.rpartition("/")
            queues = self._queues.get(topic)
            if queues is None:
                continue
            own = allocate_averagely(self.client_id, members, queues)
            if int(number) not in [each for _, each in own]:
                self.give_up(key, "rebalanced")

    # -- queues ------------------------------------------------------------------------------------

    def _pull(self, request: Command) -> None:
        key = _key(request.ext)
        one = self.assignments.get(key)
        if one is not None and not one.ended:
            return
        if one is not None:  # it came back while something was still worked on
            one.busy = 0
            self._end_if_idle(key, one)
        start = int(request.ext.get("queueOffset", 0))
        why = "local" if self.group.broadcast else self._starts.get(key, "first")
        row = self.rows.begin("assignment", key, self.words | {"why": why})
        self.assignments[key] = Assignment(row, start, why, start)

    def give_up(self, key: str, ended: str) -> None:
        one = self.assignments.get(key)
        if one is not None and not one.ended:
            one.ended = ended
            self._end_if_idle(key, one)

    def work(self, key: str) -> Assignment | None:
        """The listener begins to work on a message of that queue."""
        one = self.assignments.get(key)
        if one is not None:
            one.busy += 1
        return one

    def worked(self, key: str, one: Assignment | None) -> None:
        if one is not None:
            one.busy -= 1
            self._end_if_idle(key, one)

    def _end_if_idle(self, key: str, one: Assignment) -> None:
        if one.ended and one.busy <= 0 and self.assignments.get(key) is one:
            del self.assignments[key]
            words = self.words | {"why": one.why, "ended": one.ended}
            self.rows.end(one.row, Completion(type="ok", offset=one.start, extra=words))

    def _pulled(self, behind: str, request: Command, answer: Command) -> None:
        key = _key(request.ext)
        one = self.assignments.get(key)
        next_offset = int(answer.ext.get("nextBeginOffset", -1))
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            words = self.words | {"from": int(request.ext.get("queueOffset", 0))}
            self.rows.happened(
                "moved", Completion(type="ok", key=key, offset=next_offset, extra=words)
            )
            if one is not None:
                one.next_offset, one.pending = next_offset, {}
            return
        messages: list[PulledMessage] = []
        if answer.code == ResponseCode.SUCCESS:
            try:
                messages = decode_messages(answer.body)
            except Malformed:
                return  # the library will say what it thinks of it
        for message in messages:
            self._remember(behind, key, message)
        if one is not None and next_offset >= 0:
            one.pending |= dict.fromkeys(message.queue_offset for message in messages)
            one.next_offset = max(one.next_offset, next_offset)

    # -- messages ----------------------------------------------------------------------------------

    def _remember(self, behind: str, key: str, message: PulledMessage) -> None:
        place = (behind, message.offset)
        value = decode_body(message.body) if message.is_sound else None
        if place not in self._by_log_offset:
            self._order.append(place)
        self._by_log_offset[place] = _Pulled(key, message, value)
        if len(self._order) > PULLED_MAX:
            self._by_log_offset.pop(self._order.popleft(), None)

    def _send_back(self, behind: str, request: Command) -> None:
        pulled = self._by_log_offset.get((behind, int(request.ext.get("offset", -1))))
        level = int(request.ext.get("delayLevel", 0))
        if pulled is None:
            return  # of nothing that it was given since this member began
        words = self.words | {"level": level, "reconsumed": pulled.message.reconsumed}
        row = self.rows.begin("send-back", pulled.key, words, pulled.value)
        self._sent_back[row] = pulled.message.queue_offset
        self._open(request, [row])

    def _lock(self, request: Command, held: list[str]) -> None:
        _, rows = self._asked.pop(id(request), (request, []))
        for key, row in zip(_locked(request.body, "mqSet"), rows, strict=False):
            self.rows.end(row, Completion(type="ok", extra=self.words | {"held": key in held}))

    def stands_at(self, key: str) -> int | None:
        one = self.assignments.get(key)
        return None if one is None else min(one.pending, default=one.next_offset)

    def done(self, key: str, offset: int) -> None:
        """The listener could do with it."""
        one = self.assignments.get(key)
        if one is not None:
            one.pending.pop(offset, None)


def key_of_delivery(said: LibraryLine, group: str) -> str:
    """The queue that a message was pulled from. The library gives retried messages back the topic
    that they were sent to."""
    topic = retry_topic(group) if said["retry"] and said["reconsumed"] else said["topic"]
    return f"{topic}/{said['queue']}"


def _key(ext: Mapping[str, str]) -> str:
    return f"{ext.get('topic', '')}/{ext.get('queueId', '')}"


def _locked(body: bytes, name: str) -> list[str]:
    found = msgspec.json.decode(body).get(name, ()) if body else ()
    return [f"{each['topic']}/{each['queueId']}" for each in found]
